"""The variables that a config takes from the environment."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.needs import RequiredVariables, find_required_variables


def find_variables(
    tmp_path: Path, servers: dict[str, Any], settings: dict[str, Any] | None = None, **environment: str
) -> RequiredVariables:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, "settings": settings or {}}))
    return find_required_variables(file, environment)


@pytest.mark.parametrize(
    "server",
    [
        {"command": "${A}"},
        {"command": "x", "args": ["-t", "Bearer ${A}"]},
        {"command": "x", "env": {"T": "${A:?log in}"}},
        {"command": "x", "cwd": "${A}/b"},
        {"command": "x", "env_file": "${A}.env"},
        {"url": "https://${A}/mcp"},
        {"url": "https://a.example", "headers": {"Authorization": "Bearer ${A}"}},
        {"url": "https://a.example", "oauth": {"client_secret": "${A}"}},
        {"url": "https://a.example", "oauth": {"assertion": "${A}"}},
        {
            "url": "https://a.example",
            "oauth": {
                "identity_provider": {"token_endpoint": "https://b", "client_id": "me", "client_secret": "${A}"}
            },
        },
        {"url": "https://a.example", "oauth": {"scopes": ["${A}"]}},
    ],
)
def test_a_reference_in_any_text_of_a_server_is_needed(tmp_path: Path, server: dict[str, Any]) -> None:
    assert find_variables(tmp_path, {"a": server}).names == ("A",)


def test_a_text_in_which_nothing_is_filled_in_needs_nothing(tmp_path: Path) -> None:
    server = {"command": "x", "args": ["$${A}", "$A"], "description": "${B}", "tools": {"include": ["${C}"]}}
    assert find_variables(tmp_path, {"a": server}).names == ()


def test_a_default_makes_a_variable_needed_only_while_it_is_set(tmp_path: Path) -> None:
    server = {"command": "x", "args": ["${A:-1}", "${B:-${C}}"]}
    assert find_variables(tmp_path, {"a": server}).names == ("C",)
    assert find_variables(tmp_path, {"a": server}, A="2", B="3").names == ("A", "B")


def test_what_the_variables_file_defines_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text("A=1\n")
    server = {"command": "x", "args": ["${A}", "${B}"]}
    assert find_variables(tmp_path, {"a": server}, {"variables_file": "my.env"}).names == ("B",)


def test_settings_count_and_switched_off_servers_do_not(tmp_path: Path) -> None:
    servers = {"off": {"command": "${A}", "enabled": False}, "on": {"command": "x"}}
    settings = {
        "defaults": {"env": {"T": "${B}"}},
        "search": {"embeddings": {"url": "http://localhost:1", "model": "m", "api_key": "${C}"}},
    }
    assert find_variables(tmp_path, servers, settings).names == ("B", "C")


def test_what_inherit_env_names_is_needed_where_it_is_set_and_not_set_by_the_config(tmp_path: Path) -> None:
    server = {"command": "x", "env": {"AWS_B": "1"}, "inherit_env": ["AWS_*", "ONE", "GONE"]}
    found = find_variables(tmp_path, {"a": server}, AWS_A="1", AWS_B="2", ONE="3", TWO="4", PATH="/bin")
    assert found.names == ("AWS_A", "ONE")


def test_servers_that_want_everything_are_named(tmp_path: Path) -> None:
    servers = {"a": {"command": "x"}, "b": {"command": "x", "inherit_env": "safe"}, "c": {"url": "https://a.example"}}
    assert find_variables(tmp_path, servers, {"inherit_env": "all"}) == RequiredVariables((), {"a": frozenset()})
