"""A service as a group: what its responses become, where requests and credentials go, and how it fails."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.openapi.mirror import Mirror, Reply, document, serving

GET: Json = {"operationId": "get", "path": "/thing"}
POST: Json = {"operationId": "make", "path": "/thing", "method": "post"}


async def call(client: Client, tool: str = "get", arguments: Json | None = None) -> Any:  # Any: JSON
    return await client.call("it", tool, arguments or {})


async def answer_to(folder: Path, reply: Reply, operation: Json = GET) -> Any:  # Any: JSON
    """Return the result of a call that is answered so."""
    async with Mirror() as mirror, serving(folder, document(operation), mirror.origin) as client:
        mirror.replies["/thing"] = reply
        return await call(client, operation["operationId"])


# --- results -----------------------------------------------------------------------------------------------------


async def test_an_object_is_text_and_structured_content(tmp_path: Path) -> None:
    text = '{\r\n "big": 1234567890123456789012345678901234567890,\n "a": "\\n"}'
    result = await answer_to(
        tmp_path, Reply(body=text.encode(), content_type="application/problem+json; charset=utf-8")
    )
    assert result["content"] == [{"type": "text", "text": text}]
    assert result["structuredContent"] == json.loads(text)
    assert not result.get("isError")


@pytest.mark.parametrize("body", [b"[1]", b'"a"', b"null", b"{", b'{"a": NaN}', b"\xff"])
async def test_other_json_and_what_is_none_is_text(tmp_path: Path, body: bytes) -> None:
    result = await answer_to(tmp_path, Reply(body=body))
    assert text_of(result) == body.decode("utf-8", "replace")
    assert "structuredContent" not in result


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html; charset=latin-1", "text"),
        ("application/atom+xml", "text"),
        ("", "text"),
        ("image/png", "image"),
        ("audio/wav", "audio"),
        ("image/svg+xml", "text"),
        ("image/tiff", "resource"),
        ("application/zip", "resource"),
    ],
)
async def test_the_type_of_a_body_decides_what_it_becomes(tmp_path: Path, content_type: str, kind: str) -> None:
    data = b"<\xe9>" if "latin" in content_type else b"<a>"
    (content,) = (await answer_to(tmp_path, Reply(body=data, content_type=content_type)))["content"]
    assert content["type"] == kind
    match kind:
        case "text":
            assert content["text"] == ("<\u00e9>" if "latin" in content_type else "<a>")
        case "resource":
            assert base64.b64decode(content["resource"]["blob"]) == data
            assert content["resource"]["mimeType"] == content_type
            assert content["resource"]["uri"].endswith("/thing")
        case _:
            assert (base64.b64decode(content["data"]), content["mimeType"]) == (data, content_type)


@pytest.mark.parametrize(
    ("charset", "text"),
    [("latin-1; x=y", "\\x65\xe9"), ("punycode", "\\x65\ufffd"), ("unicode_escape", "\\x65\ufffd")],
)
async def test_a_text_is_read_in_an_encoding_of_the_web(tmp_path: Path, charset: str, text: str) -> None:
    """Others are no text, or take hours to read."""
    reply = Reply(body=b"\\x65\xe9", content_type=f"text/plain; charset={charset}")
    assert text_of(await answer_to(tmp_path, reply)) == text


async def test_an_empty_answer_has_its_status(tmp_path: Path) -> None:
    result = await answer_to(tmp_path, Reply(status=204, body=b"", content_type=""))
    assert text_of(result) == "204 No Content"
    head = {**GET, "method": "head"}
    assert text_of(await answer_to(tmp_path, Reply(body=b"hello", content_type="text/plain"), head)) == "200 OK"


async def test_headers_that_tell_how_to_go_on_are_shown_and_no_others(tmp_path: Path) -> None:
    link = '<https://x.example/?page=2>; rel="next"'
    headers = (("Link", link), ("X-Rate-Left", "3"), ("X-Other", "no"), ("Set-Cookie", "session=secret"))
    described = {"200": {"description": "", "headers": {"X-Rate-Left": {}, "Set-Cookie": {}}}}
    result = await answer_to(tmp_path, Reply(headers=headers), {**GET, "responses": described})
    assert [each["text"] for each in result["content"]] == ["{}", f"link: {link}\nx-rate-left: 3"]


@pytest.mark.parametrize("status", [400, 404, 418, 500, 302])
async def test_any_other_status_is_an_error_with_the_beginning_of_the_answer(tmp_path: Path, status: int) -> None:
    headers = (("Location", "https://other.example/x?sig=1"),) if status == 302 else ()
    result = await answer_to(tmp_path, Reply(status, b'{"detail": "' + b"x" * 20_000 + b'"}', headers=headers))
    assert result["isError"]
    assert text_of(result).startswith(f"{status} ")
    assert '{"detail": "xxx' in text_of(result)
    assert len(text_of(result)) < 8200
    assert ("location: https://other.example/x?sig=1" in text_of(result)) == (status == 302)


async def test_a_secret_of_the_config_in_an_error_is_masked(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        headers = {"Authorization": "Bearer abcdefghijkl"}
        async with serving(
            tmp_path, document(GET), mirror.origin, headers=headers, query={"key": "qwertyuiop"}
        ) as client:
            mirror.replies["/thing"] = Reply(403, b"bad token abcdefghijkl and qwertyuiop", "text/plain")
            text = text_of(await call(client))
    assert "abcdefghijkl" not in text
    assert "qwertyuiop" not in text
    assert "bad token ***" in text


@pytest.mark.parametrize("status", [200, 302])
async def test_a_secret_of_the_config_is_in_no_link_that_is_shown(tmp_path: Path, status: int) -> None:
    """Services repeat the whole query in links to other pages."""
    async with Mirror() as mirror:
        url = mirror.origin.replace("//", "//ada:zxcvbnmasd@")
        config: Json = {
            "headers": {"X-Api-Key": "abcdefghijkl"},
            "query": {"api_key": "qwertyu&op", "v": "2026-01-01"},
        }
        async with serving(tmp_path, document(GET), url, **config) as client:
            link = "https://b.example/?api_key=qwertyu%26op&v=2026-01-01&k=abcdefghijkl&p=zxcvbnmasd"
            headers = (("location", link), ("link", f"<{link}&page=2>"))
            mirror.replies["/thing"] = Reply(status, b"\0\xff", "application/zip", headers)
            result = json.dumps(await call(client))
    for secret in ("abcdefghijkl", "qwertyu", "zxcvbnmasd"):
        assert secret not in result
    assert "v=2026-01-01" in result


async def test_an_answer_over_the_limit_is_an_error(tmp_path: Path) -> None:
    async with Mirror() as mirror, serving(tmp_path, document(GET), mirror.origin) as client:
        mirror.replies["/thing"] = Reply(body=b"x" * (17 << 20), content_type="text/plain")
        result = await call(client)
    assert result["isError"]
    assert "answered with more than 16777216 bytes" in text_of(result)


async def test_a_call_that_times_out_ends_its_request(tmp_path: Path) -> None:
    timeout = {"tools": "2s"}
    async with Mirror() as mirror, serving(tmp_path, document(GET), mirror.origin, timeout=timeout) as client:
        mirror.replies["/thing"] = Reply(is_endless=True)
        result = await call(client)
        assert result["isError"]
        assert "was not answered within 2 s" in text_of(result)
        async with asyncio.timeout(BOUND_S):
            assert await mirror.left == b""


# --- requests ----------------------------------------------------------------------------------------------------


async def test_a_request_has_what_the_config_and_the_call_give(tmp_path: Path) -> None:
    parameters = [{"name": "q", "in": "query", "schema": {}}, {"name": "c", "in": "cookie", "schema": {}}]
    async with Mirror() as mirror:
        config: Json = {
            "headers": {"X-Key": "${SECRET}", "Cookie": "own=1;"},
            "query": {"k": "${SECRET}", "e&": "a b"},
        }
        tree = document({**GET, "parameters": parameters})
        url = f"{mirror.origin}/base/"
        async with serving(tmp_path, tree, url, environment={"SECRET": "s3cr&t"}, **config) as client:
            await call(client, arguments={"q": "x", "c": "y"})
            await call(client)
    first, second = mirror.received
    assert first.target == "/base/thing?q=x&k=s3cr%26t&e%26=a%20b"
    assert second.target == "/base/thing?k=s3cr%26t&e%26=a%20b"
    assert first.values("x-key") == ["s3cr&t"]
    assert (first.values("cookie"), second.values("cookie")) == (["own=1; c=y"], ["own=1"])
    assert first.values("accept") == ["application/json;q=0.9, */*;q=0.8"]


async def test_no_cookie_of_the_config_is_an_argument(tmp_path: Path) -> None:
    """Also where it is beside one that the standard does not allow."""
    parameters: list[Json] = [{"name": name, "in": "cookie", "schema": {}} for name in ("session", "path", "c")]
    async with Mirror() as mirror:
        headers = {"Cookie": "x[1]=y; path=a; session=mine"}
        tree = document({**GET, "parameters": parameters})
        async with serving(tmp_path, tree, mirror.origin, headers=headers) as client:
            for name in ("session", "path"):
                assert (await call(client, arguments={name: "other"}))["isError"]
            assert mirror.received == []
            assert not (await call(client, arguments={"c": "d"})).get("isError")
            assert mirror.received[0].values("cookie") == ["x[1]=y; path=a; session=mine; c=d"]


async def test_a_name_and_a_password_in_the_url_are_basic_authentication(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        url = mirror.origin.replace("http://", "http://ann:p%40ss@")
        async with serving(tmp_path, document(GET), url) as client:
            await call(client)
    assert mirror.received[0].values("authorization") == [f"Basic {base64.b64encode(b'ann:p@ss').decode()}"]


async def test_cookies_that_the_service_sets_are_not_kept(tmp_path: Path) -> None:
    async with Mirror() as mirror, serving(tmp_path, document(GET), mirror.origin) as client:
        mirror.replies["/thing"] = Reply(headers=(("Set-Cookie", "session=of-ann"),))
        await call(client)
        await call(client)
    assert mirror.received[1].values("cookie") == []


async def test_redirects_within_the_origin_are_followed_by_what_reads(tmp_path: Path) -> None:
    async with Mirror() as mirror, serving(tmp_path, document(GET, POST), mirror.origin) as client:
        mirror.replies["/thing"] = Reply(302, headers=(("Location", "/there"),))
        mirror.replies["/there"] = Reply(body=b'{"there": 1}')
        assert text_of(await call(client)) == '{"there": 1}'
        assert text_of(await call(client, "make")).startswith("302 ")
        mirror.replies["/there"] = Reply(301, headers=(("Location", "/thing"),))
        assert (await call(client))["isError"]
    assert len(mirror.received) < 10


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_request_goes_to_another_origin(tmp_path: Path, status: int) -> None:
    async with Mirror() as other, Mirror() as mirror:
        headers = {"Authorization": "Bearer secret"}
        async with serving(tmp_path, document(GET, POST), mirror.origin, headers=headers) as client:
            mirror.replies["/thing"] = Reply(status, headers=(("Location", f"{other.origin}/thing"),))
            for tool in ("get", "make"):
                result = await call(client, tool)
                assert result["isError"]
                assert f"{other.port}" in text_of(result), "a person can see where it leads"
    assert other.received == []


async def test_what_changes_something_is_sent_once_even_if_the_service_says_when_to_try_again(tmp_path: Path) -> None:
    async with Mirror() as mirror, serving(tmp_path, document(POST), mirror.origin) as client:
        mirror.replies["/thing"] = Reply(503, b"busy", "text/plain", headers=(("Retry-After", "0"),))
        assert text_of(await call(client, "make")).startswith("503 ")
    assert len(mirror.received) == 1


async def test_a_service_that_is_down_is_the_error_of_the_call_and_the_next_one_finds_it_up(tmp_path: Path) -> None:
    async with Mirror() as mirror, serving(tmp_path, document(GET), mirror.origin) as client:
        url = mirror.origin
        assert not (await call(client)).get("isError")
    async with serving(tmp_path, document(GET), url) as client:
        result = await call(client)
        assert result["isError"]
        assert "refuses connections" in text_of(result)


async def test_without_oauth_a_401_is_the_result_of_the_call(tmp_path: Path) -> None:
    headers = (("WWW-Authenticate", 'Bearer resource_metadata="http://127.0.0.1:1/x"'),)
    result = await answer_to(tmp_path, Reply(401, b"who are you", "text/plain", headers=headers))
    assert text_of(result) == "401 Unauthorized\nwho are you"


async def test_with_oauth_the_token_of_the_login_is_sent(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        metadata = {
            "issuer": mirror.origin,
            "authorization_endpoint": f"{mirror.origin}/authorize",
            "token_endpoint": f"{mirror.origin}/token",
            "response_types_supported": ["code"],
        }
        mirror.replies["/meta"] = Reply(body=json.dumps(metadata).encode())
        mirror.replies["/token"] = Reply(body=b'{"access_token": "the-token", "token_type": "Bearer"}')
        oauth = {"grant": "client_credentials", "client_id": "me", "client_secret": "hush"}
        oauth["metadata_url"] = f"{mirror.origin}/meta"
        async with serving(tmp_path, document(GET), mirror.origin, oauth=oauth) as client:
            assert not (await call(client)).get("isError")
    assert [each.target for each in mirror.received] == ["/meta", "/token", "/thing"]
    assert mirror.received[-1].values("authorization") == ["Bearer the-token"]


async def test_a_service_that_needs_its_user_to_log_in_says_how(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        mirror.replies["/thing"] = Reply(401, b"", "")
        async with serving(tmp_path, document(GET), mirror.origin, oauth={"client_id": "me"}) as client:
            result = await call(client)
    assert result["isError"]
    assert "log in to it" in text_of(result)


# --- the document ------------------------------------------------------------------------------------------------


def served(tree: Json, **headers: str) -> Reply:
    return Reply(body=json.dumps(tree).encode(), headers=tuple(headers.items()))


async def at_url(folder: Path, location: str, **entry: Json) -> Any:  # Any: JSON
    """Return the answer to a call of a service whose document is at a URL."""
    async with serving(folder, {}, openapi=location, **entry) as client:
        return await call(client)


async def test_a_document_at_a_url_names_its_own_origin(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        mirror.replies["/docs/openapi.json"] = Reply(302, headers=(("Location", "/real.json"),))
        mirror.replies["/real.json"] = served(document(GET, servers=[{"url": "../v1"}]))
        headers = {"Authorization": "Bearer secret"}
        await at_url(tmp_path, f"{mirror.origin}/docs/openapi.json", headers=headers)
    assert [each.target for each in mirror.received] == ["/docs/openapi.json", "/real.json", "/v1/thing"]
    assert {each.values("authorization")[0] for each in mirror.received} == {"Bearer secret"}


async def test_a_name_and_a_password_in_the_url_of_the_document_are_for_its_service_too(tmp_path: Path) -> None:
    async with Mirror() as mirror:
        mirror.replies["/openapi.json"] = served(document(GET))
        await at_url(tmp_path, f"{mirror.origin}/openapi.json".replace("http://", "http://ann:pass@"))
    expected = f"Basic {base64.b64encode(b'ann:pass').decode()}"
    assert [(each.target, each.values("authorization")) for each in mirror.received] == [
        ("/openapi.json", [expected]),
        ("/thing", [expected]),
    ]


async def test_a_document_of_another_origin_gets_no_credentials_and_chooses_no_server(tmp_path: Path) -> None:
    async with Mirror() as docs, Mirror() as mirror:
        docs.replies["/openapi.json"] = served(document(GET, servers=[{"url": mirror.origin}]))
        secrets: Json = {"headers": {"Authorization": "Bearer secret", "Cookie": "a=b"}, "query": {"key": "secret"}}
        refused = await at_url(tmp_path, f"{docs.origin}/openapi.json", **secrets)
        assert f"names a server on another host or port, `{mirror.origin}`" in text_of(refused)
        assert mirror.received == []
        assert docs.received[0].values("authorization") == ["Bearer secret"], "it is where the service would be"
        docs.received.clear()
        await at_url(tmp_path, f"{docs.origin}/openapi.json", url=mirror.origin, **secrets)
    assert mirror.received[0].values("authorization") == ["Bearer secret"]
    assert docs.received
    assert all(not each.values("authorization") and not each.values("cookie") for each in docs.received)
    assert all("secret" not in each.target for each in docs.received)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(404, b"none", "text/plain"), "404 Not Found: none"),
        (Reply(302, headers=(("Location", "http://other.example/"),)), "a redirect to `http://other.example/`"),
        (Reply(body=b"<html>", content_type="text/html"), "is no OpenAPI document: it is not an object"),
        (Reply(body=b'{"swagger": "2.0"}'), "is Swagger 2.0"),
    ],
)
async def test_a_document_that_cannot_be_read_is_why_the_server_is_down(
    tmp_path: Path, reply: Reply, words: str
) -> None:
    async with Mirror() as mirror:
        mirror.replies["/openapi.json"] = reply
        assert words in text_of(await at_url(tmp_path, f"{mirror.origin}/openapi.json"))


async def test_a_pattern_that_cannot_be_checked_leaves_the_other_checks(tmp_path: Path) -> None:
    patterns = {"^{[0-9]{4}}$": {"type": "integer"}, "^x-": {"type": "integer"}}
    member = {"type": "string", "pattern": "^{[0-9]{4}}$", "maxLength": 3, "default": {"pattern": "("}}
    schema = {"type": "object", "properties": {"pattern": member}, "patternProperties": patterns}
    body = {"content": {"application/json": {"schema": schema}}}
    async with (
        Mirror() as mirror,
        serving(tmp_path, document({**POST, "requestBody": body}), mirror.origin) as client,
    ):
        for wrong in ({"pattern": "long"}, {"x-a": "b"}, {"other": 1}):
            assert (await call(client, "make", {"body": wrong}))["isError"]
        assert mirror.received == []
        assert not (await call(client, "make", {"body": {"pattern": "abc", "x-a": 1}})).get("isError")


async def test_an_unknown_tool_an_argument_twice_and_a_wrong_argument_send_nothing(tmp_path: Path) -> None:
    operation = {**GET, "parameters": [{"name": "n", "in": "query", "schema": {"type": "integer"}}]}
    async with Mirror() as mirror, serving(tmp_path, document(operation), mirror.origin) as client:
        for tool, arguments in (("none", {}), ("get", {"n": "x"}), ("get", {"m": 1})):
            assert (await call(client, tool, arguments))["isError"]
    assert mirror.received == []
