"""Installing into every tool as a server with a URL, and taking it back to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats.documents import parse_document
from dynamic_mcp.importer.formats.shapes import container_of, header_fields, remote_shape_of
from dynamic_mcp.importer.formats.tree import is_like
from dynamic_mcp.importer.installer import find_target
from dynamic_mcp.importer.model import ToolScope
from dynamic_mcp.importer.reader import read_tool
from dynamic_mcp.importer.tools.catalog import TOOLS
from tests.importer.test_install_command import named, scope_of, settings
from tests.importer.world import World

URL = "https://mcp.example.com/mcp"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    monkeypatch.setenv("AMP_SETTINGS_FILE", str(tmp_path / "home" / "amp.json"))
    monkeypatch.setenv("CONFIG_PATH", str(tmp_path / "home" / "librechat.yaml"))
    return World(tmp_path, monkeypatch, capsys)


def place_of(world: World, adapter: Adapter) -> ToolScope | None:
    """Return the scope in which a tool has a file; None, and a refusal seen, if it keeps its servers in none."""
    scope = scope_of(adapter)
    if scope is None:
        assert world.run("install", adapter.name, "--url", URL).code != 0
    return scope


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_every_tool_gets_the_url_and_its_bytes_back(world: World, adapter: Adapter) -> None:
    scope = place_of(world, adapter)
    if scope is None:
        return
    file = settings(adapter, scope, "one")
    before = file.read_bytes()

    ran = world.run("install", adapter.name, "--scope", scope.value, "--url", URL)

    assert ran.code == 0, ran.err
    made = file.read_bytes()
    assert URL in str(parse_document(file, made).get(()))
    assert named(world, adapter, scope) == {"one": True}, "the tool's own servers stay"
    again = world.run("install", adapter.name, "--scope", scope.value, "--url", URL)
    assert (again.code, file.read_bytes()) == (0, made), "installed twice is installed once"
    assert world.run("undo", "--yes").code == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_what_a_tool_is_written_is_read_back_as_streamable_http_at_this_url(world: World, adapter: Adapter) -> None:
    scope = place_of(world, adapter)
    if scope is None:
        return
    place, file = find_target(adapter, scope, local_machine(None))
    container = container_of(adapter, {}, place.servers or adapter.servers)
    shape = remote_shape_of(adapter, container)
    settings(adapter, scope)
    if shape is None:  # it gets a program that connects
        assert world.run("install", adapter.name, "--scope", scope.value, "--url", URL).code == 0
        assert "connect" in str(parse_document(file, file.read_bytes()).get(()))
        return
    entry = shape.make_remote_entry(URL)
    entry |= {"name": "team"} if "name" in entry else {}
    made = parse_document(file, file.read_bytes()).put((*container, 0 if shape.has_name else "team"), entry)
    file.write_bytes(made.encode())

    (reading,) = read_tool(adapter, (scope,), local_machine(None))

    assert (reading.error, [notice.reason for notice in reading.notices]) == ("", [])
    (found,) = reading.servers
    assert (found.name, found.entry["url"]) == ("team", URL)
    assert found.entry.get("type", "http") == "http"


@pytest.mark.parametrize("value", ["Bearer abc", "Bearer ${TEAM_TOKEN}"], ids=["a text", "a variable"])
@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_a_header_is_read_back_as_it_was_given(world: World, adapter: Adapter, value: str) -> None:
    scope = place_of(world, adapter)
    if scope is None:
        return
    place, file = find_target(adapter, scope, local_machine(None))
    container = container_of(adapter, {}, place.servers or adapter.servers)
    shape, fields = remote_shape_of(adapter, container), header_fields(adapter, {"Authorization": value})
    settings(adapter, scope)
    if shape is None or fields is None:  # it gets a program that connects
        option = ("--header", f"Authorization={value}")
        assert world.run("install", adapter.name, "--scope", scope.value, "--url", URL, *option).code == 0
        assert f"Authorization: {value}" in str(parse_document(file, file.read_bytes()).get(()))
        return
    entry = shape.make_remote_entry(URL, fields)
    entry |= {"name": "team"} if "name" in entry else {}
    made = parse_document(file, file.read_bytes()).put((*container, 0 if shape.has_name else "team"), entry)
    file.write_bytes(made.encode())

    (reading,) = read_tool(adapter, (scope,), local_machine(None))

    assert (reading.error, [notice.reason for notice in reading.notices]) == ("", [])
    headers = reading.servers[0].entry["headers"]
    assert isinstance(headers, dict)
    # some tools fill in nothing for what is not set
    assert {name: text.replace(":-}", "}") for name, text in headers.items()} == {"Authorization": value}


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("claude", {"headers": {"Authorization": "Bearer ${TOKEN}"}}),
        ("cursor", {"headers": {"Authorization": "Bearer ${env:TOKEN}"}}),
        ("opencode", {"headers": {"Authorization": "Bearer {env:TOKEN}"}}),
        ("codex", {"bearer_token_env_var": "TOKEN"}),
        ("continue", {"requestOptions": {"headers": {"Authorization": "Bearer ${{ secrets.TOKEN }}"}}}),
        ("visual-studio", None),
    ],
)
def test_each_tool_has_its_own_words_for_a_variable_in_a_header(tool: str, fields: object) -> None:
    (adapter,) = (each for each in TOOLS if each.name == tool)
    assert header_fields(adapter, {"Authorization": "Bearer ${TOKEN}"}) == fields


def test_a_tool_that_takes_no_headers_starts_a_program_that_sends_them(world: World) -> None:
    ran = world.run("install", "claude-desktop", "--url", URL, "--header", "Authorization: Bearer abc")

    assert ran.code == 0, ran.err
    assert "is not known to take headers like these with a URL: it starts `dynamic-mcp connect" in ran.err
    assert "warning: the list of processes shows these headers" in ran.err


def test_headers_go_with_a_url(world: World) -> None:
    ran = world.run("install", "cursor", "--header", "Authorization: Bearer abc")
    assert (ran.code, "--header goes with --url" in ran.err, "abc" in ran.err) == (2, True, False)


def test_the_difference_hides_the_value_of_a_header(world: World) -> None:
    token = "dmcp_0123456789abcdefghijkl"
    ran = world.run("install", "cursor", "--url", URL, "--header", f"Authorization: Bearer {token}", "--dry-run")
    assert (ran.code, token in ran.out + ran.err) == (0, False)


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_an_entry_changes_from_a_command_to_a_url_and_back(world: World, adapter: Adapter) -> None:
    scope = place_of(world, adapter)
    if scope is None:
        return
    file = settings(adapter, scope, "one")
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    before = file.read_bytes()
    assert world.run("install", adapter.name, "--scope", scope.value).code == 0
    started = parse_document(file, file.read_bytes())

    assert world.run("install", adapter.name, "--scope", scope.value, "--url", URL).code == 0
    connected = str(parse_document(file, file.read_bytes()).get(()))
    assert world.run("install", adapter.name, "--scope", scope.value).code == 0

    assert str(world.output) not in connected
    assert is_like(parse_document(file, file.read_bytes()).get(()), started.get(()))
    for _ in range(3):
        assert world.run("undo", "--yes").code == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize("adapter", TOOLS, ids=lambda adapter: adapter.name)
def test_uninstall_removes_an_entry_with_a_url(world: World, adapter: Adapter) -> None:
    scope = place_of(world, adapter)
    if scope is None:
        return
    file = settings(adapter, scope, "one")
    before = parse_document(file, file.read_bytes())
    world.run("install", adapter.name, "--scope", scope.value, "--url", URL)
    file.write_bytes(parse_document(file, file.read_bytes()).put(("later",), "x").encode())

    assert world.run("uninstall", adapter.name, "--scope", scope.value).code == 0

    after = parse_document(file, file.read_bytes())
    assert is_like(after.drop(("later",)).get(()), before.get(()))


@pytest.mark.parametrize(
    ("tool", "entry"),
    [
        ("cursor", {"url": URL}),
        ("claude", {"type": "http", "url": URL, "alwaysLoad": True}),
        ("vscode", {"type": "http", "url": URL}),
        ("opencode", {"type": "remote", "url": URL, "enabled": True}),
        ("windsurf", {"serverUrl": URL}),
        ("gemini", {"httpUrl": URL}),
        ("cline", {"type": "streamableHttp", "url": URL, "timeout": 60}),
        ("copilot-cli", {"type": "http", "url": URL, "tools": ["*"], "deferTools": "never"}),
    ],
)
def test_each_tool_has_its_own_words_for_a_url(world: World, tool: str, entry: dict[str, object]) -> None:
    world.run("install", tool, "--url", URL)

    files = [
        file
        for file in world.home.rglob("*.json*")
        if URL in file.read_text(encoding="utf-8") and "state" not in file.parts
    ]
    assert any(
        entry == found for file in files for found in _objects(json.loads(file.read_text(encoding="utf-8")))
    ), files


def test_a_tool_that_takes_no_url_starts_a_program_that_connects_there(world: World) -> None:
    ran = world.run("install", "claude-desktop", "--url", URL)

    assert ran.code == 0, ran.err
    assert f"is not known to take URLs: it starts `dynamic-mcp connect {URL}`" in ran.err
    (entry,) = (
        found
        for file in world.home.rglob("claude_desktop_config.json")
        for found in _objects(json.loads(file.read_text(encoding="utf-8")))
        if "command" in found
    )
    args = entry["args"]
    assert isinstance(args, list)
    assert args[-2:] == ["connect", URL]


def test_a_url_needs_no_config(world: World) -> None:
    ran = world.run("install", "cursor", "--url", "http://127.0.0.1:8808/mcp")

    assert ran.code == 0, ran.err
    assert "Cursor now connects to `http://127.0.0.1:8808/mcp`" in ran.err


def test_imported_servers_are_replaced_by_a_url_too(world: World) -> None:
    (cursor,) = (tool for tool in TOOLS if tool.name == "cursor")
    file = settings(cursor, ToolScope.USER, "one", "two")
    before = file.read_bytes()
    assert world.run("import", "cursor", "--yes").code == 0

    assert world.run("install", "cursor", "--url", URL, "--replace", "-c", str(world.output)).code == 0

    assert named(world, cursor, ToolScope.USER) == {}
    assert world.run("undo", "--yes").code == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8808/mcp", "--url is not a URL"),
        ("http+unix://%2Frun%2Fmcp.sock/mcp", "--url is not one that AI tools take"),
    ],
)
def test_what_no_tool_can_connect_to_is_refused(world: World, url: str, words: str) -> None:
    ran = world.run("install", "cursor", "--url", url)

    assert ran.code == 2
    assert words in ran.err


def _objects(value: object) -> list[dict[str, object]]:
    """Return all objects in a JSON value."""
    match value:
        case dict():
            return [value, *(found for each in value.values() for found in _objects(each))]
        case list():
            return [found for each in value for found in _objects(each)]
    return []
