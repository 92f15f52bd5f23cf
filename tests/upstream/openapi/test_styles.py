"""How values are written, by the tables of OpenAPI 3.1 ("Style Examples"), and which ones are refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.openapi.document import Document
from dynamic_mcp.openapi.service import Selection, read_service
from dynamic_mcp.upstream.openapi.request import HttpRequest, build_request, open_members
from dynamic_mcp.upstream.openapi.styles import UnsendableArguments
from dynamic_mcp.upstream.openapi.transport import make_call_form
from tests.fakes import Json
from tests.upstream.openapi.mirror import document

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


def build(operation: Json, arguments: Json, *, slashes: tuple[str, ...] = ()) -> HttpRequest:
    """Return the request of a call of the only operation; an argument may be the bytes of its JSON."""
    tree = json.dumps(document({"operationId": "it", **operation})).encode()
    form = make_call_form(read_service(tree, Selection("it.json", "https://it.example", slashes=slashes)), "it")
    texts = {name: each if isinstance(each, bytes) else json.dumps(each).encode() for name, each in arguments.items()}
    return build_request(form, {name: Raw(text) for name, text in texts.items()})


def parameter(place: str, style: str, explode: Any, **more: Any) -> Json:  # Any: JSON
    path = "/x/{color}" if place == "path" else "/x"
    properties = {"properties": dict.fromkeys(("R", "G", "B"), True)}
    written = {"name": "color", "in": place, "style": style, "schema": properties, **more}
    written |= {} if explode is None else {"explode": explode}
    return {"path": path, "parameters": [{**written, "required": True} if place == "path" else written]}


DEEP = "/x?color%5Ba%5D%5Bb%5D%5B0%5D=1&color%5Ba%5D%5Bb%5D%5B1%5D%5Bc%5D=true"
BLUE, COLORS, RGB = "blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("place", "style", "explode", "value", "written"),
    [
        ("path", "simple", None, BLUE, "/x/blue"),
        ("path", "simple", False, COLORS, "/x/blue,black,brown"),
        ("path", "simple", True, COLORS, "/x/blue,black,brown"),
        ("path", "simple", False, RGB, "/x/R,100,G,200,B,150"),
        ("path", "simple", True, RGB, "/x/R=100,G=200,B=150"),
        ("path", "label", False, BLUE, "/x/.blue"),
        ("path", "label", False, COLORS, "/x/.blue,black,brown"),
        ("path", "label", True, COLORS, "/x/.blue.black.brown"),
        ("path", "label", False, RGB, "/x/.R,100,G,200,B,150"),
        ("path", "label", True, RGB, "/x/.R=100.G=200.B=150"),
        ("path", "matrix", False, BLUE, "/x/;color=blue"),
        ("path", "matrix", False, COLORS, "/x/;color=blue,black,brown"),
        ("path", "matrix", True, COLORS, "/x/;color=blue;color=black;color=brown"),
        ("path", "matrix", False, RGB, "/x/;color=R,100,G,200,B,150"),
        ("path", "matrix", True, RGB, "/x/;R=100;G=200;B=150"),
        ("query", "form", None, "", "/x?color="),
        ("query", "form", None, BLUE, "/x?color=blue"),
        ("query", "form", None, COLORS, "/x?color=blue&color=black&color=brown"),
        ("query", "form", False, COLORS, "/x?color=blue,black,brown"),
        ("query", "form", False, RGB, "/x?color=R,100,G,200,B,150"),
        ("query", "form", None, RGB, "/x?R=100&G=200&B=150"),
        ("query", "spaceDelimited", None, COLORS, "/x?color=blue%20black%20brown"),
        ("query", "pipeDelimited", None, COLORS, "/x?color=blue%7Cblack%7Cbrown"),
        ("query", "spaceDelimited", None, RGB, "/x?color=R%20100%20G%20200%20B%20150"),
        ("query", "deepObject", True, RGB, "/x?color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("query", "deepObject", True, {"a": {"b": [1, {"c": True}]}}, DEEP),
        ("query", "form", None, [], "/x"),
        ("query", "form", False, [], "/x"),
        ("query", "form", None, None, "/x"),
        ("query", "form", None, True, "/x?color=true"),
        ("query", "form", None, "a&b=c d/\u00e9", "/x?color=a%26b%3Dc%20d%2F%C3%A9"),
    ],
)  # fmt: skip
def test_each_style_is_written_as_the_specification_shows(
    place: str, style: str, explode: bool | None, value: Any, written: str
) -> None:
    assert build(parameter(place, style, explode), {"color": value}).target == written


def test_headers_and_cookies_are_written_as_the_specification_shows() -> None:
    assert build(parameter("header", "simple", False), {"color": RGB}).headers == (("color", "R,100,G,200,B,150"),)
    assert build(parameter("header", "simple", True), {"color": RGB}).headers == (("color", "R=100,G=200,B=150"),)
    assert build(parameter("header", "simple", False), {"color": COLORS}).headers == (("color", "blue,black,brown"),)
    assert build(parameter("cookie", "form", False), {"color": COLORS}).cookies == (("color", "blue,black,brown"),)
    assert build(parameter("cookie", "form", None), {"color": "a;b"}).cookies == (("color", "a%3Bb"),)


@pytest.mark.parametrize("number", ["1.10", "1e400", "12345678901234567890.123456789", "-0.0", "100"])
def test_a_number_keeps_its_digits(number: str) -> None:
    assert build(parameter("query", "form", None), {"color": number.encode()}).target == f"/x?color={number}"


def test_a_parameter_in_json_is_one_value() -> None:
    for place, path in (("query", "/x"), ("path", "/x/{color}")):
        written = {"name": "color", "in": place, "required": True, "content": {"application/json": {}}}
        operation = {"path": path, "parameters": [written]}
        target = build(operation, {"color": b'{"R": 1.50}'}).target
        assert target == {"query": "/x?color=%7B%22R%22%3A1.50%7D", "path": "/x/%7B%22R%22%3A1.50%7D"}[place]


@pytest.mark.parametrize(
    ("place", "style", "value", "words"),
    [
        ("path", "simple", "", "must not be empty"),
        ("path", "simple", [], "must not be empty"),
        ("path", "simple", None, "is missing"),
        ("path", "simple", "..", "must not be `.` or `..`"),
        ("path", "label", ".", "must not be `.` or `..`"),
        ("path", "simple", "%2e%2e", "must not be `.` or `..`"),
        ("path", "simple", "a/b", "must not have `/`"),
        ("path", "simple", "a%252fb", "must not have `/`"),
        ("path", "simple", "a\\b", "must not have `/`"),
        ("path", "simple", "a\nb", "control characters"),
        ("path", "simple", "a%0ab", "control characters"),
        ("path", "simple", [["a"]], "must be a text, a number, or true or false"),
        ("path", "label", ["", "."], "must not be empty"),
        ("query", "form", [None], "must be a text"),
        ("query", "form", {"X": 1}, "must not have the member `X`"),
        ("query", "spaceDelimited", ["a b"], "must not have ` ` in an item"),
        ("query", "pipeDelimited", ["a|b"], "must not have `|` in an item"),
        ("query", "deepObject", {"a]": 1}, "`[` or `]`"),
        ("query", "deepObject", {"": 1}, "without a name"),
        ("header", "simple", "a\r\nb", "printable ASCII"),
        ("header", "simple", "\u00e9", "printable ASCII"),
        ("header", "simple", " a", "must not begin or end with a space"),
        ("header", "simple", ["a,b"], "must not have `,`"),
        ("query", "form", "\ud800", "is not valid Unicode"),
    ],
)
def test_a_value_that_would_mean_something_else_is_refused(place: str, style: str, value: Any, words: str) -> None:
    explode = style in ("form", "deepObject")
    with pytest.raises(UnsendableArguments) as caught:
        build(parameter(place, style, explode), {"color": value})
    assert words in str(caught.value)
    assert str(caught.value).startswith("`color` ")


def test_parts_of_one_segment_make_no_dots_together() -> None:
    parameters = [{"name": name, "in": "path", "required": True, "schema": {}, "style": "label"} for name in "ab"]
    operation = {"path": "/x/{a}{b}", "parameters": [{**each, "style": "simple"} for each in parameters]}
    assert build(operation, {"a": "1", "b": "2"}).target == "/x/12"
    for a, b in (("%2", "e%2e"), ("%2", "f"), ("%5", "c"), ("%252", "f")):
        with pytest.raises(UnsendableArguments, match="the path of something else together"):
            build(operation, {"a": a, "b": b})
    fixed = {"path": "/x/.{a}", "parameters": [{**parameters[0], "style": "simple"}]}
    assert build(fixed, {"a": "b"}).target == "/x/.b"


def test_slashes_are_allowed_where_the_config_says_so() -> None:
    operation = parameter("path", "simple", None)
    assert build(operation, {"color": "src/a b.py"}, slashes=("it",)).target == "/x/src%2Fa%20b.py"
    for path in ("../a", "a/../b", "a//b", "/a", "a/", "a/%2e%2e/b", "a\\..\\b"):
        with pytest.raises(UnsendableArguments):
            build(operation, {"color": path}, slashes=("it",))


def test_members_that_become_fields_are_those_of_the_schema_and_no_others() -> None:
    pet = {"type": "object", "properties": {"name": {}, "key": {}, "q": {}}}
    color = {"name": "color", "in": "query", "schema": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {}]}}
    closed = {**color, "schema": {"allOf": [{"$ref": "#/components/schemas/Pet"}]}}
    components = {
        "schemas": {"Pet": pet},
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "key"}},
    }

    def target(parameter: Json, value: Json) -> str:
        operation = {"operationId": "it", "parameters": [parameter, {"name": "q", "in": "query", "schema": {}}]}
        tree = json.dumps(document(operation, components=components)).encode()
        form = make_call_form(read_service(tree, Selection("it.json", "https://it.example")), "it")
        return build_request(form, {"color": Raw(json.dumps(value).encode())}).target

    assert target(closed, {"name": "a"}) == target(color, {"name": "a"}) == "/x?name=a"
    assert target(color, {"other": "a"}) == "/x?other=a"
    for parameter, member in ((closed, "other"), (closed, "key"), (closed, "q"), (color, "key"), (color, "q")):
        with pytest.raises(UnsendableArguments, match=f"must not have the member `{member}`"):
            target(parameter, {member: "a"})


def test_members_of_schemas_that_refer_to_each_other_in_billions_of_ways_are_found() -> None:
    parts = {f"S{number}": {"allOf": [{"$ref": f"#/S{number + 1}"}] * 10} for number in range(9)}
    tree = Document(
        {"openapi": "3.1.0", **parts, "S9": {"properties": {"a": {}}}, "Round": {"allOf": [{"$ref": "#/Round"}]}}
    )
    assert open_members(tree, {"$ref": "#/S0"}) == frozenset({"a"})
    assert open_members(tree, {"$ref": "#/Round"}) == frozenset()


@pytest.mark.parametrize("depth", [600, 900, 100_000])
def test_what_is_nested_too_deeply_to_be_written_is_refused(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    written = {"name": "q", "in": "query", "content": {"application/json": {"schema": {}}}}
    form = {"method": "post", "requestBody": {"content": {MULTIPART: {"schema": {}}}}}
    for operation, arguments in (({"parameters": [written]}, {"q": deep}), (form, {"body": b'{"a":' + deep + b"}"})):
        try:
            build(operation, arguments)
        except UnsendableArguments as exc:
            assert re.search("nested too deeply|cannot be read", str(exc))  # noqa: PT017 - or it is written, see below
        else:
            assert depth < 1000  # which newer versions of Python can write


def test_an_address_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnsendableArguments, match="more than 64000 bytes"):
        build(parameter("query", "form", None), {"color": "a" * 70_000})


# --- bodies ------------------------------------------------------------------------------------------------------


def body(media_type: str, value: Any, **described: Any) -> tuple[str, bytes]:  # Any: JSON
    """Return the content type and the bytes of a body."""
    operation = {"method": "post", "requestBody": {"required": True, "content": {media_type: described}}}
    made = build(operation, {"body": value}).body
    assert made is not None
    return made.content_type, made.data


def test_json_is_sent_as_it_is() -> None:
    assert body("application/json", {"a": [1, None]}) == ("application/json", b'{"a": [1, null]}')
    assert body("application/merge-patch+json", [])[0] == "application/merge-patch+json"


def test_a_form_has_each_member_by_its_encoding() -> None:
    value = {
        "a": "x&y=z +\u00e9",
        "list": [1, 2],
        "deep": {"k": {"l": [True]}},
        "json": {"k": 1},
        "none": None,
        "joined": ["a", "b"],
    }
    encoding = {"deep": {"style": "deepObject", "explode": True}, "joined": {"style": "form", "explode": False}}
    kind, data = body(FORM, value, encoding=encoding)
    assert kind == FORM
    assert data.decode().split("&") == [
        "a=x%26y%3Dz%20%2B%C3%A9",
        "list=1",
        "list=2",
        "deep%5Bk%5D%5Bl%5D%5B0%5D=true",
        "json=%7B%22k%22%3A1%7D",
        "joined=a,b",
    ]


def part(headers: str, data: bytes) -> bytes:
    return f"Content-Disposition: form-data; {headers}\r\n\r\n".encode() + data + b"\r\n"


def test_a_multipart_form_has_a_part_for_each_value() -> None:
    file = {"type": "string", "format": "binary"}
    schema = {"properties": {"file": file, "more": {"type": "array", "items": file}}}
    value = {"file": "AAEC", "more": ["QQ==", "Qg=="], "note": "hi", "meta": {"a": 1.5}, 'a"\r\nb': "c"}
    kind, data = body(MULTIPART, value, schema=schema, encoding={"file": {"contentType": "image/png, image/gif"}})
    boundary = kind.partition("boundary=")[2]
    more = 'name="more"; filename="more"\r\nContent-Type: application/octet-stream'
    assert data.removesuffix(f"--{boundary}--\r\n".encode()).split(f"--{boundary}\r\n".encode()) == [
        b"",
        part('name="file"; filename="file"\r\nContent-Type: image/png', b"\x00\x01\x02"),
        part(more, b"A"),
        part(more, b"B"),
        part('name="note"', b"hi"),
        part('name="meta"\r\nContent-Type: application/json', b'{"a":1.5}'),
        part('name="a%22%0D%0Ab"', b"c"),
    ]


def test_texts_and_bytes_are_bodies() -> None:
    assert body("text/plain", "a\u00e9") == ("text/plain; charset=utf-8", "a\u00e9".encode())
    assert body("image/png", "AAEC") == ("image/png", b"\x00\x01\x02")


@pytest.mark.parametrize(
    ("media_type", "value", "words"),
    [
        (FORM, [], "`body` must be an object"),
        (MULTIPART, "x", "`body` must be an object"),
        ("text/plain", 5, "`body` must be a text"),
        ("image/png", "not base64", "must have its bytes as base64"),
        ("image/png", {}, "`body` must be a text"),
    ],
)
def test_a_body_of_another_form_is_refused(media_type: str, value: Any, words: str) -> None:
    with pytest.raises(UnsendableArguments, match=words):
        body(media_type, value)


def test_a_body_that_is_needed_and_one_with_a_member_twice_are_refused() -> None:
    operation = {"method": "post", "requestBody": {"required": True, "content": {"application/json": {}}}}
    with pytest.raises(UnsendableArguments, match="`body` is missing"):
        build(operation, {})
    tree = json.dumps(document({"operationId": "it", **operation})).encode()
    form = make_call_form(read_service(tree, Selection("it.json", "https://it.example")), "it")
    with pytest.raises(UnsendableArguments, match="a member twice"):
        build_request(form, {"body": Raw(b'{"a": {"role": 1, "role": 2}}')})
