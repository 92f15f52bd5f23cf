"""The questions of an import and of an undo, asked and answered in a real terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there are no such terminals here", allow_module_level=True)

from tests.terminal import BLANK, DOWN, ENTER, INTERRUPT, terminal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".kiro" / "settings").mkdir(parents=True)
    (tmp_path / ".gemini").mkdir()
    write(tmp_path / ".kiro" / "settings" / "mcp.json", one={"command": "one-mcp"})
    write(tmp_path / ".gemini" / "settings.json", two={"command": "two-mcp"})
    return tmp_path


def write(file: Path, **servers: object) -> None:
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def servers(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home / "dynamic-mcp.json").read_text(encoding="utf-8"))[
        "mcpServers"
    ]
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


@pytest.mark.parametrize(
    ("downs", "expected"),
    [(0, {"two": ["mine"]}), (1, {"two": ["theirs"]}), (2, {"two": ["mine"], "two-gemini": ["theirs"]})],
)
def test_a_difference_is_shown_and_the_answer_counts(home: Path, downs: int, expected: dict[str, list[str]]) -> None:
    write(home / ".gemini" / "settings.json", two={"command": "two-mcp", "args": ["mine"]})
    with terminal(home, "import", "gemini", "-g") as shell:
        assert shell.ends() == 0
    write(home / ".gemini" / "settings.json", two={"command": "two-mcp", "args": ["theirs"]})
    with terminal(home, "import", "gemini", "-g") as shell:
        shell.shows('+    "theirs"')
        shell.shows("keep the one in the config")
        shell.shows("add it under another name")
        for _ in range(downs):
            shell.types(DOWN)
        shell.types(ENTER)
        assert shell.ends() == 0
    assert {name: entry["args"] for name, entry in servers(home).items()} == expected


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
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "a"}}}', encoding="utf-8")
    with terminal(tmp_path, "import", "cursor", "--yes") as person:
        assert person.ends() == 0
    with terminal(tmp_path, "undo") as person:
        person.shows("import cursor")
        person.shows(f"`{output}` will be removed")
        person.shows("Undo it?")
        person.types(key)
        assert person.ends() == 0
    assert output.exists() is not is_undone
