"""Whether a tool only reads, by what is known of it."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.resolved import CommandLine
from dynamic_mcp.packs import library
from dynamic_mcp.policy.classify import access_of, classify
from dynamic_mcp.upstream.cli.transport import make_tool


def tool(
    description: str = "", *arguments: str, annotations: object = None, choices: dict[str, list[str]] | None = None
) -> Raw:
    properties: dict[str, object] = {name: {} for name in arguments}
    properties |= {name: {"enum": each} for name, each in (choices or {}).items()}
    members = {"description": description, "inputSchema": {"type": "object", "properties": properties}}
    return Raw(json.dumps(members | ({} if annotations is None else {"annotations": annotations})).encode())


READERS = [
    "get_issue",
    "list-files",
    "searchCode",
    "github_list_commits",
    "users.get",
    "release_list",
    "pull_request_read",
    "API-retrieve-a-page",
    "get_release_notes",
    "buscar_clientes",
    "dateien_auflisten",
    "obtenir_page",
]
WRITERS = [
    "create_issue",
    "delete-file",
    "pushFiles",
    "github_merge_pull_request",
    "users.create",
    "list_delete",
    "search_and_replace",
    "get_or_create_user",
    "find_and_merge",
    "mark_all_notifications_read",
    "set_status",
    "list_share",
    "run_query",
    "eliminar_cliente",
    "datei_loeschen",
    "frobnicate",
    "getuser",
    "",
    "_",
]


@pytest.mark.parametrize("name", READERS)
def test_a_verb_of_reading_in_the_name_makes_a_reader(name: str) -> None:
    assert classify(name, tool()).access == "read"


@pytest.mark.parametrize("name", WRITERS)
def test_a_name_that_does_not_say_so_makes_no_reader(name: str) -> None:
    assert classify(name, tool()).access == "write"


@pytest.mark.parametrize("description", ["Read-only, does not modify anything.", "Gets a user.", "List the files."])
@pytest.mark.parametrize("name", ["delete_file", "execute_sql", "update_or_get"])
def test_no_description_makes_a_reader_of_a_tool_that_is_named_as_a_writer(name: str, description: str) -> None:
    assert classify(name, tool(description)).access == "write"


@pytest.mark.parametrize(
    "description",
    [
        "Creates or updates the report.",
        "Gets the report and deletes it.",
        "Get or set the language.",
        "This tool removes everything",
        "删除文件",
    ],
)
def test_a_description_that_says_so_makes_a_writer(description: str) -> None:
    assert classify("get_report", tool(description)).access == "write"


@pytest.mark.parametrize(
    "description", ["Returns the weather.", "This tool shows a map.", "查询天气", "Is read-only."]
)
def test_the_description_decides_where_the_name_has_no_verb(description: str) -> None:
    assert classify("weather", tool(description)).access == "read"


def test_a_tool_that_is_only_allowed_in_read_only_mode_is_not_read_only() -> None:
    assert classify("weather", tool("Not available in read-only mode.")).access == "write"


def test_arguments_that_only_writers_have_make_a_writer() -> None:
    assert classify("get_report", tool("Gets a report.", "force")).access == "write"
    assert classify("query", tool("Queries the database.", "sql")).access == "write"
    assert classify("get_report", tool("Gets a report.", "query", "limit", "cursor")).access == "read"


def test_a_choice_of_what_to_do_decides() -> None:
    assert classify("get_item", tool(choices={"action": ["get", "delete"]})).access == "write"
    assert classify("get_item", tool(choices={"action": ["get", "list"]})).access == "read"
    assert classify("pipelines_build", tool(choices={"action": ["get_status", "list"]})).access == "read"


def test_annotations_that_are_not_trusted_count_only_for_writing() -> None:
    config = ToolEffects()
    assert access_of("frobnicate", tool(annotations={"readOnlyHint": True}), config).access == "write"
    assert access_of("delete_file", tool(annotations={"readOnlyHint": True}), config).access == "write"
    assert access_of("get_file", tool(annotations={"readOnlyHint": False}), config).access == "write"
    assert access_of("get_file", tool(annotations={"destructiveHint": True}), config).access == "write"
    assert access_of("get_file", tool(annotations={"readOnlyHint": "no"}), config).access == "read"


def test_annotations_that_are_trusted_decide() -> None:
    config = ToolEffects(trusts_annotations=True)
    said = access_of("frobnicate", tool(annotations={"readOnlyHint": True}), config)
    assert (said.access, said.source) == ("read", "annotations")
    assert access_of("get_file", tool(annotations={"readOnlyHint": False}), config).access == "write"
    assert access_of("f", tool(annotations={"readOnlyHint": True, "destructiveHint": True}), config).access == "write"
    assert access_of("frobnicate", tool(annotations={"title": "X"}), config).source == "classifier"


def test_the_config_comes_before_annotations_and_write_comes_before_read() -> None:
    config = ToolEffects(read=("*_report", "both"), write=("delete_*", "both"), trusts_annotations=True)
    writer = tool(annotations={"readOnlyHint": False})
    reader = tool(annotations={"readOnlyHint": True})
    assert access_of("drop_report", writer, config).access == "read"
    assert access_of("delete_report", reader, config).access == "write"
    assert access_of("both", reader, config).access == "write"
    assert access_of("both", reader, config).source == "config"


def test_another_spelling_of_a_name_is_still_a_writer_and_no_reader() -> None:
    config = ToolEffects(read=("frob",), write=("get_secret",))
    assert access_of("GET_secret", tool(), config).access == "write"
    assert access_of("FROB", tool(), config).access == "write"


@pytest.mark.parametrize(
    "raw", [b"null", b"[]", b'"x"', b"{", b'{"inputSchema": 1, "annotations": [], "description": 5}']
)
def test_a_definition_that_is_not_valid_leaves_the_name(raw: bytes) -> None:
    assert classify("get_file", Raw(raw)).access == "read"
    assert classify("frobnicate", Raw(raw)).access == "write"


def test_the_evidence_is_short_whatever_the_server_sends() -> None:
    found = classify("a" * 10_000, tool("create " * 10_000, choices={"action": ["delete_" + "x" * 5000]}))
    assert found.access == "write"
    assert all(len(text) < 200 for text in found.evidence)


@pytest.mark.parametrize("effect", ["read", "write", "destructive", "unknown"])
def test_a_command_of_a_program_reads_only_if_its_pack_says_so(effect: str) -> None:
    pack = {"name": "it", "program": "it", "description": "It.", "commands": []}
    command = {"name": "get", "description": "Gets.", "effect": effect}
    (made,) = library.decode(json.dumps({**pack, "commands": [command]}).encode()).commands
    line = CommandLine("it", "it", "It.", (made,), {})

    found = access_of("it_get", Raw(json.dumps(make_tool(line, made)).encode()), ToolEffects(trusts_annotations=True))

    assert (found.access, found.source) == ("read" if effect == "read" else "write", "annotations")
