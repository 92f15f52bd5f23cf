"""The command that a hint names for optional packages fits the way in which the program was installed."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from dynamic_mcp.system.extras import PACKAGES, install_hint

ROOT = Path(__file__).parent.parent.parent


def test_pipx_adds_the_packages_to_the_environment_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "pipx_metadata.json").write_text("{}")
    assert install_hint("cel", tmp_path) == "install it: `pipx inject dynamic-mcp-proxy cel-expr-python`"


def test_uv_installs_the_tool_from_where_it_came_with_all_that_was_added_before(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "dynamic-mcp-proxy", directory = "/my clone" },'
        ' { name = "cel-expr-python" }, { name = "keyring" }]\n'
    )
    assert install_hint("keyring", tmp_path) == (
        "install it: `uv tool install --with cel-expr-python --with keyring '/my clone'`"
    )


def test_uv_installs_from_the_repository_that_it_cloned(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "dynamic-mcp-proxy", git = "https://example.com/a.git" }]\n'
    )
    assert install_hint("cel", tmp_path).endswith("--with cel-expr-python git+https://example.com/a.git`")


def test_elsewhere_the_pip_of_this_very_python_installs_them(tmp_path: Path) -> None:
    assert install_hint("otel", tmp_path) == (
        f"install it: `{sys.executable} -m pip install opentelemetry-exporter-otlp-proto-http opentelemetry-sdk`"
    )


def test_the_packages_are_those_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: tuple(each.split(">=")[0] for each in needed) for name, needed in extras.items()} == PACKAGES
