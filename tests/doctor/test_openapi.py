"""What `check` says of services with an OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Finding, Level
from tests.fakes import Json
from tests.upstream.openapi.mirror import document

TREE = document(
    {"operationId": "list"},
    {"operationId": "add", "method": "post", "requestBody": {"required": True, "content": {"application/xml": {}}}},
    {"operationId": "set", "method": "put", "requestBody": {"required": True, "content": {"application/xml": {}}}},
    {"operationId": "elsewhere", "path": "/y", "servers": [{"url": "https://y.example"}]},
    {"operationId": "stats", "path": "/stats", "tags": ["admin"]},
    servers=[{"url": "https://it.example"}],
    security=[{"key": []}],
    components={"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}},
)


def findings(folder: Path, **entry: Json) -> list[Finding]:
    """Return what is found in a config with one service, besides the file itself."""
    (folder / "it.json").write_text(json.dumps(TREE))
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": {"openapi": "it.json", **entry}}}))
    _, found = check_file(file, {})
    return [each for each in found if each.where.startswith("mcpServers")]


def test_it_says_how_many_operations_are_tools_and_why_others_are_not(tmp_path: Path) -> None:
    found = findings(tmp_path, exclude=["admin"], query={"api_key": "${K:-}"})
    assert [(each.level, each.what) for each in found] == [
        (Level.OK, "1 operation is a tool; 1 not selected; 3 left out"),
        (
            Level.NOTE,
            "left out: POST /x and 1 more: its body can only be `application/xml`, which is not supported",
        ),
        (
            Level.NOTE,
            "left out: GET /y: it has a server of its own; only that of the whole document is called",
        ),
    ]


def test_a_key_that_the_config_lacks_is_a_warning_with_its_field(tmp_path: Path) -> None:
    (warning,) = [each for each in findings(tmp_path) if each.level is Level.WARNING]
    assert warning.where == "mcpServers.it"
    assert warning.what == "`list`, `stats` need the query `api_key` (`query`), which the config does not set"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"include": ["lst"]}, "no operation is `lst`; did you mean `list`"),
        ({"include": ["elsewhere"]}, "`elsewhere` is left out: it has a server of its own"),
        ({"openapi": "none.json"}, "cannot be read"),
        ({"openapi": "old.json", "url": "https://it.example"}, "is Swagger 2.0"),
    ],
)
def test_a_document_that_does_not_fit_is_an_error(tmp_path: Path, entry: Json, words: str) -> None:
    (tmp_path / "old.json").write_text('{"swagger": "2.0"}')
    (error,) = [each for each in findings(tmp_path, **entry) if each.level is Level.ERROR]
    assert words in error.what


def test_a_document_at_a_url_is_not_fetched(tmp_path: Path) -> None:
    found = findings(tmp_path, openapi="http://127.0.0.1:1/openapi.json?key=hush-hush")
    assert "hush" not in str(found)
    (note,) = [each for each in found if each.level is not Level.WARNING]
    assert note.level is Level.NOTE
    assert "read from `http://127.0.0.1:1/openapi.json` when the server connects" in note.what


def test_a_secret_in_plain_text_is_found_in_a_query_too(tmp_path: Path) -> None:
    found = findings(tmp_path, query={"api_key": "0123456789abcdef"})
    assert [each.where for each in found if "secret in plain text" in each.what] == ["mcpServers.it.query.api_key"]
