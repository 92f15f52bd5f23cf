"""The questions of an import and of an undo, asked and answered in a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there are no such terminals here", allow_module_level=True)

import pty

BOUND_S = 30.0
CONFIG = {"DYNAMIC_MCP_CONFIG": "dynamic-mcp.json"}
DOWN, ENTER, INTERRUPT, BLANK = b"\x1b[B", b"\r", b"\x03", b" "


class Terminal:
    """A program on a terminal: what it shows is waited for, what a person types is sent."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = b""

    def shows(self, text: str) -> None:
        """Wait until the program has shown this since the last answer."""
        while text.encode() not in self._shown:
            ready, _, _ = select.select([self._descriptor], [], [], BOUND_S)
            assert ready, f"waiting for {text!r}: {self._shown!r}"
            data = b""
            with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
                data = os.read(self._descriptor, 65536)
            assert data, f"ended before {text!r}: {self._shown!r}"
            # a program may ask the terminal where the cursor is
            if b"\x1b[6n" in data:
                os.write(self._descriptor, b"\x1b[1;1R")
            self._shown += data

    def types(self, keys: bytes) -> None:
        """Send keys; what was shown before is forgotten."""
        self._shown = b""
        os.write(self._descriptor, keys)

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        with contextlib.suppress(AssertionError):
            self.shows("\0 the end")
        return self.process.wait(BOUND_S)


@contextlib.contextmanager
def terminal(home: Path, *args: str) -> Iterator[Terminal]:
    """Run the program on a terminal of its own."""
    ours, theirs = pty.openpty()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "CLAUDE", "XDG_CONFIG"))
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamic_mcp", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home,
        env={**kept, "HOME": str(home), "TERM": "xterm", "COLUMNS": "200", "LINES": "50", **CONFIG},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".kiro" / "settings").mkdir(parents=True)
    (tmp_path / ".gemini").mkdir()
    write(tmp_path / ".kiro" / "settings" / "mcp.json", one={"command": "one-mcp"})
    write(tmp_path / ".gemini" / "settings.json", two={"command": "two-mcp"})
    return tmp_path


def write(file: Path, **servers: object) -> None:
    file.write_text(json.dumps({"mcpServers": servers}))


def servers(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home / "dynamic-mcp.json").read_text())["mcpServers"]
    return found


def test_without_a_tool_a_table_and_a_choice(home: Path) -> None:
    with terminal(home, "import") as shell:
        shell.shows("TOOL")
        shell.shows("Import from")
        shell.shows("kiro (user): one")
        shell.types(BLANK)  # not the first
        shell.types(ENTER)
        shell.shows("1 new")
        assert shell.ends() == 0
    assert len(servers(home)) == 1


def test_all_asks_once_and_a_no_writes_nothing(home: Path) -> None:
    with terminal(home, "import", "--all") as shell:
        shell.shows("Import from these 2 files?")
        shell.types(b"n")
        shell.shows("nothing was written")
        assert shell.ends() == 0
    assert not (home / "dynamic-mcp.json").exists()


def test_all_and_yes_asks_nothing(home: Path) -> None:
    with terminal(home, "import", "--all", "--yes") as shell:
        shell.shows("2 new")
        assert shell.ends() == 0
    assert set(servers(home)) == {"one", "two"}


def test_a_conflict_is_asked_and_the_answer_counts(home: Path) -> None:
    with terminal(home, "import", "gemini", "-g") as shell:
        assert shell.ends() == 0
    output = home / "dynamic-mcp.json"
    output.write_text(output.read_text().replace("two-mcp", "mine-mcp"))
    write(home / ".gemini" / "settings.json", two={"command": "theirs-mcp"})
    with terminal(home, "import", "gemini", "-g") as shell:
        shell.shows("keep both")
        shell.types(DOWN)
        shell.shows("take the one from gemini")
        shell.types(ENTER)
        assert shell.ends() == 0
    assert servers(home)["two"]["command"] == "theirs-mcp"


def test_an_interrupt_writes_nothing(home: Path) -> None:
    with terminal(home, "import") as shell:
        shell.shows("Import from")
        shell.types(INTERRUPT)
        assert shell.ends() == 130
    assert not (home / "dynamic-mcp.json").exists()


def test_a_description_can_be_typed(home: Path) -> None:
    with terminal(home, "import", "gemini", "-g", "--describe", "ask") as shell:
        shell.shows("What is `two` good for?")
        shell.types(b"\x15Counts to two\r")  # over what was proposed
        assert shell.ends() == 0
    assert str(servers(home)["two"]["description"]).endswith("Counts to two")


@pytest.mark.parametrize(("key", "is_undone"), [(b"y", True), (b"n", False)])
def test_undo_names_the_latest_change_and_asks(tmp_path: Path, key: bytes, *, is_undone: bool) -> None:
    output = tmp_path / "dynamic-mcp.json"
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "a"}}}')
    with terminal(tmp_path, "import", "cursor", "--yes") as person:
        assert person.ends() == 0
    with terminal(tmp_path, "undo") as person:
        person.shows("import cursor")
        person.shows(f"`{output}` will be removed")
        person.shows("Undo it?")
        person.types(key)
        assert person.ends() == 0
    assert output.exists() is not is_undone
