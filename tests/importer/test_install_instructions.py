"""`install --cli`: instructions for an agent with a shell, in the place of each tool, and taken back to the byte."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.adapter import SYSTEMS, System
from dynamic_mcp.importer.instructions import (
    InstructionTarget,
    find_instruction_target,
    write_instructions,
    write_shell_command,
)
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.reader import find_tool
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.importer.tools.instructions import PLACES, InstructionKind
from dynamic_mcp.system.paths import state_dir
from tests.importer.world import World

SERVERS = {"time": {"command": "time-mcp", "description": "Clocks"}, "notes": {"command": "notes-mcp"}}
# With and without a line break at the end, of both kinds, and nothing at all.
BEGINNINGS = (b"# Ours\n\nBe kind.\n", b"# Ours\n\nBe kind.", "# Ünsere\r\n\r\nSeid nett.\r\n".encode(), b"")
TARGETS = [
    (name, place.scope) for name, places in PLACES.items() for place in places if sys.platform in place.systems
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = World(tmp_path, monkeypatch, capsys)
    made.write(made.output, {"mcpServers": SERVERS})
    return made


def target_of(tool: str, scope: ToolScope) -> InstructionTarget:
    return find_instruction_target(find_tool(tool), scope, local_machine(None))


def files_of(world: World) -> dict[Path, bytes]:
    """Everything that the person has but the state of the program."""
    roots = (world.home, world.project)
    files = [file for root in roots for file in root.rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if state_dir() not in file.parents}


def front_matter(text: str) -> dict[str, str]:
    loaded: dict[str, str] = YAML(typ="safe").load(text.split("---\n")[1])
    return loaded


# --- each tool -------------------------------------------------------------------------------------------------


def test_the_places_are_those_of_known_tools() -> None:
    assert PLACES.keys() <= {adapter.name for adapter in TOOLS}
    assert all(place.source.startswith("https://") for places in PLACES.values() for place in places)


@pytest.mark.parametrize(("tool", "scope"), TARGETS)
def test_a_tool_gets_instructions_once_and_loses_them_to_the_byte(world: World, tool: str, scope: ToolScope) -> None:
    target, before = target_of(tool, scope), files_of(world)
    command = (tool, "--cli", "--scope", scope.value)
    assert world.run("install", *command).code == 0
    written = target.file.read_text(encoding="utf-8")
    assert str(world.output).replace("\\", "/") in written.replace("\\", "/")
    assert "- time: Clocks" in written
    again = world.run("install", *command)
    assert "already has the instructions" in again.err
    assert target.file.read_text(encoding="utf-8") == written
    assert files_of(world).keys() - before.keys() == {target.file}
    assert world.run("uninstall", *command).code == 0
    assert files_of(world) == before


SECTIONS = [(tool, scope) for tool, scope in TARGETS if PLACES[tool][0].kind is InstructionKind.SECTION]


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize(("tool", "scope"), SECTIONS)
def test_a_file_with_other_instructions_keeps_them(
    world: World, tool: str, scope: ToolScope, beginning: bytes
) -> None:
    file = world.write(target_of(tool, scope).file, beginning)
    command = (tool, "--cli", "--scope", scope.value)
    assert world.run("install", *command).code == 0
    assert file.read_bytes().startswith(beginning)
    assert world.run("undo", "--yes").code == 0
    assert file.read_bytes() == beginning


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_section_is_replaced_and_removed_among_what_was_written_around_it(world: World, beginning: bytes) -> None:
    command, file = ("shared", "--cli", "--scope", "project"), world.write(world.project / "AGENTS.md", beginning)
    assert world.run("install", *command).code == 0
    file.write_bytes(b"first\n" + file.read_bytes() + b"last")
    world.write(world.output, {"mcpServers": {"other": {"command": "x"}}})
    assert world.run("install", *command).code == 0
    text = file.read_bytes()
    assert text.startswith(b"first\n" + beginning)
    assert text.endswith(b"last")
    assert text.count(b"dynamic-mcp: begin") == 1
    assert (b"- other" in text, b"- time" in text) == (True, False)
    assert world.run("uninstall", *command).code == 0
    assert file.read_bytes() == b"first\n" + beginning + b"last"


def test_a_section_that_someone_else_has_installed_can_be_removed(world: World) -> None:
    command, file = ("shared", "--cli", "--scope", "project"), world.write(world.project / "AGENTS.md", b"mine\n")
    world.run("install", *command)
    checked_in = file.read_bytes()
    world.run("undo", "--yes")
    file.write_bytes(checked_in)
    assert world.run("uninstall", *command).code == 0
    assert file.read_bytes() == b"mine\n"


# --- what is not ours ------------------------------------------------------------------------------------------


def test_a_file_that_is_not_ours_is_not_overwritten(world: World) -> None:
    file = world.write(target_of("claude", ToolScope.USER).file, "---\nname: dynamic-mcp\n---\nmine\n")
    before = files_of(world)
    refused = world.run("install", "claude", "--cli")
    assert (refused.code, "not written by dynamic-mcp" in refused.err) == (1, True)
    assert world.run("uninstall", "claude", "--cli").code == 1
    assert files_of(world) == before
    assert file.exists()


def test_an_edited_skill_is_replaced_and_deleted_until_its_mark_is_gone(world: World) -> None:
    file = target_of("claude", ToolScope.USER).file
    world.run("install", "claude", "--cli")
    ours = file.read_text(encoding="utf-8")
    file.write_text(f"{ours}more\n", encoding="utf-8")
    assert world.run("install", "claude", "--cli").code == 0
    assert file.read_text(encoding="utf-8") == ours
    file.write_text("".join(line for line in ours.splitlines(keepends=True) if "<!--" not in line), encoding="utf-8")
    assert world.run("uninstall", "claude", "--cli").code == 1
    assert file.exists()


def test_a_file_in_utf_16_is_not_changed(world: World) -> None:
    file = world.write(world.project / "AGENTS.md", "mine".encode("utf-16"))
    refused = world.run("install", "shared", "--cli", "--scope", "project")
    assert (refused.code, "UTF-16" in refused.err) == (1, True)
    assert file.read_bytes() == "mine".encode("utf-16")


def test_a_dry_run_shows_the_difference_and_writes_nothing(world: World) -> None:
    before = files_of(world)
    shown = world.run("install", "gemini", "--cli", "--dry-run")
    assert (shown.code, "+name: dynamic-mcp" in shown.out) == (0, True)
    assert files_of(world) == before
    world.run("install", "gemini", "--cli")
    before = files_of(world)
    shown = world.run("uninstall", "gemini", "--cli", "--dry-run")
    assert "will be removed" in shown.err + shown.out
    assert files_of(world) == before


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("claude-desktop", "--cli"), 1, "not known where Claude Desktop reads instructions"),
        (("visual-studio", "--cli"), 1, "--scope project"),
        (("claude", "--cli", "--scope", "all"), 2, "one scope"),
        (("claude", "--cli", "--url", "http://127.0.0.1:1/mcp"), 2, "takes no --url"),
        (("claude", "--cli", "--profile", "none"), 2, "profile"),
    ],
)
def test_what_cannot_be_installed_is_refused(world: World, words: tuple[str, ...], code: int, what: str) -> None:
    refused = world.run("install", *words)
    assert refused.code == code, refused.err
    assert what in refused.err


def test_without_a_config_there_is_nothing_to_tell(world: World) -> None:
    world.output.unlink()
    assert world.run("install", "claude", "--cli").code == 2


# --- beside the entry ------------------------------------------------------------------------------------------


def test_the_servers_of_the_tool_can_be_disabled_with_it_and_come_back_with_undo(world: World) -> None:
    file = world.cursor(time={"command": "time-mcp"})
    before = file.read_bytes()
    world.output.unlink()
    world.run("import", "cursor", "--yes")
    done = world.run("install", "cursor", "--cli", "--replace", "--json")
    assert done.json()["taken_out"] == ["time"]
    assert json.loads(file.read_text(encoding="utf-8"))["mcpServers"] == {}
    assert world.run("uninstall", "cursor", "--cli").code == 0
    assert file.read_bytes() == before
    assert not target_of("cursor", ToolScope.USER).file.exists()


def test_a_dry_run_shows_no_secrets_of_the_servers_that_it_would_disable(world: World) -> None:
    world.cursor(time={"command": "time-mcp", "env": {"API_TOKEN": "sk-very-secret-value-0123456789"}})
    world.output.unlink()
    world.run("import", "cursor", "--yes")
    shown = world.run("install", "cursor", "--cli", "--replace", "--dry-run")
    assert "time-mcp" in shown.out
    assert "very-secret" not in shown.out + shown.err


def test_an_entry_that_is_there_too_is_named_and_kept(world: World) -> None:
    world.run("install", "cursor")
    done = world.run("install", "cursor", "--cli")
    assert "`dynamic-mcp uninstall cursor` removes that" in done.err
    world.run("uninstall", "cursor")
    assert target_of("cursor", ToolScope.USER).file.exists()


# --- the text --------------------------------------------------------------------------------------------------


def test_a_profile_is_in_every_command(world: World) -> None:
    world.write(world.output, {"mcpServers": SERVERS, "profiles": {"one": {"servers": ["time"]}}})
    assert world.run("install", "claude", "--cli", "--profile", "one").code == 0
    text = target_of("claude", ToolScope.USER).file.read_text(encoding="utf-8")
    assert text.count("--profile one") == text.count(" -c ")
    assert ("- time" in text, "- notes" in text) == (True, False)


@pytest.mark.parametrize("count", [0, 2, 500])
def test_the_head_of_a_skill_fits_and_names_the_servers(count: int) -> None:
    command = write_shell_command(["/bin/dynamic-mcp"], ["-c", "/c"], platform="linux", is_on_path=False)
    servers = {f'server-{n}"': "what: it # does" for n in range(count)}
    head = front_matter(write_instructions(InstructionKind.SKILL, command, servers))
    assert head["name"] == "dynamic-mcp"
    assert len(head["description"]) <= 1024
    assert ('server-0"' in head["description"]) == (count > 0)


def test_a_skill_is_small() -> None:
    command = write_shell_command(
        ["/usr/local/bin/dynamic-mcp"], ["-c", "/c.json"], platform="linux", is_on_path=True
    )
    text = write_instructions(InstructionKind.SKILL, command, {"time": "Clocks"})
    assert len(text) / 4 < 500
    assert len(front_matter(text)["description"]) / 4 < 50


@pytest.mark.parametrize(
    ("program", "options", "platform", "is_on_path", "line"),
    [
        ("/bin/dynamic-mcp", "/c.json", "linux", True, "/bin/dynamic-mcp tools -c /c.json x"),
        ("/my bin/dynamic-mcp", "/it's.json", "linux", False, "'/my bin/dynamic-mcp' tools -c '/it'\"'\"'s.json' x"),
        (r"C:\py\dynamic-mcp.exe", r"C:\me\c.json", "win32", True, "dynamic-mcp tools -c C:/me/c.json x"),
        (
            r"C:\py\dynamic-mcp.exe",
            r"C:\my c.json",
            "win32",
            False,
            '"C:/py/dynamic-mcp.exe" tools -c "C:/my c.json" x',
        ),
    ],
)
def test_commands_are_quoted_for_the_shells_of_a_platform(
    program: str, options: str, platform: System, line: str, *, is_on_path: bool
) -> None:
    command = write_shell_command([program], ["-c", options], platform=platform, is_on_path=is_on_path)
    assert command.write("tools", "x") == line
    text = write_instructions(InstructionKind.FILE, command, {})
    assert ("| & " in text) == line.startswith('"')


def test_every_tool_of_the_table_is_found_on_every_system() -> None:
    home, project = Path("/home/x").absolute(), Path("/work").absolute()
    for platform in SYSTEMS:
        place = Machine(home, project, {}, platform)
        for name, places in PLACES.items():
            for scope in {each.scope for each in places if platform in each.systems}:
                assert find_instruction_target(find_tool(name), scope, place).file.is_absolute()
    with pytest.raises(DynamicMcpError):
        find_instruction_target(find_tool("tome"), ToolScope.USER, place)
