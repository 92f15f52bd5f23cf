"""Telemetry follows the config over reloads, and sends at the end what is left."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dynamic_mcp.features.telemetry.config import Telemetry
from dynamic_mcp.host.observing import Observing
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Opener, config_of, group_config
from tests.otlp_receiver import BOUND_S, Receiver, receiving

CONFIG = replace(config_of(group_config("a")), file=Path("/nowhere/dynamic-mcp.json"))


@pytest.fixture
def receivers() -> Iterator[tuple[Receiver, Receiver]]:
    with receiving() as first, receiving() as second:
        yield first, second


@contextlib.asynccontextmanager
async def observed(telemetry: Telemetry | None) -> AsyncIterator[tuple[Observing, Client]]:
    before = threading.enumerate()
    proxy = Proxy(CONFIG, opener=Opener(a=[FullUpstream()]))
    observing = Observing(proxy)
    try:
        observing.apply(replace(CONFIG, telemetry=telemetry))
        client = Client(proxy)
        await client.initialize()
        yield observing, client
    finally:
        await proxy.close()
        await observing.close()
        for thread in threading.enumerate():  # on a busy machine what is left takes longer than the end waits
            if thread.name == "telemetry" and thread not in before:
                thread.join(BOUND_S)


def names(receiver: Receiver) -> list[str]:
    return sorted(each.name for each in receiver.spans if each.kind == "server")


async def test_a_reload_sends_from_then_on_to_where_the_config_says(receivers: tuple[Receiver, Receiver]) -> None:
    first, second = receivers
    async with observed(Telemetry(first.url)) as (observing, client):
        await client.call("a", "echo", {"text": "one"})
        observing.apply(replace(CONFIG, telemetry=Telemetry(second.url, metrics=False)))
        await client.request("tools/list")
        observing.apply(CONFIG)
        await client.request("prompts/list")
    assert (names(first), names(second)) == (["tools/call echo"], ["tools/list"])
    assert first.metrics
    assert second.metrics == {}


async def test_what_a_reload_leaves_as_it_is_goes_on(receivers: tuple[Receiver, Receiver]) -> None:
    receiver, _ = receivers
    async with observed(Telemetry(receiver.url)) as (observing, client):
        call = asyncio.ensure_future(client.call("a", "echo", {"text": "one"}))
        observing.apply(replace(CONFIG, telemetry=Telemetry(receiver.url), warnings=("another",)))
        await call
    assert names(receiver) == ["tools/call echo"]
    assert len({each["service.instance.id"] for each in receiver.resources}) == 1


async def test_without_telemetry_nobody_observes() -> None:
    async with observed(None) as (_, client):
        assert client.session.is_initialized
