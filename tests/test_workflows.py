"""The workflows for hosted runners. They cannot run here: what they would run is compared with what is run here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
AUTHOR = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")


def load(name: str) -> dict[str, dict[str, dict[str, object]]]:
    loaded: dict[str, dict[str, dict[str, object]]] = YAML(typ="safe").load(WORKFLOWS / name)
    return loaded


def commands(job: dict[str, object]) -> list[str]:
    assert isinstance(job["steps"], list)
    return [step["run"] for step in job["steps"] if "run" in step]


def test_each_system_runs_the_test_command_of_the_readme() -> None:
    shown = re.findall(
        r"^```sh\n(.*?)\n```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    (wanted,) = [each for each in shown if "pytest" in each]
    activate = ". .venv/$SCRIPTS/activate && "
    first, *others = commands(load("test.yml")["jobs"]["test"])
    assert all(each.startswith(activate) for each in others)
    joined = " && ".join([first, activate + " && ".join(each.removeprefix(activate) for each in others)])
    joined = joined.replace("python -m pip install -U pip", "pip install -U pip").replace(
        "python -m venv", "python3 -m venv"
    )
    assert joined.replace("$SCRIPTS", "bin") == wanted


def test_it_is_tried_on_three_systems_and_with_each_version_of_python_that_is_promised() -> None:
    job = load("test.yml")["jobs"]["test"]
    assert isinstance(job["strategy"], dict)
    matrix = job["strategy"]["matrix"]
    assert {each.partition("-")[0] for each in matrix["system"]} == {"ubuntu", "macos", "windows"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"]]
    assert matrix["python"] == [each for each in named if re.fullmatch(r"3\.\d+", each)]
    assert project["requires-python"] == f">={matrix['python'][0]}"


@pytest.mark.not_in_wine("there is no git; with one it is the same on Windows")
def test_a_checkout_on_windows_has_the_line_ends_that_were_committed(tmp_path: Path) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    git("init", "-q", str(source))
    shutil.copyfile(ROOT / ".gitattributes", source / ".gitattributes")
    (source / "lines").write_bytes(b"one\ntwo\n")
    git("-C", str(source), "add", ".")
    git("-C", str(source), *AUTHOR, "commit", "-q", "-m", "Begin")
    git("clone", "-q", "-c", "core.autocrlf=true", str(source), str(clone))  # as Git for Windows is installed
    assert (clone / "lines").read_bytes() == b"one\ntwo\n"


def git(*args: str) -> None:
    subprocess.run(["git", *args], check=True, timeout=30)


def test_a_release_runs_only_scripts_of_the_repository() -> None:
    jobs = load("release.yml")["jobs"]
    words = [each.split()[0] for job in jobs.values() for each in commands(job)]
    assert words
    assert all((ROOT / word).is_file() for word in words)
