"""The example plug-in as an installed package, and others, in the real program."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dynamic_mcp.config import jsonc
from tests import hosting, own_process
from tests.program import BOUND_S, Json, Program, odd, running, serving, text_of

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "plugin"

_HANGING = """
import asyncio
from dynamic_mcp.middleware import Middleware

class Hanging(Middleware):
    async def call(self, request, next):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def close(self):
        await asyncio.Event().wait()

class Broken(Middleware):
    async def open(self, options, services):
        raise ValueError("no level is given")
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed packages, which programs find."""
    target = tmp_path / "packages"
    target.mkdir()
    if hosting.hosting.has_daemon:
        paths = (str(target), os.environ.get("PYTHONPATH", ""))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    else:
        monkeypatch.chdir(target)  # where `python -m` looks first
    return target


def _install(project: Path, target: Path) -> None:
    """Install a package as its wheel would be, without the tool that builds it, which has to be downloaded."""
    about = tomllib.loads((project / "pyproject.toml").read_text())
    name, version = about["project"]["name"], about["project"]["version"]
    for package in about["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(project / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in about["project"]["entry-points"].items()
        for line in (f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def example(tmp_path: Path, packages: Path) -> Path:
    """The example's config, with the package installed."""
    _install(EXAMPLE, packages)
    tree = jsonc.loads((EXAMPLE / "dynamic-mcp.json").read_text())
    assert isinstance(tree, dict)
    for server in tree["mcpServers"].values():
        server |= {"command": sys.executable, "cwd": str((EXAMPLE / server["cwd"]).resolve())}
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps(tree))
    return file


async def test_the_example_adds_its_advice_to_errors_of_its_server(example: Path) -> None:
    async with running(str(example)) as program:
        await program.initialize()
        result = await program.call("notes", "read_note", {"name": "lost"})
        other = await program.call("dates", "add_working_days", {"start": "lost", "days": 1})
    assert result["isError"]
    assert result["content"][-1]["text"] == "Ask the user before you add it."
    assert other["isError"]
    assert "Ask the user" not in json.dumps(other)


@pytest.mark.alone_only("it serves nobody")
def test_the_example_can_be_checked(example: Path) -> None:
    done = _run("check", "-c", str(example))
    assert done.returncode == 0, done.stderr
    assert "plug-in `advice` can be opened" in done.stdout


@pytest.mark.alone_only("a command with a proxy of its own")
def test_commands_call_through_plug_ins_as_well(example: Path) -> None:
    done = _run("call", "-c", str(example), "notes", "read_note", '{"name": "lost"}')
    assert "Ask the user before you add it." in done.stdout + done.stderr


@pytest.mark.alone_only("the daemon's exit code is nobody's")
@pytest.mark.parametrize(
    ("use", "says"),
    [
        ("advise", "no installed package offers a plug-in of this name"),
        ("hanging:Broken", "cannot be opened: no level is given"),
    ],
)
def test_a_plug_in_that_cannot_be_opened_ends_the_start_and_is_found_by_check(
    use: str, says: str, example: Path, packages: Path
) -> None:
    (packages / "hanging.py").write_text(_HANGING)
    _use(example, use)
    for arguments in ((str(example),), ("check", "-c", str(example)), ("doctor", "-c", str(example))):
        done = _run(*arguments)
        assert done.returncode == 2
        assert says in done.stdout + done.stderr
        assert "settings.middleware[0]" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


async def test_a_reload_with_a_plug_in_that_cannot_be_opened_keeps_the_old_config(example: Path) -> None:
    async with running(str(example)) as program:
        await program.initialize()
        await _advises(program)
        _use(example, "advise")
        await program.says("the config was not reloaded")
        await _advises(program)
        _use(example, "advice", options={"advice": {"there is no note": "Read the manual."}})
        await program.says("has changed")
        async with asyncio.timeout(BOUND_S):
            while True:
                result = await program.call("notes", "read_note", {"name": "lost"})
                if result["content"][-1]["text"] == "Read the manual.":
                    break


async def test_a_plug_in_that_hangs_costs_its_call_and_not_the_end_of_the_program(
    tmp_path: Path, packages: Path
) -> None:
    (packages / "hanging.py").write_text(_HANGING)
    middleware = [{"use": "hanging:Hanging", "timeout": "50ms"}]
    async with serving(tmp_path, {"a": odd()}, settings={"middleware": middleware}) as program:
        result = await program.call("a", "echo", {"text": "x"})
        assert "did not go on within 0.05 s" in text_of(result)
        program.end_input()
        await program.ends()


async def _advises(program: Program) -> None:
    result = await program.call("notes", "read_note", {"name": "lost"})
    assert result["content"][-1]["text"] == "Ask the user before you add it."


def _use(config: Path, name: str, **changes: Json) -> None:
    tree = json.loads(config.read_text())
    tree["settings"]["middleware"][0] |= {"use": name, **changes}
    config.write_text(json.dumps(tree))
    hosting.hosting.prepare(config)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = own_process.run(*arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
