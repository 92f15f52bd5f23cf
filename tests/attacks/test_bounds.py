"""One client, one person and one address have their share of what there is, and the others have the rest."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

import pytest

from tests.attacks.target import AS_JSON, BOTH, HELLO, McpClient, Target, bearer, office, serving
from tests.attacks.wire import Answer, Json, Wire, head

if sys.platform != "win32":
    import resource

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory and further loopback addresses as Linux has them"
)

TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ("admin", "eve", "late")}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
MOST_SESSIONS, MOST_IN_FLIGHT = 10, 8
BODY_BYTES = 4 << 20
CONNECTIONS_OF_ADDRESS = 1024


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("bounds")
    tokens = [{"token": token, "subject": name} for name, token in TOKENS.items()]
    http = {
        "auth": [{"kind": "bearer", "tokens": tokens}],
        "trusted_proxies": ["127.0.0.1"],
        "max_sessions": MOST_SESSIONS,
        "max_in_flight": MOST_IN_FLIGHT,
    }
    access = {"roles": {"all": [{}]}, "people": {"admin": ["all"]}}
    with serving(folder, {"office": office(folder)}, http=http, access=access) as target:
        yield target


def begin(target: Target, token: str, address: str = "192.0.2.1") -> Answer:
    return target.request(
        "POST", "/mcp", BOTH, AS_JSON, bearer(token), f"X-Forwarded-For: {address}", body=INITIALIZE
    )


@pytest.fixture
def admin(target: Target) -> Iterator[McpClient]:
    """An admin, who is served before and after an attack."""
    client = McpClient(target, bearer(TOKENS["admin"])).begin()
    yield client
    assert "has run" in json.dumps(client.call("office", "query"))
    assert client.delete() == 204


def test_a_person_of_few_rights_takes_half_of_the_sessions(target: Target) -> None:
    answers = [begin(target, TOKENS["eve"]) for _ in range(MOST_SESSIONS + 2)]
    assert {each.status for each in answers[MOST_SESSIONS // 2 :]} == {503}
    assert all(int(each.headers["retry-after"]) > 0 for each in answers if each.status == 503)
    for name in ("admin", "late"):
        assert begin(target, TOKENS[name]).status == 200
    for answer in answers:
        if answer.status == 200:
            eve = McpClient(target, bearer(TOKENS["eve"]))
            eve.id = answer.headers["mcp-session-id"]
            assert eve.delete() == 204


def test_each_request_of_a_batch_counts(target: Target) -> None:
    client = McpClient(target, bearer(TOKENS["admin"]), version="2025-03-26").begin()
    batch: Json = [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(MOST_IN_FLIGHT + 1)]
    assert client.post(batch).status in (413, 503)
    assert len(client.post(batch[:-1]).json) == MOST_IN_FLIGHT
    assert client.delete() == 204


def test_unfinished_bodies_of_one_person_take_bounded_memory_and_none_from_others(
    target: Target, admin: McpClient
) -> None:
    before = target.peak_mib()
    eve = McpClient(target, bearer(TOKENS["eve"])).begin()
    beginning = head("POST", "/mcp", *eve.fields(BOTH, AS_JSON, f"Content-Length: {BODY_BYTES}"))
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(target.port)) for _ in range(60)]
        for wire in wires:
            wire.send(beginning + b" " * (BODY_BYTES - 1))
        assert "has run" in json.dumps(admin.call("office", "query", {"database": "x" * 500_000}))
        grown = target.peak_mib() - before
        for wire in wires:
            wire.send(b" ")
        statuses = [answer.status for wire in wires if (answer := wire.read())]
    assert set(statuses) == {400, 503}
    assert grown < 60 * BODY_BYTES >> 20
    assert eve.delete() == 204


def test_a_stranger_with_long_bodies_is_refused_before_they_are_read(target: Target, admin: McpClient) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            wire = stack.enter_context(Wire(target.port))
            wire.send(head("POST", "/mcp", BOTH, AS_JSON, "Content-Length: 60000000"))
            answer = wire.read_head()
            assert answer is not None
            assert answer.status == 401


def test_who_guesses_tokens_is_slowed_down_and_learns_nothing(target: Target, admin: McpClient) -> None:
    eve = "198.51.100.7"
    assert begin(target, TOKENS["admin"], eve).status == 200, "who is known there"
    answers = [begin(target, f"guess-number-{number:04}-0123456789", eve) for number in range(60)]
    assert [each.status for each in answers[:5]] == [401] * 5
    assert {each.status for each in answers[-10:]} <= {401, 429}
    assert sum(each.status == 429 for each in answers) > 20
    right = begin(target, TOKENS["late"], eve)
    wrong = begin(target, "guess-number-last-0123456789", eve)
    assert (right.status, right.body) == (wrong.status, wrong.body) == (429, wrong.body), "a right token stands out"
    assert begin(target, TOKENS["admin"], eve).status == 200
    assert begin(target, TOKENS["late"], "198.51.100.8").status == 200


def test_an_address_has_a_bounded_number_of_connections_and_others_are_served(
    target: Target, admin: McpClient
) -> None:
    with _files(CONNECTIONS_OF_ADDRESS + 200), contextlib.ExitStack() as stack:
        wires = [
            stack.enter_context(Wire(target.port, source="127.0.0.2")) for _ in range(CONNECTIONS_OF_ADDRESS + 1)
        ]
        answer = wires[-1].read()
        assert answer is not None
        assert answer.status == 503
        assert "has run" in json.dumps(admin.call("office", "query"))
        with Wire(target.port, source="127.0.0.3") as other:
            other.send(head("GET", "/health"))
            answer = other.read()
        assert answer is not None
        assert answer.status == 200


def test_requests_that_are_sent_ahead_are_answered_in_their_turn(target: Target, admin: McpClient) -> None:
    with Wire(target.port) as wire:
        wire.send(head("GET", "/nothing") * 5000)
        assert "has run" in json.dumps(admin.call("office", "query"))


@contextlib.contextmanager
def _files(count: int) -> Iterator[None]:
    """Let the test have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"needs {count} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
