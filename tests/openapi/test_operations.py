"""The operations of documents: their names and arguments, what they hide, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dynamic_mcp.openapi.document import Document
from dynamic_mcp.openapi.operations import read_operations
from dynamic_mcp.openapi.service import ApiService, BadService, Selection, read_service
from dynamic_mcp.tools.schema import find_schema_error
from tests.fakes import Json
from tests.upstream.openapi.mirror import document

PUBLISHED = Path(__file__).parent / "published"
URL = "https://it.example/v1"
QUERY = {"name": "q", "in": "query", "schema": {"type": "string"}}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def service(tree: Json, **selection: Any) -> ApiService:  # Any: fields of Selection
    return read_service(json.dumps(tree).encode(), Selection("it.json", base_url=URL, **selection))


def left_out(*operations: Json, **members: Any) -> str:  # Any: JSON
    """Return why parts of a document are left out."""
    return "\n".join(f"{each.where}: {each.why}" for each in service(document(*operations, **members)).left_out)


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ({"operationId": "listPets"}, "listPets"),
        ({"operationId": "repos/get-content"}, "repos_get-content"),
        ({"operationId": "", "path": "/pets/{id}/photo", "parameters": [ID]}, "get_pets_id_photo"),
        ({"operationId": "\u2603", "path": "/a"}, "operation"),
        ({"operationId": "Pets.list (all)"}, "Pets_list_all"),
    ],
)
def test_a_tool_has_a_name_that_every_client_accepts(operation: Json, name: str) -> None:
    assert [*service(document(operation)).operations] == [name]


def test_the_same_names_are_told_apart_whatever_their_order() -> None:
    first = {"operationId": "a b", "path": "/one"}
    second = {"operationId": "a.b", "path": "/two"}
    long = {"operationId": "x" * 100, "path": "/three"}
    names = [*service(document(first, second, long)).operations]
    assert {*names} == {*service(document(long, second, first)).operations}
    assert len({*names}) == 3
    assert all(name.startswith(("a_b_", "xxx")) and len(name) <= 64 for name in names)


def test_arguments_have_the_names_of_their_parameters() -> None:
    parameters = [{**QUERY, "name": name} for name in ("q", "filter[x]", "$top", "ids[]")]
    (operation,) = service(document({"parameters": parameters})).operations.values()
    assert [each.argument for each in operation.parameters] == ["q", "filter_x", "top", "ids"]


def test_parameters_of_one_name_and_the_body_are_all_reachable() -> None:
    parameters = [ID, *({**QUERY, "name": "id", "in": place} for place in ("query", "header", "cookie"))]
    parameters += [{**QUERY, "name": "body"}, {**QUERY, "name": "path_id"}]
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": {"id": {}}}}}}
    made = service(document({"path": "/x/{id}", "method": "post", "parameters": parameters, "requestBody": body}))
    (tool,) = made.tools
    names = ["path_id_2", "query_id", "header_id", "cookie_id", "query_body", "path_id", "body"]
    assert [*tool["inputSchema"]["properties"]] == names


# --- what is hidden ----------------------------------------------------------------------------------------------


def test_what_the_config_or_a_security_scheme_fills_is_no_argument() -> None:
    schemes = {
        "a": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "b": {"type": "apiKey", "in": "query", "name": "key"},
        "c": {"type": "apiKey", "in": "cookie", "name": "session"},
        "d": {"type": "http", "scheme": "bearer"},
    }
    places = [("header", "x-key"), ("query", "key"), ("cookie", "session"), ("header", "X-Own"), ("query", "own")]
    parameters = [{**QUERY, "in": place, "name": name, "required": True} for place, name in places]
    parameters += [{**QUERY, "in": "header", "name": name} for name in ("Authorization", "Accept", "Content-Type")]
    parameters += [{**QUERY, "in": "header", "name": "key"}, {**QUERY, "in": "cookie", "name": "own"}]
    tree = document({"parameters": parameters}, components={"securitySchemes": schemes})
    (tool,) = service(tree, headers=("x-own",), query=("own",)).tools
    assert {*tool["inputSchema"]["properties"]} == {"key", "own"}


def test_keys_that_the_service_wants_and_the_config_lacks_are_named() -> None:
    schemes = {
        "key": {"type": "apiKey", "in": "query", "name": "key"},
        "token": {"type": "http", "scheme": "bearer"},
        "login": {"type": "oauth2", "flows": {}},
    }
    tree = document(
        {"security": [{"key": [], "token": []}]},
        {"path": "/b", "security": [{"token": []}, {"key": []}]},
        {"path": "/c", "security": [{}, {"token": []}]},
        {"path": "/d"},
        components={"securitySchemes": schemes},
        security=[{"login": []}],
    )
    missing = service(tree).find_unfilled()
    assert missing == {
        "the query `key` (`query`) and a token (`headers`: `Authorization`)": ["op0"],
        "a token (`headers`: `Authorization`)": ["op1"],
        "a token (`headers`: `Authorization`, or `oauth`)": ["op3"],
    }
    assert service(tree, headers=("Authorization",)).find_unfilled() == {"the query `key` (`query`)": ["op0"]}
    assert service(tree, headers=("Authorization",), query=("key",)).find_unfilled() == {}


# --- what is left out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"method": "options"}, "OPTIONS is about the connection"),
        ({"method": "trace"}, "TRACE is about the connection"),
        ({"requestBody": {"required": True, "content": {"application/json": {}}}}, "which a GET does not have"),
        ({"servers": [{"url": "https://other.example"}]}, "a server of its own"),
        ({"path": "/x/{id}"}, "`{id}`, which no parameter describes"),
        ({"parameters": [ID]}, "`id` is not in its path"),
        ({"path": "/x?a=b"}, "its path is not one, without a query"),
        ({"path": "x"}, "its path is not one"),
        ({"path": "/a/../b"}, "leads upwards"),
        ({"path": "/a/%2e%2E/b"}, "leads upwards"),
        ({"path": "/a\r\nX: 1"}, "its path is not one"),
        ({"path": "/a\\b"}, "its path is not one"),
        ({"parameters": [{"$ref": "other.json"}]}, "refers to another document"),
        ({"$ref": "resources/get.yml"}, "refers to another document"),
        ({"parameters": [{**QUERY, "in": "body", "required": True}]}, "`q` is in `body`, which is not supported"),
        ({"parameters": [{**QUERY, "in": "header", "name": "Host", "required": True}]}, "that no call may set"),
        ({"parameters": [{**QUERY, "in": "header", "name": "a: b", "required": True}]}, "that no call may set"),
        ({"parameters": [{**QUERY, "in": "cookie", "name": "a=b", "required": True}]}, "no cookie can have"),
        ({"parameters": [{**QUERY, "style": "matrix", "required": True}]}, "the style `matrix`"),
        (
            {"parameters": [{"name": "q", "in": "query", "required": True, "content": {"text/csv": {}}}]},
            "is written as `text/csv`",
        ),
        ({"parameters": [{**QUERY, "schema": {"$ref": "https://evil.example"}}]}, "refers to another document"),
        (
            {"method": "post", "requestBody": {"required": True, "content": {"application/xml": {}}}},
            "its body can only be `application/xml`",
        ),
        (
            {"method": "post", "requestBody": {"required": True, "content": {"a/b\r\nX: 1": {}}}},
            "its body can only be",
        ),
    ],
)
def test_an_operation_that_cannot_be_called_as_described_is_left_out(operation: Json, why: str) -> None:
    made = service(document(operation, {"path": "/fine"}))
    assert [*made.operations] == ["op1"]
    assert why in made.left_out[0].why


@pytest.mark.parametrize("name", ["Cookie", "X-HTTP-Method-Override", "X-Forwarded-Host", "transfer-encoding"])
def test_an_optional_parameter_that_no_call_may_give_is_left_out_alone(name: str) -> None:
    made = service(document({"parameters": [{**QUERY, "in": "header", "name": name}, QUERY]}))
    assert [*made.tools[0]["inputSchema"]["properties"]] == ["q"]
    assert made.list_reasons() == [f"GET /x: its parameter `{name}` is a header that no call may set"]
    assert made.summarize() == "1 operation is a tool"


def test_an_optional_body_of_an_unsupported_type_is_no_argument() -> None:
    made = service(document({"method": "post", "requestBody": {"content": {"application/xml": {}}}}))
    assert made.tools[0]["inputSchema"]["properties"] == {}


@pytest.mark.parametrize(
    ("types", "taken"),
    [
        (["text/plain", "application/json"], "application/json"),
        (["application/xml", "application/vnd.api+json; v=1"], "application/vnd.api+json"),
        (
            ["image/png", "multipart/form-data", "application/x-www-form-urlencoded"],
            "application/x-www-form-urlencoded",
        ),
        (["*/*"], "application/octet-stream"),
        (["text/*"], "text/plain"),
    ],
)
def test_of_several_types_of_a_body_one_is_taken(types: list[str], taken: str) -> None:
    body: Json = {"content": {each: {} for each in types}}
    (operation,) = service(document({"method": "post", "requestBody": body})).operations.values()
    assert operation.body is not None
    assert operation.body.media_type == taken


# --- selection ---------------------------------------------------------------------------------------------------

PETS = document(
    {"operationId": "list", "path": "/pets", "tags": ["pets"]},
    {"operationId": "get pet", "path": "/pets/{id}", "parameters": [ID], "tags": ["pets"]},
    {"operationId": "remove", "path": "/pets/{id}", "parameters": [ID], "method": "delete", "tags": ["pets"]},
    {"operationId": "stats", "path": "/admin/stats", "tags": ["admin"]},
    {"operationId": "other", "path": "/x", "servers": [{"url": "https://x.example"}]},
)


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["*"], [], ["list", "get_pet", "remove", "stats"]),
        (["get pet", "list"], [], ["list", "get_pet"]),
        (["get_pet"], [], ["get_pet"]),
        (["pets"], ["DELETE *"], ["list", "get_pet"]),
        (["GET /pets/*"], [], ["get_pet"]),
        (["get /pets/{id}"], [], ["get_pet"]),
        (["*"], ["* /admin/*", "remove"], ["list", "get_pet"]),
        (["l*", "adm?n"], [], ["list", "stats"]),
    ],
)
def test_operations_are_selected_by_name_path_and_tag(include: Json, exclude: Json, names: list[str]) -> None:
    made = service(PETS, include=tuple(include), exclude=tuple(exclude))
    assert [*made.operations] == names
    assert made.deselected == 4 - len(names)


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"include": ("lisst",)}, "`include` does not fit `it.json`: no operation is `lisst`; did you mean `list`?"),
        ({"exclude": ("GET /nowhere",)}, "`exclude` does not fit"),
        ({"slashes": ("none",)}, "`slashes` does not fit"),
        ({"include": ("list", "GET /x")}, "`GET /x` is left out: it has a server of its own"),
        ({"include": ("qqqqqqq",)}, "there are `list`, `get_pet`, `remove`, `stats`"),
    ],
)
def test_an_entry_that_means_no_operation_is_an_error(selection: Any, words: str) -> None:
    with pytest.raises(BadService, match=words.replace("?", r"\?")):
        service(PETS, **selection)


def test_a_body_of_any_type_is_json_unless_it_is_a_text() -> None:
    schemas = {"Pet": {"type": "object"}, "File": {"type": "string", "format": "binary"}}
    for name, kind in (("Pet", "application/json"), ("File", "application/octet-stream")):
        body = {"content": {"*/*": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
        tree = document({"method": "post", "requestBody": body}, components={"schemas": schemas})
        (operation,) = service(tree).operations.values()
        assert operation.body is not None
        assert operation.body.media_type == kind


def test_the_method_decides_what_a_tool_does() -> None:
    methods = ("get", "head", "post", "put", "patch", "delete")
    made = service(document(*({"method": each, "operationId": each} for each in methods)))
    hints = {tool["name"]: tool["annotations"] for tool in made.tools}
    assert [hints[each]["readOnlyHint"] for each in methods] == [True, True, False, False, False, False]
    assert [hints[each].get("destructiveHint") for each in methods] == [False, False, None, True, True, True]
    assert [hints[each]["idempotentHint"] for each in methods] == [True, True, False, True, False, True]


# --- whole documents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "missing"), [("github.json", 26, 1), ("figma.yaml", 17, 0), ("blockfrost.yaml", 10, 6)]
)
def test_the_operations_of_a_published_document_become_tools_with_valid_schemas(
    name: str, count: int, missing: int
) -> None:
    made = read_service((PUBLISHED / name).read_bytes(), Selection(name, base_url=URL))
    assert (len(made.tools), len(made.left_out)) == (count, missing)
    for tool in made.tools:
        schema = tool["inputSchema"]
        Draft202012Validator.check_schema(schema)
        assert not find_schema_error(schema)
        assert schema["additionalProperties"] is False
        assert "#/components" not in json.dumps(schema)
        assert "x-" not in {key[:2] for key in _keys(schema)}


def test_the_arguments_of_published_operations_are_what_their_services_take() -> None:
    made = read_service((PUBLISHED / "github.json").read_bytes(), Selection("github.json", base_url=URL))
    tools = {tool["name"]: tool["inputSchema"] for tool in made.tools}
    contents = Draft202012Validator(tools["repos_create-or-update-file-contents"])
    where = {"owner": "a", "repo": "b", "path": "c"}
    assert contents.is_valid({**where, "body": {"message": "m", "content": "eA=="}})
    assert not contents.is_valid({**where, "body": {"message": "m", "content": "eA==", "other": 1}})
    assert not contents.is_valid({**where, "body": {"message": "m"}})
    ruleset = Draft202012Validator(tools["repos_create-org-ruleset"])
    rules = [{"type": "required_linear_history"}]
    assert ruleset.is_valid({"org": "o", "body": {"name": "n", "enforcement": "active", "rules": rules}})
    assert not ruleset.is_valid({"org": "o", "body": {"name": "n", "enforcement": "loud"}})


def _keys(value: object) -> list[str]:
    """Return the keywords of a schema, at any depth, without the names of members."""
    match value:
        case dict():
            named = ("properties", "$defs", "patternProperties")
            inner = [each for key, each in value.items() if key not in (*named, "default", "enum", "const")]
            inner += [each for key in named for each in value.get(key, {}).values()]
            return [*value, *(key for each in inner for key in _keys(each))]
        case list():
            return [key for each in value for key in _keys(each)]
    return []


def test_a_path_with_control_characters_is_refused_and_shown_without_them() -> None:
    path = "/{a\nerror: \x1b[31m}"
    parameters = [{**ID, "name": path[2:-1]}, {"name": "h", "in": "header", "style": "form"}]
    made = service(document({"path": path, "parameters": parameters}))
    assert made.tools == ()
    assert all(each.isprintable() for each in made.list_reasons())
    assert any("its path is not one" in each for each in made.list_reasons())


def test_a_small_document_makes_no_endless_list_of_tools() -> None:
    properties = {f"member{number}": {"type": "string", "description": "x" * 1000} for number in range(500)}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Large"}}}}
    operations = ({"path": f"/{number}", "method": "post", "requestBody": body} for number in range(400))
    made = service(document(*operations, components={"schemas": {"Large": {"properties": properties}}}))
    assert len(json.dumps(made.tools)) <= 70 << 20
    assert "the tools of this document have more than 64 MiB" in made.left_out[0].why
    assert len(made.tools) + len(made.left_out) == 400


def test_an_operation_that_many_paths_refer_to_is_not_read_without_end() -> None:
    parameters = [{"name": f"p{number}", "in": "query"} for number in range(30_000)]
    paths = {f"/{number}": {"$ref": "#/components/pathItems/Large"} for number in range(1000)}
    large = {"get": {"parameters": parameters, "responses": {}}}
    made = read_operations(Document({**document(), "paths": paths, "components": {"pathItems": {"Large": large}}}))
    assert len(made.operations) == 16
    assert len(made.left_out) == 984
    assert "have more than 500000 parameters and responses" in made.left_out[0].why


def test_schemas_that_are_written_again_and_again_come_to_an_end() -> None:
    parts = [{"type": "object", "properties": {"a": {}}} for _ in range(2000)]
    body = {"content": {"application/json": {"schema": {"anyOf": parts}}}}
    operations = ({"path": f"/{number}", "method": "post", "requestBody": body} for number in range(200))
    made = service(document(*operations))
    assert "need more than 300000 schemas" in made.left_out[0].why
    assert len(made.tools) + len(made.left_out) == 200


# Documents as they should not be, in the manner of fuzzers: each is read without a fault of ours.
ODD: list[Json] = [
    {"paths": None},
    {"paths": []},
    {"paths": {"/x": None}},
    {"paths": {"/x": {"get": None, "post": []}}},
    {"paths": {"/x": {"$ref": "#/paths/~1x"}}},
    {"paths": {"/x": {"$ref": "other.json"}}},
    {"paths": {"/x": {"get": {"parameters": {"a": 1}}}}},
    {"paths": {"/x": {"get": {"parameters": [None, 1, "a", {}, {"in": "query"}, {"name": 5, "in": "query"}]}}}},
    {"paths": {"/x": {"get": {"parameters": [{"name": "q", "in": "query", "schema": None, "style": 5}]}}}},
    {"paths": {"/x": {"get": {"parameters": [{"name": "q", "in": "query", "content": {"application/json": None}}]}}}},
    {"paths": {"/x": {"post": {"requestBody": None}}}},
    {"paths": {"/x": {"post": {"requestBody": {"content": None}}}}},
    {"paths": {"/x": {"post": {"requestBody": {"content": {"application/json": None}}}}}},
    {"paths": {"/x": {"post": {"requestBody": {"content": {"multipart/form-data": {"schema": 5, "encoding": []}}}}}}},
    {"paths": {"/x": {"get": {"operationId": 5, "tags": "a", "summary": [], "description": {}, "deprecated": 1}}}},
    {"paths": {"/x": {"get": {"responses": [], "security": {}}}}},
    {
        "paths": {
            "/x": {"get": {"responses": {"200": None, "201": {"content": [], "headers": 1}}, "security": [None, 1]}}
        }
    },
    {"paths": {"": {"get": {}}, "/": {"get": {}}, "//": {"get": {}}, "/{}": {"get": {}}, "/{{a}}": {"get": {}}}},
    {"components": [], "info": [], "servers": 5, "security": 5, "paths": {"/x": {"get": {}}}},
    {
        "components": {"securitySchemes": {"a": None, "b": {"type": 5}, "c": {"$ref": "#/x"}}},
        "paths": {"/x": {"get": {}}},
    },
    {
        "components": {"securitySchemes": {"a": {"type": "apiKey", "in": [], "name": None}}},
        "paths": {"/x": {"get": {}}},
    },
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_document_is_read_as_far_as_it_goes(number: int) -> None:
    tree = {"openapi": "3.1.0", **ODD[number]}
    made = service(tree)
    for tool in made.tools:
        Draft202012Validator.check_schema(tool["inputSchema"])
    assert made.summarize()
    assert made.version
    assert read_operations(Document(tree)).schemes == made.schemes
