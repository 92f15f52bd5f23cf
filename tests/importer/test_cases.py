"""Every case folder: the servers, notices and variables that come of a tool's file, wherever a system keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.importer.reader import find_tool, read_file, read_tool
from dynamic_mcp.importer.tools.catalog import TOOLS
from tests.importer.machines import DIRECTORY, PLATFORMS, Case, cases, comparable, expected, notices, put, scope

CASES = [pytest.param(case, id=str(case)) for case in cases()]


@pytest.mark.parametrize("case", CASES)
def test_a_tools_file_becomes_these_servers_with_these_notices(case: Case, tmp_path: Path) -> None:
    machine = put(case, tmp_path)
    wanted = expected(case, tmp_path)
    readings = read_tool(find_tool(case.tool), (scope(case),), machine)
    found = [server for reading in readings for server in reading.servers]
    assert comparable({server.name: dict(server.entry) for server in found}) == comparable(wanted["servers"])
    assert sorted(comparable(notices(readings))) == sorted(comparable(wanted.get("notices", [])))
    assert sorted({name for server in found for name in server.exports}) == sorted(wanted.get("exports", []))
    assert [reading.error for reading in readings if reading.error] == []


@pytest.mark.parametrize("case", CASES)
def test_what_was_read_is_a_config_that_loads(case: Case, tmp_path: Path) -> None:
    machine = put(case, tmp_path)
    readings = read_tool(find_tool(case.tool), (scope(case),), machine)
    file = tmp_path / "dynamic-mcp.json"
    servers = {server.name: {**server.entry, "enabled": True} for each in readings for server in each.servers}
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    assert [group.name for group in read(file, {}).groups] == list(servers)


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_is_named_is_understood_without_its_tool(case: Case, tmp_path: Path) -> None:
    machine = put(case, tmp_path)
    with_tool = read_tool(find_tool(case.tool), (scope(case),), machine)
    reading = read_file(tmp_path / case.place, machine)
    assert reading.error == ""
    assert reading.source.tool == "file"
    if case.folder.name not in ("local", "odd-names") and len(with_tool) == 1:
        assert {server.name for server in reading.servers} == {server.name for server in with_tool[0].servers}


def test_every_tool_has_a_case_in_each_scope_and_on_each_system_that_it_has_files_on() -> None:
    covered = {(case.tool, case.expected["scope"], case.platform) for case in cases()}
    for adapter in TOOLS:
        for place in adapter.places:
            if not place.borrowed:
                for platform in PLATFORMS:
                    is_there = platform in place.systems
                    assert not is_there or (adapter.name, place.scope.value, platform) in covered


def test_every_case_says_where_its_shape_is_from() -> None:
    folders = [folder for tool in DIRECTORY.iterdir() for folder in tool.iterdir()]
    assert folders
    assert all(json.loads((folder / "expected.json").read_text(encoding="utf-8"))["source"] for folder in folders)
