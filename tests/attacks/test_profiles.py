"""A profile in which a person has nothing cannot be told from one that there is not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attacks.target import AS_JSON, BOTH, HELLO, McpClient, Target, bearer, office, serving
from tests.attacks.wire import Answer

TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ("admin", "eve")}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("profiles")
    tokens = [{"token": token, "subject": name} for name, token in TOKENS.items()]
    with serving(
        folder,
        {"office": office(folder), "vault": office(folder)},
        http={"auth": [{"kind": "bearer", "tokens": tokens}]},
        access={
            "roles": {"all": [{}], "few": [{"servers": ["office"], "tools": ["query"]}]},
            "people": {"admin": ["all"], "eve": ["few"]},
        },
        profiles={"safe": {"servers": ["vault"]}, "work": {"servers": ["office", "vault"]}},
    ) as target:
        yield target


def send(target: Target, name: str, method: str, path: str, *lines: str) -> Answer:
    body = INITIALIZE if method == "POST" else b""
    return target.request(method, path, BOTH, AS_JSON, bearer(TOKENS[name]), *lines, body=body)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    ("there", "nowhere"),
    [
        ("/mcp/profile/safe", "/mcp/profile/none"),
        ("/sse/profile/safe", "/sse/profile/none"),
        ("/mcp/vault", "/mcp/none"),
        ("/sse/vault", "/sse/none"),
    ],
)
def test_what_a_person_has_nothing_of_is_answered_like_what_there_is_not(
    target: Target, method: str, there: str, nowhere: str
) -> None:
    hidden, absent = (send(target, "eve", method, path) for path in (there, nowhere))
    differing = {"date"}
    assert (hidden.status, hidden.body) == (absent.status, absent.body)
    assert {k: v for k, v in hidden.headers.items() if k not in differing} == {
        k: v for k, v in absent.headers.items() if k not in differing
    }


def test_a_session_elsewhere_does_not_open_a_profile(target: Target) -> None:
    eve = McpClient(target, bearer(TOKENS["eve"])).begin()
    for path in ("/mcp/profile/safe", "/mcp/vault", "/mcp/profile/work"):
        moved = McpClient(target, bearer(TOKENS["eve"]), path=path)
        moved.id = eve.id
        assert moved.post(moved.message("tools/list")).status == 404


def test_a_profile_gives_no_right_that_its_person_does_not_have(target: Target) -> None:
    eve = McpClient(target, bearer(TOKENS["eve"]), path="/mcp/profile/work").begin()
    assert "has run" in json.dumps(eve.call("office", "query"))
    assert "vault" not in json.dumps(eve.request("tools/list"))
    assert eve.call("vault", "query")["result"]["isError"]


def test_a_profile_that_a_person_may_use_is_there(target: Target) -> None:
    assert send(target, "admin", "POST", "/mcp/profile/safe").status == 200
