"""The wheel: what is in it, and that it installs into a fresh environment, where the demo runs; and the image."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import dynamic_mcp

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "chart"
# Building and installing fetch packages where there is no cache of them.
BOUND_S = 600


def test_the_wheel_holds_only_the_package_the_schema_the_packs_the_chart_and_that_it_is_typed(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling.builders.wheel", reason="`hatchling` is not installed")
    (built,) = hatchling.WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    assert_is_whole(Path(built))


def test_the_sdist_holds_what_the_project_is_and_nothing_that_lies_beside_it(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling.builders.sdist", reason="`hatchling` is not installed")
    (built,) = hatchling.SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(built) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names} == {
        *("dynamic_mcp", "tests", "deploy", "docs", "examples", "schemas", ".ci", ".github", "Dockerfile"),
        *(".gitignore", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml", "PKG-INFO"),
    }
    assert {file.relative_to(ROOT).as_posix() for file in (ROOT / "dynamic_mcp").rglob("*.py")} < names


def test_the_version_of_the_package_is_that_of_its_metadata() -> None:
    assert importlib.metadata.version("dynamic-mcp-proxy") == dynamic_mcp.__version__


@pytest.mark.full
@pytest.mark.timeout(BOUND_S)
def test_the_wheel_that_pip_builds_is_the_same_and_runs_the_demo_in_a_fresh_environment(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    assert_is_whole(wheel)
    fresh = tmp_path / "fresh"
    _run(sys.executable, "-m", "venv", str(fresh))
    python = str(fresh / "bin" / "python")
    _run(python, "-m", "pip", "install", "-q", str(wheel))
    shown = _run(python, str(ROOT / "examples" / "quickstart.py"), cwd=tmp_path)
    assert "2026-12-31" in shown
    assert re.match(r"dynamic-mcp \d", _run(str(fresh / "bin" / "dynamic-mcp"), "--version", cwd=tmp_path))


def assert_is_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        schema = archive.read("dynamic_mcp/dynamic-mcp.schema.json").decode()
    code = {name for name in names if name.startswith("dynamic_mcp/") and name.endswith(".py")}
    metadata = {name for name in names if ".dist-info/" in name}
    packs = {file.relative_to(ROOT).as_posix() for file in (ROOT / "dynamic_mcp" / "packs").glob("*.json")}
    chart = {f"dynamic_mcp/chart/{file.relative_to(CHART).as_posix()}" for file in CHART.rglob("*") if file.is_file()}
    others = set(names) - code - metadata - packs - chart
    assert others == {"dynamic_mcp/py.typed", "dynamic_mcp/dynamic-mcp.schema.json"}
    assert chart < set(names)
    assert packs < set(names)
    assert code == {file.relative_to(ROOT).as_posix() for file in (ROOT / "dynamic_mcp").rglob("*.py")}
    assert schema == (ROOT / "schemas" / "dynamic-mcp.schema.json").read_text(encoding="utf-8")


def test_the_image_serves_as_an_ordinary_user_and_copies_what_the_build_needs() -> None:
    steps = [
        line.split(maxsplit=1)
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line[:1].isupper()
    ]
    final = steps[max(number for number, (step, *_) in enumerate(steps) if step == "FROM") :]
    assert ["USER", "mcp"] in final
    assert final[-1] == ["ENTRYPOINT", '["dynamic-mcp"]']
    copied = {name for step, what in steps[: -len(final)] if step == "COPY" for name in what.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "schemas", "dynamic_mcp", "deploy/chart"}
    assert {f"!{name}" for name in copied} <= set(ignored)


def _run(*command: str, cwd: Path | None = None) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
