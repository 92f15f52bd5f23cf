"""No argument reaches a place that its schema does not name: whatever a call gives, on the wire."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from dynamic_mcp.openapi.service import Selection, read_service
from dynamic_mcp.upstream.openapi.request import build_request
from dynamic_mcp.upstream.openapi.styles import UnsendableArguments
from dynamic_mcp.upstream.openapi.transport import make_call_form
from tests.examples import examples
from tests.fakes import Client, Json
from tests.upstream.openapi.mirror import Mirror, Received, document, serving

BASE = "/base/v1"
TOKEN, KEY = "Bearer the-token", "the key&of=it"
SENT_KEY = "api_key=the%20key%26of%3Dit"
HOSTILE = (
    *("/", "\\", "..", ".", "../", "../../admin", "a/../../b", "%2e%2e", "%2e%2e%2f", "%252e%252e%252fadmin"),
    *("..;/", "?", "#", "?api_key=x", "#f", "a?b=c&d=e", "&api_key=other", ";x=y", "a;b", "a,b", "a|b", "a b"),
    *("a=b", "", " ", "\r\n", "\r\nX-Evil: 1", "a\r\n\r\nGET /admin HTTP/1.1", "\n", "\0", "\x7f", "\t"),
    *("\u2028", "\u00e9", "\U0001f600", "//evil.example", "@evil.example", "http://evil.example/", "[", "]"),
    *("a[b]", "b][c", "{id}", "{other}", "*", "~", "api_key", "Authorization", "Host", "known", "other", "0"),
    *("true", "null", '"', "'", "%", "%0d%0a", "%00", "+"),
)
joined = st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join)
texts = st.one_of(
    st.sampled_from(HOSTILE), st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join), st.text(max_size=8)
)
scalars = st.one_of(texts, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)


class Way(Struct, frozen=True):
    """A parameter in one of the ways to write it."""

    place: str
    style: str
    explode: bool

    @property
    def tool(self) -> str:
        return f"{self.place}_{self.style}_{'wide' if self.explode else 'narrow'}"

    @property
    def argument(self) -> str:
        return "X-Arg" if self.place == "header" else "arg"

    def operation(self) -> Json:
        """Return an operation with it, and another parameter of the same place."""
        parameter = {
            "name": self.argument,
            "in": self.place,
            "style": self.style,
            "explode": self.explode,
            "schema": SCHEMA,
        }
        path = f"/{self.tool}/{{arg}}/end" if self.place == "path" else f"/{self.tool}"
        parameter |= {"required": True} if self.place == "path" else {}
        other = {"name": "other", "in": self.place if self.place != "path" else "query", "schema": {"type": "string"}}
        return {"operationId": self.tool, "path": path, "parameters": [parameter, other]}


STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# An object may have one member by name, and others.
SCHEMA: Json = {"properties": {"known": {}}, "additionalProperties": True}
WAYS = [Way(place, style, wide) for place, styles in STYLES.items() for style in styles for wide in (False, True)]
BODIES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "image/png")


def body_operation(number: int) -> Json:
    """Return an operation with a body of one of these types."""
    body = {"content": {BODIES[number]: {"schema": SCHEMA}}}
    return {"operationId": f"body_{number}", "path": f"/body_{number}", "method": "post", "requestBody": body}


DOCUMENT = document(
    *(way.operation() for way in WAYS),
    *map(body_operation, range(len(BODIES))),
    components={"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "api_key"}}},
)


def check_rest(request: Received, tool: str, method: str) -> None:
    """Check what no argument may change."""
    assert request.method == method
    assert request.path.startswith(f"{BASE}/{tool}")
    assert re.fullmatch(r"[A-Za-z0-9._~/%;=,?&@:!$'()*+-]+", request.target)
    assert [each for each in request.query if unquote_plus(each.partition("=")[0]) == "api_key"] == [SENT_KEY]
    assert request.values("authorization") == [TOKEN]
    assert len(request.values("host")) == 1
    assert request.values("host")[0].startswith("127.0.0.1:")
    names = sorted({name.lower() for name, _ in request.headers})
    assert {*names} <= {*USUAL, "x-arg", "cookie"}, names


USUAL = ("host", "accept", "accept-encoding", "user-agent", "authorization", "content-length", "content-type")


def check_path(request: Received, way: Way, value: Any) -> None:  # Any: JSON
    """Check that the value is in one segment, however often a server decodes it."""
    expected = ["", "base", "v1", way.tool, None, "end"] if way.place == "path" else ["", "base", "v1", way.tool]
    decoded = request.path
    for _ in range(5):
        segments = decoded.split("/")
        assert len(segments) == len(expected)
        assert all(fixed is None or fixed == segment for fixed, segment in zip(expected, segments, strict=True))
        assert not any(segment in (".", "..", "") for segment in segments[1:])
        assert "\\" not in decoded
        assert not re.search(r"[\x00-\x1f\x7f]", decoded)
        decoded = unquote(decoded)
    if way.place == "path" and way.style == "simple" and isinstance(value, str):
        assert unquote(request.path.split("/")[4]) == value


def check_names(found: list[str], way: Way, value: Any) -> None:  # Any: JSON
    """Check the names of fields, in a query or in cookies."""
    for field in found:
        name = unquote_plus(field.partition("=")[0])
        if way.style == "deepObject" and isinstance(value, dict | list):
            assert re.fullmatch(r"arg(\[[^\[\]]+\])+", name, re.DOTALL)
        elif way.style != "deepObject" and way.explode and isinstance(value, dict):
            assert name in value
            assert name not in ("arg", "other")
            assert (way.place, name) != ("query", "api_key")
        else:
            assert name == "arg"


def check_headers(request: Received, way: Way) -> None:
    if way.place == "header":
        (value,) = request.values("x-arg")
        assert value.isascii()
        assert value.isprintable()
    else:
        assert not request.values("x-arg")
    if way.place != "cookie":
        assert not request.values("cookie")


async def call(client: Client, mirror: Mirror, tool: str, arguments: Json) -> Received | None:
    """Call a tool; return what the service received, or None if nothing was sent, of which the result says why."""
    count = len(mirror.received)
    result = await client.call("it", tool, arguments)
    if len(mirror.received) == count:
        assert result["isError"], result
        return None
    assert len(mirror.received) == count + 1
    return mirror.received[-1]


class Wire:
    """A proxy and a service that live as long as all examples of a property."""

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self._runner = runner
        self._mirror = Mirror()
        runner.run(self._mirror.__aenter__())
        self._serving = serving(
            folder,
            DOCUMENT,
            self._mirror.origin + BASE,
            headers={"Authorization": TOKEN},
            query={"api_key": KEY},
            validate="off",
        )
        self._client = runner.run(self._serving.__aenter__())

    def call(self, tool: str, arguments: Json) -> Received | None:
        return self._runner.run(call(self._client, self._mirror, tool, arguments))

    def close(self) -> None:
        self._runner.run(self._serving.__aexit__(None, None, None))
        self._runner.run(self._mirror.__aexit__())


@pytest.fixture(scope="module", name="wire")
def _wire() -> Iterator[Wire]:
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        wire = Wire(runner, Path(folder))
        try:
            yield wire
        finally:
            wire.close()


@examples(1500)
@given(way=st.sampled_from(WAYS), value=values)
def test_a_parameter_stays_where_it_is(wire: Wire, way: Way, value: Any) -> None:  # Any: JSON
    check_parameter(wire, way, value)


def test_no_hostile_text_ends_its_value() -> None:
    service = read_service(json.dumps(DOCUMENT).encode(), Selection("it.json", base_url="http://it.example/base/v1"))
    for way in WAYS:
        form = make_call_form(service, way.tool)
        for text in HOSTILE:
            for value in (text, [text, "x"], {text: "x"}, {"known": text}):
                try:
                    made = build_request(form, {way.argument: Raw(json.dumps(value).encode())})
                except UnsendableArguments:
                    continue
                cookies = "; ".join(map("=".join, made.cookies))
                headers = (*made.headers, *([("cookie", cookies)] if cookies else []))
                check_value(Received(made.method, BASE + made.target, headers, b""), way, value)


def check_parameter(wire: Wire, way: Way, value: Any) -> None:  # Any: JSON
    """Check where a value arrives, if it does."""
    request = wire.call(way.tool, {way.argument: value})
    if request is None or value is None:
        return
    check_rest(request, way.tool, "GET")
    check_value(request, way, value)


def check_value(request: Received, way: Way, value: Any) -> None:  # Any: JSON
    check_path(request, way, value)
    check_headers(request, way)
    fields = [field for field in request.query if field != SENT_KEY]
    if way.place == "query":
        check_names(fields, way, value)
    else:
        assert not fields
    for cookies in request.values("cookie"):
        check_names(cookies.split("; "), way, value)
    assert request.body == b""


@examples(900)
@given(number=st.integers(0, len(BODIES) - 1), value=values)
def test_a_body_stays_the_body(wire: Wire, number: int, value: Any) -> None:  # Any: JSON
    request = wire.call(f"body_{number}", {"body": value})
    if request is None:
        return
    check_rest(request, f"body_{number}", "POST")
    assert request.path == f"{BASE}/body_{number}"
    assert len(request.query) == 1
    assert len(request.values("content-length")) == 1
    (kind,) = request.values("content-type")
    assert kind.partition(";")[0] == BODIES[number]
    check_body(request, kind, value)


def check_body(request: Received, kind: str, value: Any) -> None:  # Any: JSON
    match kind.partition(";")[0]:
        case "application/json":
            assert json.loads(request.body) == value
        case "application/x-www-form-urlencoded":
            fields = request.body.decode("ascii").split("&") if request.body else []
            given_names = {name for name, each in value.items() if each is not None}
            assert {unquote_plus(each.partition("=")[0]) for each in fields} <= given_names
        case "multipart/form-data":
            given_names = {name for name, each in value.items() if each is not None}
            head = b"Content-Type: " + kind.encode() + b"\r\n\r\n"
            parts = BytesParser(policy=HTTP).parsebytes(head + request.body).get_payload()
            found = [each for each in parts if isinstance(each, Message)] if isinstance(parts, list) else []
            assert len(found) == sum(len(v) if isinstance(v, list) else v is not None for v in value.values())
            quoted = {name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22") for name in given_names}
            for part in found:
                assert {*map(str.lower, part.keys())} <= {"content-disposition", "content-type"}
                (name,) = re.findall(r'name="([^"]*)"', str(part["content-disposition"])) or [""]
                assert name in quoted or not name.isascii() or not name.isprintable()
        case "text/plain":
            assert request.body.decode() == value


@examples(300)
@given(way=st.sampled_from(WAYS), name=st.sampled_from((*HOSTILE, "body", "query", "path", "arg ")), value=scalars)
def test_an_argument_that_no_schema_names_is_refused(wire: Wire, way: Way, name: str, value: Any) -> None:
    if name not in (way.argument, "other"):
        assert wire.call(way.tool, {way.argument: "x", name: value}) is None
