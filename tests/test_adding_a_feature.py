"""The page that adds a feature adds one: what it shows is built in a copy of the program, and called."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dynamic_mcp
from tests.program import odd

PACKAGE = Path(str(dynamic_mcp.__file__)).parent
PAGE = PACKAGE.parent / "docs" / "adding-a-feature.md"
BOUND_S = 60
SERVE = "import sys; from dynamic_mcp.cli.main import run; sys.exit(run([sys.argv[1]]))"
CHECK = "import sys; from dynamic_mcp.cli.main import run; sys.exit(run(['check', '-c', sys.argv[1]]))"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the program as the page makes it."""
    package = tmp_path / "dynamic_mcp"
    changed = {"features/table.py": ")\n\n\ndef section_of(", "proxy/chain.py": '    StepRow("guards"'}
    for folder in (package, package / "features", package / "proxy"):
        folder.mkdir()
        for entry in (PACKAGE / folder.relative_to(package)).iterdir():
            name = entry.relative_to(PACKAGE).as_posix()
            if name not in (*changed, "features", "proxy", "__pycache__"):
                if entry.is_dir():
                    unfinished = shutil.ignore_patterns("*.pyc.*")  # what another process compiles just now
                    shutil.copytree(entry, folder / entry.name, ignore=unfinished)
                else:
                    shutil.copy(entry, folder)
    init, config, step, row, slot = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for (name, place), more in zip(changed.items(), (row, slot), strict=True):
        text = (PACKAGE / name).read_text(encoding="utf-8")
        assert text.count(place) == 1
        (package / name).write_text(text.replace(place, f"{more.strip()},\n{place}"), encoding="utf-8")
    room = package / "features" / "pause"
    room.mkdir()
    for name, text in {"__init__.py": init, "config.py": config, "step.py": step}.items():
        (room / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, code: str, pause: object, *frames: dict[str, object]) -> tuple[int, str, str]:
    """Run the copy with a server that is paused like this."""
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": {"good": {**odd(), "pause": pause}}}))
    lines = [json.dumps({"jsonrpc": "2.0", "id": id, **frame}) for id, frame in enumerate(frames)]
    done = subprocess.run(
        [sys.executable, "-c", code, str(config)],
        input="\n".join([*lines, ""]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def call(tool: str, **arguments: str) -> dict[str, object]:
    asked = {"group": "good", "name": tool, "args": arguments}
    return {"method": "tools/call", "params": {"name": "call_dynamic_tool", "arguments": asked}}


def test_the_feature_of_the_page_refuses_what_its_config_says_and_nothing_else(copy: Path) -> None:
    initialize: dict[str, object] = {"method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    pause = {"tools": ["e*"], "message": "no echo before Monday"}
    code, out, err = run(copy, SERVE, pause, initialize, call("echo", text="hello"), call("pid"))
    answers = {each["id"]: each["result"] for each in map(json.loads, out.splitlines()) if "result" in each}

    assert code == 0, err
    (refusal,) = answers[1]["content"]
    assert refusal["text"] == "`echo` of group `good` is paused: no echo before Monday"
    assert answers[2]["content"][0]["text"].isdigit()


def test_what_is_wrong_in_the_config_of_the_feature_is_said_where_it_stands(copy: Path) -> None:
    code, out, err = run(copy, CHECK, {"tools": ["e*"], "mesage": "x"})
    assert code == 2
    assert "mcpServers.good.pause.mesage" in out + err
    assert "did you mean `message`?" in out + err
