"""What two replicas keep of a head that repeats: it holds no longer, and for nothing else, than one that is new."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dynamic_mcp.face.http.cluster import PEER_PATH, PeerRequest
from dynamic_mcp.face.http.exchange import HeadNotes, RequestHead
from dynamic_mcp.features.cluster.hop import FIELD, HopRefused, HopSigner
from dynamic_mcp.identity import LOCAL_USER
from tests.features.cluster.replicas import BEARER, KEY, Replica, as_user, replicas
from tests.http_client import HttpClient
from tests.mcp_client import McpClient, Refused


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def passed_on(clock: Clock) -> RequestHead:
    """Return a head as the replica `a` gets it from `b`."""
    head = RequestHead("POST", b"/mcp", {b"content-length": b"2", b"mcp-session-id": b"x"}, notes=HeadNotes())
    field = HopSigner("b", [KEY], clock).sign(head, "a", LOCAL_USER, address="192.0.2.1")
    return replace(head, target=PEER_PATH + head.target, headers={**head.headers, FIELD: field})


def test_a_head_that_was_read_before_is_refused_once_it_is_too_old() -> None:
    clock = Clock()
    signer, head = HopSigner("a", [KEY], clock), passed_on(clock)
    assert signer.read(head) is signer.read(head)
    clock.now += 1000
    with pytest.raises(HopRefused, match="too old"):
        signer.read(head)


def test_a_head_that_another_key_has_read_is_read_again() -> None:
    clock = Clock()
    head = passed_on(clock)
    HopSigner("a", [KEY], clock).read(head)
    with pytest.raises(HopRefused, match="signature"):
        HopSigner("a", [KEY[::-1]], clock).read(head)


def test_a_head_that_was_read_before_has_the_length_of_its_own_body() -> None:
    clock = Clock()
    signer, head = HopSigner("a", [KEY], clock), passed_on(clock)
    requests: list[PeerRequest] = []
    for length in (b"2", b"30", b"2"):
        requests.append(signer.read(replace(head, headers={**head.headers, b"content-length": length})))
    assert [each.head.headers[b"content-length"] for each in requests] == [b"2", b"30", b"2"]
    assert {(each.head.target, each.head.peer) for each in requests} == {(b"/mcp", "192.0.2.1")}
    assert all(FIELD not in each.head.headers for each in requests)


def test_a_head_that_came_over_another_connection_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    signer, head = HopSigner("a", [KEY], clock), passed_on(clock)
    first = signer.read(head)
    monkeypatch.setattr(signer, "_verify", None)
    again = signer.read(replace(head, headers={**head.headers, b"content-length": b"3"}, notes=HeadNotes()))
    assert again == PeerRequest(
        replace(first.head, headers={**first.head.headers, b"content-length": b"3"}), first.authentication
    )
    clock.now += 1000
    with pytest.raises(TypeError):  # verified again
        signer.read(replace(head, notes=HeadNotes()))


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (PEER_PATH + b"/mcp/other", {}),
        (PEER_PATH + b"/mcp", {b"mcp-session-id": b"another"}),
    ],
)
def test_a_field_that_was_read_before_is_good_for_nothing_else(target: bytes, headers: dict[bytes, bytes]) -> None:
    clock = Clock()
    signer, head = HopSigner("a", [KEY], clock), passed_on(clock)
    signer.read(head)
    with pytest.raises(HopRefused, match="signature"):
        signer.read(replace(head, target=target, headers={**head.headers, **headers}, notes=HeadNotes()))


def test_a_head_with_other_headers_is_read_as_it_is() -> None:
    clock = Clock()
    signer, head = HopSigner("a", [KEY], clock), passed_on(clock)
    signer.read(head)
    other = replace(head, headers={**head.headers, b"last-event-id": b"7"}, notes=HeadNotes())
    assert signer.read(other).head.headers[b"last-event-id"] == b"7"
    assert b"last-event-id" not in signer.read(replace(head, notes=HeadNotes())).head.headers


@pytest.mark.parametrize("which", [0, 1], ids=["owner", "other"])
async def test_a_connection_that_was_used_before_does_not_keep_an_old_key(which: int) -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = await began(first, second)
        await change_key(pair[which])
        with pytest.raises(Refused) as refused:
            await client.request("ping")
        assert refused.value.status in (403, 404)


async def test_a_connection_that_was_used_before_does_not_keep_a_user() -> None:
    async with (
        replicas(auth=(BEARER,)) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        client = await began(first, second, headers=as_user("ann"))
        other = McpClient(second, headers=as_user("bob"))
        other.id, other.version = client.id, client.version
        with pytest.raises(Refused) as refused:
            await other.request("ping")
        assert refused.value.status == 404
        assert "result" in await client.request("ping")


async def began(first: HttpClient, second: HttpClient, headers: dict[str, str] | None = None) -> McpClient:
    """Return a client with a session of the first replica that has sent requests to the second one."""
    client = McpClient(first, headers=headers or {})
    await client.initialize()
    client.http = second
    for _ in range(3):
        await client.request("ping")
    return client


async def change_key(replica: Replica) -> None:
    await replica.apply(keys=(KEY[::-1],))
