"""Installing into every tool, and taking it back to the byte."""

from __future__ import annotations

import json
import os
import stat
import sys
import sysconfig
from pathlib import Path

import pytest

from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats.documents import parse_document
from dynamic_mcp.importer.formats.shapes import container_of, shape_of
from dynamic_mcp.importer.formats.tree import is_like
from dynamic_mcp.importer.installer import find_target, plan_installation
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.reader import find_tool, read_tool
from dynamic_mcp.importer.tools.catalog import TOOLS
from tests.importer.machines import machine
from tests.importer.world import World

BEGINNINGS = {
    ".json": '{\n    // mine, as the order is\n    "z": [1, 2], "theme": "dark",\n    "a": {"b": null}, /* c */\n}\n',
    ".toml": '# mine\nmodel = "x"   # why\n\n[z]\nk = [\n  1,\n  2,\n]\n# the end\n',
    ".yaml": "# mine\nmodel:   x   # why\nz:\n    - 1\n    - k: 2\nlong: |\n  text\n\n# the end\n",
}

# As Windows names a program, and where Goose has its file there.
PROGRAM = "dynamic-mcp.exe" if sys.platform == "win32" else "dynamic-mcp"
GOOSE = "AppData/Roaming/Block/goose/config/config.yaml" if sys.platform == "win32" else ".config/goose/config.yaml"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def unescaped(file: Path) -> str:
    """The text of a file, with single backslashes in it."""
    return file.read_text(encoding="utf-8").replace("\\\\", "\\")


def scope_of(adapter: Adapter) -> ToolScope | None:
    """The scope in which a tool has a file of its own, the user's first."""
    for scope in (ToolScope.USER, ToolScope.PROJECT):
        try:
            find_target(adapter, scope, local_machine(None))
        except DynamicMcpError:
            continue
        return scope
    return None


def settings(adapter: Adapter, scope: ToolScope, *names: str) -> Path:
    """Write a file of the tool, with comments and with these servers in its own shape."""
    place, file = find_target(adapter, scope, local_machine(None))
    suffix = {".yml": ".yaml", ".jsonc": ".json"}.get(file.suffix, file.suffix)
    made = parse_document(file, BEGINNINGS[suffix].encode())
    container = container_of(adapter, {}, place.servers or adapter.servers)
    shape = shape_of(adapter, container)
    for number, name in enumerate(names):
        entry = shape.make_entry("npx", ["-y", f"{name}-mcp"])
        entry |= {"name": name} if "name" in entry else {}
        made = made.put((*container, number if shape.has_name else name), entry)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(made.encode())
    return file


def named(world: World, adapter: Adapter, scope: ToolScope) -> dict[str, bool]:
    """The servers that the tool has, and whether it starts them."""
    readings = read_tool(adapter, (scope,), local_machine(None))
    assert not any(reading.error for reading in readings)
    return {found.name: found.entry.get("enabled") is not False for reading in readings for found in reading.servers}


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_import_install_and_undo_give_every_tool_its_bytes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, adapter: Adapter
) -> None:
    monkeypatch.setenv("AMP_SETTINGS_FILE", str(world.home / "amp.json"))
    monkeypatch.setenv("CONFIG_PATH", str(world.home / "librechat.yaml"))
    scope = scope_of(adapter)
    if scope is None:
        pytest.skip("keeps its servers in no file")
    file = settings(adapter, scope, "one", "two")
    before = file.read_bytes()
    assert named(world, adapter, scope) == {"one": True, "two": True}
    assert world.run("import", adapter.name, "--scope", scope.value, "--yes").code == 0

    ran = world.run("install", adapter.name, "--scope", scope.value, "--replace", "-c", str(world.output))

    assert ran.code == 0, ran.err
    made = parse_document(file, file.read_bytes())
    entry = json.dumps(made.get(()))
    assert "dynamic-mcp" in entry
    assert json.dumps(str(world.output)) in entry
    assert not any(named(world, adapter, scope).values()), "what was imported is not started any more"
    assert all(
        line in file.read_text(encoding="utf-8")
        for line in before.decode().splitlines()
        if "mine" in line or "why" in line
    )
    assert world.run("install", adapter.name, "--scope", scope.value, "-c", str(world.output)).code == 0
    assert made.encode() == file.read_bytes(), "installed twice is installed once"
    assert world.run("undo", "--yes").code == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_a_file_that_changed_since_loses_our_entry_only(
    world: World, monkeypatch: pytest.MonkeyPatch, adapter: Adapter
) -> None:
    monkeypatch.setenv("CONFIG_PATH", str(world.home / "librechat.yaml"))
    scope = scope_of(adapter)
    if scope is None:
        pytest.skip("keeps its servers in no file")
    file = settings(adapter, scope, "one")
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    before = parse_document(file, file.read_bytes())
    world.run("install", adapter.name, "--scope", scope.value, "-c", str(world.output))
    file.write_bytes(parse_document(file, file.read_bytes()).put(("later",), "x").encode())
    assert world.run("uninstall", adapter.name, "--scope", scope.value).code == 0
    after = parse_document(file, file.read_bytes())
    assert after.get(("later",)) == "x"
    assert is_like(after.drop(("later",)).get(()), before.get(()))


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe")]
)
def test_encoding_mark_and_line_ends_stay(world: World, encoding: str, mark: bytes, eol: str) -> None:
    text = '{\n\t"mcpServers": {\n\t\t"é": {"command": "x"} // ü\n\t}\n}\n'.replace("\n", eol)
    file = world.write(".cursor/mcp.json", mark + text.encode(encoding))
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("install", "cursor").code == 0
    data = file.read_bytes()
    assert data.startswith(mark)
    after = data[len(mark) :].decode(encoding)
    assert after.startswith(text[: text.index(" // ü")] + ", // ü" + eol)
    assert after.count("\n") == after.count(eol)
    world.run("undo", "--yes")
    assert file.read_bytes() == mark + text.encode(encoding)


@pytest.mark.parametrize(
    ("tool", "file", "text", "where"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {', "line 1, column 17"),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": []}', "neither an object"),
        ("cursor", ".cursor/mcp.json", '{"a": 1, "a": 2}', "more than once"),
        ("cursor", ".cursor/mcp.json", "[" * 200_000, "nested"),
        ("codex", ".codex/config.toml", "[mcp_servers\n", "is not TOML"),
        ("codex", ".codex/config.toml", "mcp_servers = 1\n", "cannot be changed"),
        ("goose", GOOSE, "extensions:\n  - a\n b: {", "is not YAML"),
        ("goose", GOOSE, "extensions: text\n", "cannot be changed"),
    ],
)
def test_a_file_that_cannot_be_parsed_or_holds_something_else_is_never_written(
    world: World, tool: str, file: str, text: str, where: str
) -> None:
    path = world.write(file, text)
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    for command in (["install", tool], ["uninstall", tool]):
        ran = world.run(*command)
        assert ran.code == 1, ran.err
        assert path.read_text(encoding="utf-8") == text
    assert where in world.run("install", tool).err
    assert world.run("undo", "--yes").code == 2, "nothing was done"


def test_a_file_that_was_not_there_is_gone_again_with_its_directories(world: World) -> None:
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    world.run("install", "kiro")
    assert (world.home / ".kiro" / "settings" / "mcp.json").is_file()
    world.run("uninstall", "kiro")
    assert not (world.home / ".kiro").exists()


@pytest.mark.posix_only("modes are those of POSIX, and links need a privilege on Windows")
def test_mode_and_link_stay_and_a_read_only_file_is_left_alone(world: World) -> None:
    real = world.write("dotfiles/mcp.json", {"mcpServers": {}})
    real.chmod(0o640)
    link = world.home / ".cursor" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("install", "cursor").code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_left_alone(world: World) -> None:
    file = world.cursor()
    file.chmod(0o444)
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("install", "cursor").code == 1


@pytest.mark.parametrize("tool", ["claude-desktop", "gemini", "codex", "opencode", "goose"])
def test_every_tool_gets_the_full_path_of_the_script_that_was_run(
    world: World, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    program = world.write("bin/dynamic-mcp", "#!/bin/sh\n")
    other = world.write("other/dynamic-mcp", "#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(sys, "argv", [str(program), "install"])
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    world.run("install", tool)
    file = find_target(find_tool(tool), ToolScope.USER, local_machine(None)).file
    assert str(program) in unescaped(file)


def test_a_program_in_a_runners_cache_is_not_written_down_where_there_is_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = world.write(f".cache/uv/archive-v0/abc/bin/{PROGRAM}", "#!/bin/sh\n")
    monkeypatch.setattr(sys, "argv", [str(cached), "install"])
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    monkeypatch.setattr(sys, "executable", str(cached.parent / "python"))
    monkeypatch.setenv("PATH", str(cached.parent))
    # where Windows has programs, unless the environment is a virtual one
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(cached.parent))
    ran = world.run("install", "cursor")
    assert "cache that may be cleared" in ran.err
    assert str(cached) in unescaped(world.home / ".cursor/mcp.json")
    lasting = world.write(f"bin/{PROGRAM}", "#!/bin/sh\n")
    lasting.chmod(0o755)
    monkeypatch.setenv("PATH", str(lasting.parent))
    assert "cache" not in world.run("install", "cursor").err
    assert str(lasting) in unescaped(world.home / ".cursor/mcp.json")


def test_claude_codes_local_scope_is_its_projects_part_of_the_users_file(world: World) -> None:
    text = json.dumps({"projects": {str(world.project): {"allowedTools": []}}, "tips": {"command": 1}})
    file = world.write(".claude.json", text)
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("install", "claude", "--scope", "local").code == 0
    made = parse_document(file, file.read_bytes())
    assert made.get(("projects", str(world.project), "mcpServers", "dynamic-mcp", "type")) == "stdio"
    world.run("undo", "--yes")
    assert file.read_text(encoding="utf-8") == text


def test_replace_without_an_import_says_what_to_do(world: World) -> None:
    world.cursor(a={"command": "x"})
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    ran = world.run("install", "cursor", "--replace")
    assert ran.code == 1
    assert "dynamic-mcp import cursor" in ran.err


def test_undo_goes_back_one_by_one_and_says_what_it_did(world: World) -> None:
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    world.run("install", "cursor")
    world.run("install", "kiro")
    assert [deed["what"] for deed in world.run("undo", "--list").json()] == ["install kiro", "install cursor"]
    undone = world.run("undo", "1").err
    assert "install cursor" in undone
    assert undone.endswith("restart the AI tools whose files these are\n")
    assert "already" in world.run("undo", "1").err
    assert "install kiro" in world.run("undo", "--yes").err
    assert world.run("undo", "--yes").code == 2
    assert world.run("undo", "77").code == 2


@pytest.mark.parametrize("tool", ["devin", "augment"])
def test_a_local_file_of_its_own_is_read_back_by_its_tool(world: World, tool: str) -> None:
    world.output.write_text("{}", encoding="utf-8")
    assert world.run("install", tool, "--scope", "local").code == 0
    (reading,) = read_tool(find_tool(tool), (ToolScope.LOCAL,), local_machine(None))
    assert ["is dynamic-mcp itself" in notice.reason for notice in reading.notices] == [True]


@pytest.mark.parametrize("tool", ["continue", "mistral-vibe"])
def test_a_second_installation_into_a_list_changes_nothing(world: World, tool: str) -> None:
    file = settings(find_tool(tool), ToolScope.USER)
    world.output.write_text("{}", encoding="utf-8")
    assert world.run("install", tool).code == 0
    before = file.read_bytes()
    ran = world.run("install", tool)
    assert (ran.code, file.read_bytes()) == (0, before)
    assert "already has the entry" in ran.err


def test_windows_writes_one_project_in_two_cases(tmp_path: Path) -> None:
    here = Machine(tmp_path / "home", tmp_path / "Project", {}, "win32")
    here.home.mkdir()
    key = str(here.project).upper()
    (here.home / ".claude.json").write_text(json.dumps({"projects": {key: {"mcpServers": {}}}}), encoding="utf-8")
    plan = plan_installation(find_tool("claude"), ToolScope.LOCAL, here, start=["dynamic-mcp"])
    assert [list(json.loads(change.after)["projects"]) for change in plan.changes] == [[key]]


def test_claude_desktop_of_a_windows_package_gets_the_entry_in_the_file_that_it_reads(tmp_path: Path) -> None:
    here = machine(tmp_path, "win32")
    plain = here.home / "AppData/Roaming/Claude/claude_desktop_config.json"
    assert find_target(find_tool("claude-desktop"), ToolScope.USER, here).file == plain
    plain.parent.mkdir(parents=True)
    plain.write_text("{}", encoding="utf-8")  # as an older installation has left it
    package = here.home / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc"
    package.mkdir(parents=True)
    packaged = package / "LocalCache/Roaming/Claude/claude_desktop_config.json"
    assert find_target(find_tool("claude-desktop"), ToolScope.USER, here).file == packaged
