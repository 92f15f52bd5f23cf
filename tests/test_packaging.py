"""The wheel: what is in it, and that it installs into a fresh environment, where the demo runs; and the image."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
        *(".dockerignore", ".gitignore", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO"),
        "pyproject.toml",
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
    page = {
        file.relative_to(ROOT).as_posix()
        for folder in (ROOT / "dynamic_mcp").rglob("*")
        if folder.name in ("templates", "static")
        for file in folder.iterdir()
    }
    profiles = {"dynamic_mcp/features/sandbox/profiles.json"}
    packages = {f"dynamic_mcp/features/provenance/{name}" for name in ("known.json", "sigstore.pem")}
    others = set(names) - code - metadata - packs - chart - page - profiles - packages
    assert others == {"dynamic_mcp/py.typed", "dynamic_mcp/dynamic-mcp.schema.json"}
    assert chart < set(names)
    assert packs | profiles < set(names)
    assert code == {file.relative_to(ROOT).as_posix() for file in (ROOT / "dynamic_mcp").rglob("*.py")}
    assert schema == (ROOT / "schemas" / "dynamic-mcp.schema.json").read_text(encoding="utf-8")


def test_images_run_as_an_ordinary_user_and_what_their_build_copies_is_there() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line.split() for line in text.splitlines() if line[:1].isupper()]
    starts = [number for number, (step, *_) in enumerate(steps) if step == "FROM"]
    stages = [steps[start:end] for start, end in itertools.pairwise([*starts, len(steps)])]
    assert [stage[0][-1] for stage in stages] == ["packages", "programs", "build", "slim", "full"]
    for stage in stages[-2:]:
        assert [words for words in stage if words[0] == "USER"][-1] == ["USER", "1000:1000"]
    copied = {
        name for step, *words in steps if step == "COPY" and not words[0].startswith("--") for name in words[:-1]
    }
    assert {name for name in copied if not (ROOT / name).exists()} == set()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [
        name for name in copied if not any(name.startswith(each[1:]) for each in ignored if each[:1] == "!")
    ] == []


@pytest.mark.parametrize(
    ("lock", "extras"), [("slim", {"cel", "cluster", "otel"}), ("full", {"cel", "cluster", "otel", "scripts"})]
)
def test_the_locked_versions_are_what_pyproject_asks_for(lock: str, extras: set[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = read_lock(f"{lock}.txt")
    wanted = [*project["dependencies"], *(each for name in extras for each in project["optional-dependencies"][name])]
    requirements = [each for each in map(Requirement, wanted) if each.marker is None or each.marker.evaluate()]
    missing = [each.name for each in requirements if canonicalize_name(each.name) not in locked]
    assert missing == []
    unmet = [
        str(each)
        for each in requirements
        if not each.specifier.contains(locked[canonicalize_name(each.name)], prereleases=True)
    ]
    assert unmet == []


def test_full_has_each_version_of_slim() -> None:
    assert read_lock("slim.txt").items() <= read_lock("full.txt").items()


@pytest.mark.parametrize("name", ["slim", "full", "programs", "build"])
def test_each_locked_package_has_its_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "deploy" / "image" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) == len(read_lock(f"{name}.txt"))
    assert [each.split()[0] for each in entries if "--hash=sha256:" not in each] == []


def read_lock(name: str) -> dict[str, str]:
    """Return the version of each package in a lock file."""
    text = (ROOT / "deploy" / "image" / name).read_text(encoding="utf-8")
    return {
        canonicalize_name(each): version for each, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }


def _run(*command: str, cwd: Path | None = None) -> str:
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "PIP_NO_INDEX")  # other tests ask no index
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
