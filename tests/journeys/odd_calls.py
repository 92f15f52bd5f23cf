"""Odd calls of published servers: what models write that does not fit a schema, made from calls that fit it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Json = Any  # whatever JSON a test writes down

# In the arguments and options of servers: the folder that one of them works in, and a browser, if there is any.
FOLDER = "{folder}"
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
BROWSER = "{browser}"
_OF_ANOTHER_TYPE: Mapping[str, Json] = {"string": 7, "number": "many", "integer": "many", "boolean": "perhaps"}


class PublishedServer(NamedTuple):
    """A server as it is published: how it is started, and a call that fits the schema of each tool to try.

    `volatile` matches what two runs of it say differently.
    """

    package: str
    command: str
    calls: Mapping[str, Json]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    volatile: str = r"(?!)"

    def config(self, folder: Path) -> dict[str, Json]:
        """Return the config of a server that works in a folder, or skip the test."""
        modules = os.environ.get("DYNAMIC_MCP_TEST_NODE_MODULES", "")
        is_python = not self.package.startswith("@")
        path = shutil.which(self.command) if is_python else shutil.which(self.command, path=f"{modules}/.bin")
        if path is None and is_python:
            pytest.skip(f"the command `{self.command}` of `{self.package}` is not on the PATH of this machine")
        if path is None:
            pytest.skip(f"DYNAMIC_MCP_TEST_NODE_MODULES does not name a folder with `{self.package}`")
        return {
            "command": path,
            "args": [placed(each, folder).replace(BROWSER, _browser()) for each in self.args],
            "cwd": str(folder),
            "env": {name: placed(value, folder) for name, value in self.env.items()},
        }

    def mask(self, text: str, folder: Path) -> str:
        """Return a text without what differs between two runs."""
        plain = _COLOURS.sub("", text)  # which depend on the environment
        return re.sub(self.volatile, "~", plain.replace(str(folder), FOLDER))


class OddCall(NamedTuple):
    """A call that does not fit, or only nearly; `oddity` says how it came out of one that does."""

    tool: str
    oddity: str
    arguments: dict[str, Json]


def placed(value: Json, folder: Path) -> Json:
    """Return arguments, or a text, with the folder in them."""
    return json.loads(json.dumps(value).replace(FOLDER, str(folder)))


def _browser() -> str:
    """Return a browser's program, or a path without one: a server says then that it cannot start it."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), "/no/browser/here")


def odd_calls(tools: Sequence[Mapping[str, Json]], calls: Mapping[str, Json]) -> list[OddCall]:
    """Return the odd calls that come out of a server's schemas and of these calls."""
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    assert calls.keys() <= schemas.keys()
    found = [OddCall(name, *each) for name, fitting in calls.items() for each in _oddities(schemas[name], fitting)]
    return [each for number, each in enumerate(found) if each not in found[:number]]


def _oddities(schema: Mapping[str, Json], fitting: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield each way in which a call can be odd, with its arguments."""
    yield "as it should be", {**fitting}
    yield "an extra property", {**fitting, "reason": "because"}
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        left_out = "with a default" if "default" in properties[name] else "without a default"
        yield f"`{name}` {left_out} is missing", {key: fitting[key] for key in fitting if key != name}
    for name, value in fitting.items():
        for oddity, odd in _odd_values(properties.get(name, {}), value):
            yield f"`{name}` is {oddity}", {**fitting, name: odd}


def _odd_values(schema: Mapping[str, Json], value: Json) -> Iterator[tuple[str, Json]]:
    yield "null", None
    if (wrong := _OF_ANOTHER_TYPE.get(str(schema.get("type")))) is not None:
        yield "of another type", wrong
    match value:
        case bool() | int() | float():
            yield "a value in a string", json.dumps(value)
        case dict() | list():
            yield "JSON in a string", json.dumps(value)
        case str() if "enum" in schema:
            yield "in another case", value.swapcase()
            yield "no value of the enum", "something else"


PLAYWRIGHT = PublishedServer(
    "@playwright/mcp",
    "playwright-mcp",
    {
        "browser_take_screenshot": {"type": "png", "fullPage": False},
        "browser_console_messages": {"level": "info", "all": True},
        "browser_network_requests": {"static": False},
        "browser_navigate": {"url": "about:blank"},
        "browser_resize": {"width": 800, "height": 600},
        "browser_tabs": {"action": "list"},
        "browser_wait_for": {"time": 0.01},
        "browser_evaluate": {"function": "() => 1"},
        "browser_press_key": {"key": "a"},
        "browser_snapshot": {"depth": 2},
        "browser_click": {"target": "e1", "button": "left", "modifiers": ["Shift"]},
        "browser_fill_form": {"fields": [{"target": "e1", "name": "n", "type": "textbox", "value": "v"}]},
    },
    args=("--headless", "--isolated", "--no-sandbox", "--executable-path", BROWSER, "--output-dir", FOLDER),
    volatile=r"\d+",
)
DESKTOP_COMMANDER = PublishedServer(
    "@wonderwhy-er/desktop-commander",
    "desktop-commander",
    {
        "get_config": {"origin": "llm"},
        "read_file": {"path": "{folder}/a.txt", "length": 2},
        "list_sessions": {},
    },
    args=("--no-onboarding",),
    env={"HOME": FOLDER},  # where it keeps its config
    volatile=r"(?s)(?<=Current configuration:).*",
)
EVERYTHING = PublishedServer(
    "@modelcontextprotocol/server-everything",
    "mcp-server-everything",
    {
        "echo": {"message": "hello"},
        "get-sum": {"a": 1, "b": 2.5},
        "get-annotated-message": {"messageType": "success", "includeImage": False},
        "get-structured-content": {"location": "Chicago"},
        "get-resource-links": {"count": 2},
        "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
        "get-tiny-image": {},
    },
    args=("stdio",),
    volatile=r"[\d:]+ ?[AP]M",
)
FILESYSTEM = PublishedServer(
    "@modelcontextprotocol/server-filesystem",
    "mcp-server-filesystem",
    {
        "read_text_file": {"path": "{folder}/a.txt", "head": 1},
        "read_multiple_files": {"paths": ["{folder}/a.txt"]},
        "write_file": {"path": "{folder}/b.txt", "content": "b"},
        "edit_file": {
            "path": "{folder}/c.txt",
            "edits": [{"oldText": "c", "newText": "c"}],
            "dryRun": True,
        },
        "list_directory_with_sizes": {"path": "{folder}/empty", "sortBy": "size"},
        "search_files": {"path": FOLDER, "pattern": "a*", "excludePatterns": ["b*"]},
        "get_file_info": {"path": "{folder}/empty"},
        "list_allowed_directories": {},
    },
    args=(FOLDER,),
    volatile=r"(created|modified|accessed): .*",
)
MEMORY = PublishedServer(
    "@modelcontextprotocol/server-memory",
    "mcp-server-memory",
    {
        "create_entities": {"entities": [{"name": "Ada", "entityType": "person", "observations": ["one"]}]},
        "create_relations": {"relations": [{"from": "Ada", "to": "Bob", "relationType": "knows"}]},
        "add_observations": {"observations": [{"entityName": "Ada", "contents": ["two"]}]},
        "search_nodes": {"query": "Ada"},
        "open_nodes": {"names": ["Ada"]},
        "read_graph": {},
        "delete_entities": {"entityNames": ["Bob"]},
    },
    env={"MEMORY_FILE_PATH": "{folder}/memory.jsonl"},
)
SEQUENTIAL_THINKING = PublishedServer(
    "@modelcontextprotocol/server-sequential-thinking",
    "mcp-server-sequential-thinking",
    {
        "sequentialthinking": {
            "thought": "first",
            "nextThoughtNeeded": True,
            "thoughtNumber": 1,
            "totalThoughts": 2,
            "isRevision": False,
            "branchId": "a",
        }
    },
    volatile=r'"thoughtHistoryLength": \d+',
)
TIME = PublishedServer(
    "mcp-server-time",
    "mcp-server-time",
    {
        "get_current_time": {"timezone": "Asia/Tokyo"},
        "convert_time": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
    },
    args=("--local-timezone", "UTC"),
    volatile=r"T[\d:]+",
)
GIT = PublishedServer(
    "mcp-server-git",
    "mcp-server-git",
    {
        "git_status": {"repo_path": FOLDER},
        "git_diff_unstaged": {"repo_path": FOLDER, "context_lines": 3},
        "git_log": {"repo_path": FOLDER, "max_count": 2, "start_timestamp": "2020-01-01"},
        "git_add": {"repo_path": FOLDER, "files": ["a.txt"]},
        "git_branch": {"repo_path": FOLDER, "branch_type": "local"},
        "git_show": {"repo_path": FOLDER, "revision": "HEAD"},
    },
    args=("--repository", FOLDER),
    volatile=r"\b[0-9a-f]{7,40}\b|Date: .*|input_value=.*",
)
SERVERS = (PLAYWRIGHT, DESKTOP_COMMANDER, EVERYTHING, FILESYSTEM, MEMORY, SEQUENTIAL_THINKING, TIME, GIT)
