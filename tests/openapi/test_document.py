"""Reading OpenAPI documents: JSON and YAML, versions, references, servers, and what is too much."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.openapi.document import BadDocument, BadReference, Document, read_document, read_servers
from dynamic_mcp.openapi.service import choose_base_url
from tests.fakes import Json

TREE: Json = {"openapi": "3.1.0", "info": {"title": "It", "version": "1"}, "paths": {}}
# Nine times as many parts with each line.
ALIASES = b"a: &a [1]\n" + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in b"bcdefgh")
# The same by merges, which copy the members that they name.
MERGES = b"a: &a {x: 1}\n" + b"".join(
    b"%c: &%c {<<: [%s]}\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in b"bcdefghi"
)


def test_json_and_yaml_are_read_alike() -> None:
    yaml = b"# a comment\nopenapi: 3.1.0\ninfo: {title: It, version: '1'}\npaths: {}\n"
    assert read_document(yaml).tree == read_document(b"\xef\xbb\xbf" + json.dumps(TREE).encode()).tree == TREE


def test_what_yaml_has_and_json_lacks_becomes_text_or_is_written_out() -> None:
    text = (
        "openapi: 3.0.3\nx-day: 2026-01-02\nx-a: &a {b: 1}\nx-c: *a\nx-d: {<<: *a, e: 2}\nx-f: [.inf, .nan, 1e400]\n"
    )
    tree = read_document(f"{text}paths: {{/x: {{get: {{responses: {{200: {{}}}}}}}}}}".encode()).tree
    assert tree["x-day"] == "2026-01-02"
    assert tree["x-c"] == {"b": 1}
    assert tree["x-d"] == {"b": 1, "e": 2}
    assert tree["x-f"] == ["inf", "nan", "inf"]
    assert tree["paths"]["/x"]["get"]["responses"] == {"200": {}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"swagger": "2.0"}', "is Swagger 2.0, not OpenAPI 3.0 or 3.1"),
        (b"openapi: 3.2.0\n", "is OpenAPI 3.2.0, of which only 3.0 and 3.1 are supported"),
        (b"openapi: 3.10.0\n", "is OpenAPI 3.10.0"),
        (b"{}", "has no `openapi`"),
        (b"- a\n", "is not an object"),
        (b"", "is not an object"),
        (b"{", "is not JSON"),
        (b"a: b: c", "is neither JSON nor YAML"),
        (b"a: 1\na: 2\n", "is neither JSON nor YAML"),
        (b"\xff\xfe\x00", "is neither JSON nor YAML"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"a: &a [*a]\n", "too many parts"),
        (ALIASES, "too many parts"),
        (MERGES, "too many parts"),
        (b"a: " + b"x" * (9 << 20), "has more than 8 MiB of YAML"),
    ],
)  # fmt: skip
def test_what_is_no_document_of_a_supported_version_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(BadDocument, match=words):
        read_document(text)


def test_references_within_the_document_are_followed_with_their_escapes() -> None:
    document = Document({**TREE, "components": {"schemas": {"a/b~c d": {"type": "string"}, "list": [{"x": 1}]}}})
    assert document.resolve({"$ref": "#/components/schemas/a~1b~0c%20d"}) == {"type": "string"}
    assert document.find("#/components/schemas/list/0") == {"x": 1}


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("other.yaml#/a", "refers to another document"),
        ("https://evil.example/a.json", "refers to another document"),
        ("file:///etc/passwd", "refers to another document"),
        ("#/components/none", "names nothing"),
        ("#/paths/-1", "names nothing"),
        ("#anchor", "is no JSON pointer"),
        ("#/x-a", "leads in a circle"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(reference: str, words: str) -> None:
    document = Document({**TREE, "x-a": {"$ref": "#/x-b"}, "x-b": {"$ref": "#/x-a"}})
    with pytest.raises(BadReference, match=words):
        document.resolve({"$ref": reference})


@pytest.mark.parametrize(
    "text",
    [
        b'{"openapi": "3.1.0", "paths": {"/servers": []}, "servers": [{"url": "/v1"}, {"url": "/v2"}]}',
        b"openapi: 3.1.0\nservers:\n- url: /v1\n\n# more\n-\n  url: /v2\npaths: {}\n",
        b"servers:\n  - url: /v1\n  - url: /v2",
        b"info: {}\r\nservers:\r\n  - url: /v1\r\n  - url: /v2\r\npaths: {}\r\n",
        b"{openapi: 3.1.0, servers: [{url: /v1}, {url: /v2}]}".replace(b"{openapi", b"--- {openapi"),
    ],
)
def test_the_servers_are_read_without_the_rest(text: bytes) -> None:
    assert [each["url"] for each in read_servers(text)] == ["/v1", "/v2"]


@pytest.mark.parametrize("text", [b'{"swagger": "2.0"}', b'swagger: "2.0"\nhost: shop.example\n'])
def test_swagger_has_no_servers_and_is_called_so(text: bytes) -> None:
    with pytest.raises(BadDocument, match=r"is Swagger 2\.0"):
        read_servers(text)


HERE = "https://api.example.com/docs/openapi.json"


@pytest.mark.parametrize(
    ("url", "location", "found"),
    [
        ("https://api.example.com/v1", "", "https://api.example.com/v1"),
        ("/v1", HERE, "https://api.example.com/v1"),
        ("v1", HERE, "https://api.example.com/docs/v1"),
        ("", HERE, "https://api.example.com/"),
        ("https://API.example.com:443/v1", HERE, "https://API.example.com:443/v1"),
        ("https://{at}.example.com/{v}", "", "https://eu.example.com/v2"),
        ("http://localhost:8000", "", "http://localhost:8000"),
        ("http://127.0.0.1:8000", "", "http://127.0.0.1:8000"),
        ("http://[::1]/a", "", "http://[::1]/a"),
    ],
)
def test_the_service_is_the_first_server_that_the_document_may_name(url: str, location: str, found: str) -> None:
    variables = {"at": {"default": "eu"}, "v": {"default": "v2"}}
    assert choose_base_url([{"url": url, "variables": variables}, {"url": "x"}], location) == found


@pytest.mark.parametrize(
    ("url", "location", "words"),
    [
        ("/v1", "", "names no server with a full URL"),
        ("ftp://a.example", "", "names no server with a full URL"),
        ("https://{none}.example.com", "", "cannot be used"),
        ("https://user:pass@a.example", "", "cannot be used"),
        ("https://a.example/?x=1", "", "cannot be used"),
        ("https://a.example/#x", "", "cannot be used"),
        ("https://a.example/ x", "", "cannot be used"),
        ("https://a.example/\r\nX: 1", "", "cannot be used"),
        ("https://[", "", "cannot be used"),
        ("https://:80", "", "cannot be used"),
        ("https://other.example/v1", HERE, "on another host or port"),
        ("http://api.example.com/v1", HERE, "on another host or port"),
        ("https://api.example.com:8443/v1", HERE, "on another host or port"),
        ("//other.example/v1", HERE, "on another host or port"),
        ("http://api.example.com/v1", "", "neither https nor this machine"),
        ("http://169.254.169.254/latest", "", "neither https nor this machine"),
        ("https://169.254.169.254/latest", "", "neither https nor this machine"),
        ("https://10.0.0.1", "", "neither https nor this machine"),
        ("https://2130706433", "", "neither https nor this machine"),
        ("https://0x7f.1", "", "neither https nor this machine"),
        ("https://[fd00::1]", "", "neither https nor this machine"),
        ("https://[::ffff:10.0.0.1]", "", "neither https nor this machine"),
    ],
)
def test_a_server_that_the_document_may_not_name_is_refused(url: str, location: str, words: str) -> None:
    with pytest.raises(BadDocument, match=words):
        choose_base_url([{"url": url}], location)


def test_a_document_without_servers_is_on_its_own_origin() -> None:
    assert choose_base_url(None, HERE) == "https://api.example.com/"
    with pytest.raises(BadDocument):
        choose_base_url(None, "")
