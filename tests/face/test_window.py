"""A window of a running daemon loads next to nothing, and one without a daemon starts one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.face import window

# What would make a window slow to start, or large.
HEAVY = (
    "asyncio",
    "click",
    "contextlib",
    "dynamic_mcp.config.read",
    "json",
    "msgspec",
    "pathlib",
    "pydantic",
    "re",
    "socket",
    "subprocess",
    "typing",
)


def test_what_a_window_imports_is_light() -> None:
    program = "import dynamic_mcp.__main__, dynamic_mcp.face.window, sys; print(*sys.modules)"
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert not (set(HEAVY) & set(done.stdout.split())) - set(bare.stdout.split())


# In place of Python: a daemon that dies as soon as it has said that it listens; from then on, Python.
DIES_ONCE = """\
#!{python}
import os, pathlib, sys
died = pathlib.Path({note!r})
if died.exists():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
died.touch()
os.write(int(sys.argv[-1]), b"1")
"""


@pytest.mark.posix_only("a script takes the place of Python")
def test_a_window_starts_another_daemon_if_one_dies_before_it_has_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "dynamic-mcp.json"
    config.write_text(json.dumps({"mcpServers": {}, "settings": {"daemon": {"linger": "1s"}}}))
    program, note = tmp_path / "python", tmp_path / "died"
    program.write_text(DIES_ONCE.format(python=sys.executable, note=str(note)))
    program.chmod(0o700)
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "executable", str(program))

    connection = window.find_or_start_daemon(str(config))

    assert note.exists()
    assert connection is not None
    connection.settimeout(30)
    assert connection.recv(1) == b""  # it has ended: nobody said hello
    connection.close()
