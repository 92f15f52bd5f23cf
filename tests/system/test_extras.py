"""The command that a hint names for optional packages fits the way in which the program was installed."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from dynamic_mcp.system.extras import PACKAGES, install_hint
from dynamic_mcp.system.shell import quote

ROOT = Path(__file__).parent.parent.parent


def write_receipt(prefix: Path, *requirements: str) -> None:
    """Make the environment of a tool, as uv does."""
    (prefix / "uv-receipt.toml").write_text(f"[tool]\nrequirements = [{', '.join(requirements)}]\n")


@pytest.mark.parametrize("environment", ["dynamic-mcp-proxy", "dynamic-mcp-proxy-next"])  # `pipx install --suffix`
def test_pipx_adds_the_packages_to_the_environment_that_it_made(tmp_path: Path, environment: str) -> None:
    prefix = tmp_path / environment
    prefix.mkdir()
    (prefix / "pipx_metadata.json").write_text("{}")
    assert install_hint("cel", prefix) == f"install it: `pipx inject {environment} cel-expr-python`"


@pytest.mark.parametrize(
    ("requirements", "arguments"),
    [
        (['{ name = "dynamic-mcp-proxy", directory = "/my clone" }'], "--with keyring '/my clone'"),
        (['{ name = "dynamic-mcp-proxy", editable = "/clone" }'], "--with keyring --editable /clone"),
        (['{ name = "dynamic-mcp-proxy", path = "/a.whl" }'], "--with keyring /a.whl"),
        (['{ name = "dynamic-mcp-proxy" }'], "--with keyring dynamic-mcp-proxy"),
        (
            ['{ name = "dynamic-mcp-proxy", extras = ["cel", "otel"], directory = "/clone" }'],
            "--with keyring '/clone[cel,otel]'",
        ),
        (
            ['{ name = "dynamic-mcp-proxy", extras = ["cel"], specifier = ">=1" }'],
            "--with keyring 'dynamic-mcp-proxy[cel]>=1'",
        ),
        (
            ['{ name = "dynamic-mcp-proxy", git = "https://example.com/a.git" }'],
            "--with keyring git+https://example.com/a.git",
        ),
        (
            ['{ name = "dynamic-mcp-proxy", extras = ["cel"], git = "https://example.com/a.git?rev=v1" }'],
            "--with keyring 'dynamic-mcp-proxy[cel] @ git+https://example.com/a.git@v1'",
        ),
        (
            [
                '{ name = "dynamic-mcp-proxy", directory = "/clone" }',
                '{ name = "cel-expr-python", specifier = ">=0.1.3" }',
                '{ name = "keyring" }',
                '{ name = "advice", editable = "/advice" }',
                '{ name = "b", git = "https://example.com/b?subdirectory=x%2Fb&rev=v2" }',
            ],
            (
                "--with 'cel-expr-python>=0.1.3' --with-editable /advice"
                " --with 'git+https://example.com/b@v2#subdirectory=x/b' --with keyring /clone"
            ),
        ),
    ],
)
def test_uv_installs_the_tool_from_where_it_came_with_all_that_was_added_before(
    tmp_path: Path, requirements: list[str], arguments: str
) -> None:
    write_receipt(tmp_path, *requirements)
    assert install_hint("keyring", tmp_path) == f"install it: `uv tool install {quote(*shlex.split(arguments))}`"


@pytest.mark.parametrize("prefix", ["/root/.cache/uv/archive-v0/Zk3", "/root/.local/share/pipx/.cache/1a96"])
def test_a_program_that_a_runner_keeps_in_its_cache_is_run_with_the_packages(prefix: str) -> None:
    hint = install_hint("otel", Path(prefix))
    packages = "--with opentelemetry-exporter-otlp-proto-http --with opentelemetry-sdk"
    assert hint == f"add `{packages}` to the command that runs dynamic-mcp"


def test_elsewhere_the_pip_of_this_very_python_installs_them(tmp_path: Path) -> None:
    packages = "opentelemetry-exporter-otlp-proto-http opentelemetry-sdk"
    hint = f"install it: `{quote(sys.executable)} -m pip install {packages}`"
    assert install_hint("otel", tmp_path, has_pip=True) == hint


def test_uv_installs_them_into_an_environment_without_pip(tmp_path: Path) -> None:
    hint = install_hint("cel", tmp_path, python="/env/bin/python", has_pip=False)
    assert hint == "install it: `uv pip install --python /env/bin/python cel-expr-python`"


def test_the_packages_are_those_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {name: tuple(each.split(">=")[0] for each in needed) for name, needed in extras.items()} == PACKAGES
