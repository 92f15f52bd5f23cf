"""An upstream that refuses the revision it is asked in."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.errors import UNSUPPORTED_VERSION, ErrorAnswer
from dynamic_mcp.upstream.handshake import ServerInfo
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.modern_open import discover
from dynamic_mcp.upstream.modern_stamp import Stamp
from tests.fake_parties import Ear
from tests.fakes import BOUND_S, FakeUpstream, Json, group_config
from tests.upstream.modern import LEGACY_HELLO, discovered


def ask(upstream: FakeUpstream) -> asyncio.Task[ServerInfo | None]:
    """Begin to ask an upstream what it is."""
    upstream.link = Link("up", upstream, Ear())
    return asyncio.create_task(discover(upstream.link, Stamp(LEGACY_HELLO), group_config(), BOUND_S))


def refuse(upstream: FakeUpstream, question: Json, *supported: str) -> None:
    """Refuse a question's revision."""
    data = {"supported": supported, "requested": "2026-07-28"}
    error = {"code": UNSUPPORTED_VERSION, "message": "unsupported", "data": data}
    upstream.say({"jsonrpc": "2.0", "id": question["id"], "error": error})


async def test_an_upstream_that_names_our_revision_among_its_own_is_asked_once_more() -> None:
    upstream = FakeUpstream()
    asking = ask(upstream)
    refuse(upstream, await upstream.hears("server/discover"), "2026-07-28")
    again = await upstream.hears("server/discover", 2)

    upstream.say({"jsonrpc": "2.0", "id": again["id"], "result": discovered()})

    assert (await asking) is not None
    first = upstream.heard("server/discover")[0]
    assert again["id"] != first["id"]
    assert again["params"] == first["params"]


async def test_an_upstream_that_refuses_its_own_revision_again_is_not_asked_for_ever() -> None:
    upstream = FakeUpstream()
    asking = ask(upstream)
    for times in (1, 2):
        refuse(upstream, await upstream.hears("server/discover", times), "2026-07-28")

    with pytest.raises(ErrorAnswer, match="which it claims to support"):
        await asking
    assert len(upstream.sent) == 2


async def test_an_upstream_that_speaks_only_other_revisions_is_asked_once() -> None:
    upstream = FakeUpstream()
    asking = ask(upstream)
    refuse(upstream, await upstream.hears("server/discover"), "2027-01-01")

    with pytest.raises(ErrorAnswer, match="2027-01-01"):
        await asking
    assert len(upstream.sent) == 1
