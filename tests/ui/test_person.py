"""The sessions of people at the page."""

from __future__ import annotations

import asyncio
import time

from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.ui.person import Persons
from tests.fakes import Opener, config_of, settled
from tests.program import BOUND_S


async def test_the_session_of_who_stays_away_ends_though_nobody_else_comes() -> None:
    proxy = Proxy(config_of(), opener=Opener())
    persons = Persons(proxy, time.time, away_after_s=0.01)
    try:
        await persons.find(Authentication(Principal("token", "eve"), "token"), "127.0.0.1").begin()
        assert len([*proxy.clients]) == 1

        async with asyncio.timeout(BOUND_S):
            while [*proxy.clients]:
                await settled()
    finally:
        persons.close()
        await proxy.close()
