"""What is said of a change of the config: the names of what changes, and never a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.changes import ConfigChanges, find_changes
from dynamic_mcp.config.read import ConfigState, read_all

Json = Any  # whatever JSON a test writes down
SECRET = "s3cret-value"


def read(folder: Path, tree: Json, **environment: str) -> ConfigState:
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps(tree))
    return read_all(file, environment)


def changes(folder: Path, before: Json, after: Json) -> ConfigChanges:
    return find_changes(read(folder, before), read(folder, after))


def server(**members: Json) -> Json:
    return {"mcpServers": {"a": {"command": "x", **members}}}


def with_access(**members: Json) -> Json:
    return {**server(), "settings": {"access": members}}


def test_servers_are_named_that_come_go_and_change(tmp_path: Path) -> None:
    before = {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}, "c": {"url": "https://c.example/"}}}
    after = {
        "mcpServers": {
            "b": {"command": "x", "args": [SECRET], "env": {"TOKEN": SECRET}},
            "c": {"command": "y"},
            "d": {"url": "https://d.example/"},
        }
    }
    found = changes(tmp_path, before, after)

    assert (found.added, found.removed) == (("d",), ("a",))
    assert found.changed == {"b": ("args", "env"), "c": ("type",)}
    assert SECRET not in repr(found)


def test_a_variable_that_changes_is_said_to_come_from_elsewhere(tmp_path: Path) -> None:
    tree = server(args=["${A}"])
    found = find_changes(read(tmp_path, tree, A="1"), read(tmp_path, tree, A=SECRET))

    assert found.changed == {"a": ("values from elsewhere",)}
    assert SECRET not in repr(found)


def test_sections_of_the_settings_are_named(tmp_path: Path) -> None:
    after = {**server(), "settings": {"http": True, "audit": True}}

    assert changes(tmp_path, server(), after).settings == ("http", "audit")


def test_nothing_changes_where_only_the_form_of_the_file_does(tmp_path: Path) -> None:
    audited = {"settings": {"audit": True}}

    assert changes(tmp_path, {**server(), **audited}, {**audited, **server()}) == ConfigChanges()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (server(), with_access(default="deny"), ("access rules added", "`default` changed")),
        (with_access(default="deny"), server(), ("access rules removed", "`default` changed")),
        (
            with_access(roles={"dev": [{"tools": ["get"]}], "old": []}),
            with_access(roles={"dev": [{"tools": ["*"]}], "new": []}),
            ("role `dev` changed", "role `old` removed", "role `new` added"),
        ),
        (
            with_access(roles={"dev": []}, people={"ann": ["dev"]}),
            with_access(roles={"dev": []}, people={"bob": ["dev"]}),
            ("person `ann` removed", "person `bob` added"),
        ),
        (server(), server(approve=["delete_*"]), ("`approve` of server `a` changed",)),
        (server(), server(effects={"read": ["get"]}), ("`effects` of server `a` changed",)),
        (server(), {**server(), "profiles": {"small": {}}}, ("profile `small` added",)),
    ],
)
def test_changes_of_access_rules_are_said_in_words(
    tmp_path: Path, before: Json, after: Json, said: tuple[str, ...]
) -> None:
    assert changes(tmp_path, before, after).access == said
