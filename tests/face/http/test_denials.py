"""What observers hear of refused credentials: each one, but no flood, and nothing of what was sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.auth import LoginAuth
from dynamic_mcp.face.auth.token_store import PREFIX
from dynamic_mcp.face.http.authenticator import AuthRejection
from dynamic_mcp.face.http.denials import EACH_MINUTE, MAX_SITES, WINDOW_S, DenialReporter
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.proxy.request import Event
from tests.face.auth.parties import FORWARDED, TOKEN, client_of, guarded_face
from tests.face.http.modern_parties import ModernHttpClient, modern
from tests.recorder import Recorder

UNKNOWN = AuthRejection(401, provider="bearer", why="unknown or revoked token")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A reporter, and its reports."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.clock = Clock()
        self.denials = DenialReporter(self.events.append, self.clock)

    def refuse(self, address: str, target: str = "/mcp") -> None:
        head = RequestHead(method="POST", target=target.encode(), headers={}, peer=address)
        self.denials.add(head, UNKNOWN, Forwarding())

    def members(self) -> list[dict[str, object]]:
        return [dict(event.members) for event in self.events]


def test_a_refused_credential_is_told_with_its_reason_and_without_the_query() -> None:
    told = Told()
    told.refuse("192.0.2.1", "/mcp?access_token=secret")

    assert told.members() == [
        {
            "outcome": "denied",
            "provider": "bearer",
            "reason": UNKNOWN.why,
            "address": "192.0.2.1",
            "path": "/mcp",
        }
    ]


def test_whoever_tries_many_is_told_of_once_more_with_their_number() -> None:
    told = Told()
    for _ in range(EACH_MINUTE + 57):
        told.refuse("192.0.2.1")
    told.refuse("192.0.2.2")
    assert len(told.events) == EACH_MINUTE + 1

    told.clock.now += WINDOW_S
    told.denials.tick()

    assert [each.get("more") for each in told.members() if "more" in each] == [57]
    told.refuse("192.0.2.1")
    assert len(told.events) == EACH_MINUTE + 3


def test_the_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    told = Told()
    for number in range(EACH_MINUTE + 5):
        told.refuse(f"2001:db8::{number:x}")

    assert len(told.events) == EACH_MINUTE


def test_however_many_addresses_there_are_only_so_many_lines_come_of_them() -> None:
    told = Told()
    for number in range(MAX_SITES + 200):
        told.refuse(f"10.0.{number // 250}.{number % 250}")
    told.denials.close()

    assert len(told.events) == MAX_SITES + EACH_MINUTE + 1
    assert told.members()[-1]["address"] == "others"
    assert told.members()[-1]["more"] == 200 - EACH_MINUTE


async def test_a_refused_token_is_in_no_event(tmp_path: Path) -> None:
    seen = Recorder()
    async with guarded_face(tmp_path / "c.json", observer=seen) as face:
        for token in (f"{PREFIX}wrong-0123456789", "elsewhere-0123456789", "", "é"):
            assert client_of(face, token).send("POST", "/mcp").status in (400, 401)

        told = seen.named("auth.denied")
        assert len(told) == 4
        assert "wrong" not in json.dumps(told)
        assert "elsewhere" not in json.dumps(told)
        assert {each["address"] for each in told} == {"127.0.0.1"}
        assert all(each["reason"] for each in told)
        assert told[0]["provider"] == "bearer"


async def test_a_request_without_a_credential_is_told_as_such(tmp_path: Path) -> None:
    seen = Recorder()
    async with guarded_face(tmp_path / "c.json", observer=seen) as face:
        assert ModernHttpClient(face).post(modern("tools/list")).status == 401

        assert [each["reason"] for each in seen.named("auth.denied")] == ["no credential"]


async def test_whoever_is_let_in_is_told_once_for_each_session(tmp_path: Path) -> None:
    seen = Recorder()
    async with guarded_face(tmp_path / "c.json", observer=seen) as face:
        client = client_of(face, TOKEN)
        await client.initialize()
        await client.request("tools/list").ends()
        modern_client = ModernHttpClient(face)
        for _ in range(2):
            await modern_client.post(modern("tools/list"), {"authorization": f"Bearer {TOKEN}"}).ends()
        client.send("DELETE", "/mcp")

        assert seen.named("auth.accepted") == [{"provider": "bearer"}] * 2
        assert seen.names == [*["auth.accepted", "session.opened"] * 2, "session.closed"]
        assert [event.client.principal.subject for event in seen.events if event.client] == ["ann"] * 5
        assert TOKEN not in json.dumps([dict(event.members) for event in seen.events])


async def test_the_address_is_that_behind_the_reverse_proxy_of_a_provider(tmp_path: Path) -> None:
    seen = Recorder()
    async with guarded_face(tmp_path / "c.json", FORWARDED, observer=seen) as face:
        client = ModernHttpClient(face)
        client.peer = "10.1.2.3"
        client.post(modern("tools/list"), {"x-forwarded-for": "203.0.113.9"})

        assert [each["address"] for each in seen.named("auth.denied")] == ["203.0.113.9"]


@pytest.mark.parametrize("path", ["/mcp", "/nothing"])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"host": "evil.example"}, "unknown host `evil.example`"),
        ({"origin": "https://evil.example"}, "pages of `https://evil.example` may not use this server"),
    ],
)
async def test_a_refused_host_or_origin_is_told(
    tmp_path: Path, path: str, headers: dict[str, str], reason: str
) -> None:
    seen = Recorder()
    async with guarded_face(tmp_path / "c.json", observer=seen) as face:
        assert client_of(face).send("POST", path, **headers).status == 403
        client_of(face).send("OPTIONS", path, **headers)

        assert [(each["reason"], each["path"]) for each in seen.named("auth.denied")] == [(reason, path)] * 2


async def test_a_refused_login_is_told_within_the_same_bounds(tmp_path: Path) -> None:
    seen = Recorder()
    form = b"grant_type=refresh_token&refresh_token=made-up-0123456789&client_id=nobody"
    async with guarded_face(tmp_path / "c.json", LoginAuth(), FORWARDED, observer=seen) as face:
        for _ in range(EACH_MINUTE + 5):
            reply = client_of(face, "").send(
                "POST", "/token", form, content_type="application/x-www-form-urlencoded", host="mcp.example.com"
            )
            await reply.ends()
            assert reply.status == 401

        told = seen.named("auth.denied")
    assert len(told) == EACH_MINUTE
    assert (told[0]["provider"], told[0]["path"]) == ("login", "/token")
    assert "made-up" not in json.dumps(told)
