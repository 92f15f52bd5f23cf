"""What `examples/scripts.json` offers: scripts that are tools of the group `scripts`, and that fit the servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_process import OWN

CONFIG = Path(__file__).parent.parent / "examples" / "scripts.json"
BOUND_S = 60


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # for `python`
    return {**os.environ, "PATH": path, "NOTES_DIR": str(tmp_path)}


def run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [*OWN, *words, "-c", str(CONFIG)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_scripts_fit_the_servers_that_they_call(environment: dict[str, str]) -> None:
    assert run(environment, "script", "check", "--table").splitlines() == ["note_deadline: ok", "tag_notes: ok"]


def test_the_scripts_do_what_they_say(environment: dict[str, str]) -> None:
    name = json.loads(run(environment, "script", "run", "note_deadline", "what=Reply", "start=2026-03-02", "days=5"))
    assert name == "reply-by-2026-03-09"
    assert json.loads(run(environment, "script", "run", "tag_notes", "tag=todo", "query=reply")) == [f"{name}-todo"]
