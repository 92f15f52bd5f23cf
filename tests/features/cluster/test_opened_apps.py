"""Apps of clients without sessions: a page is read at one replica, and calls its tools at any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from tests.fakes import FakeUpstream, Json, text_of, tool
from tests.features.cluster.modern_requests import send
from tests.features.cluster.replicas import BEARER, Replica, replicas
from tests.http_client import HttpClient
from tests.proxy.app_servers import HOST, LINKED, PAGE, app_only, app_server, with_meta


def server(name: str) -> FakeUpstream:
    return app_server(with_meta("clock", LINKED), app_only("tick"), tool("other"), pages=[PAGE])


class Service(NamedTuple):
    """Two replicas in front of a server with an app, and what sends requests to each."""

    replicas: list[Replica]
    at: list[HttpClient]

    async def send(
        self, number: int, method: str, params: Json, *, user: str = "ann", capabilities: Json = HOST
    ) -> dict[str, Json]:
        return await send(self.at[number], method, params, user=user, capabilities=capabilities)

    async def tick(self, number: int, name: str = "tick", **sender: Any) -> dict[str, Json]:  # Any: who sends it
        """Call a tool that only the app may call."""
        return await self.send(number, "tools/call", {"name": name, "arguments": {}}, **sender)

    async def read_page(self, number: int) -> None:
        assert "result" in await self.send(number, "resources/read", {"uri": PAGE})


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with (
        replicas(auth=(BEARER,), server=server) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        service = Service(pair, [first, second])
        for number in (0, 1):  # the tools are known at both
            await service.send(number, "tools/list", {})
        yield service


@pytest.mark.parametrize("name", ["tick", "up__tick"])
@pytest.mark.parametrize("number", [0, 1])
async def test_its_page_calls_its_tools_at_any_replica(service: Service, number: int, name: str) -> None:
    await service.read_page(0)
    assert text_of((await service.tick(number, name))["result"]) == "done"


async def test_what_one_replica_has_heard_of_another_it_keeps(service: Service) -> None:
    await service.read_page(0)
    await service.tick(1)
    await service.replicas[0].service.finish(0)
    assert text_of((await service.tick(1))["result"]) == "done"


@pytest.mark.parametrize("number", [0, 1])
async def test_a_client_that_has_read_no_page_calls_none_of_them(service: Service, number: int) -> None:
    await service.read_page(0)
    for answer in (await service.tick(number, user="bob"), await service.tick(number, capabilities={})):
        assert answer["result"]["isError"]


async def test_a_page_that_is_read_after_a_refusal_opens_the_app(service: Service) -> None:
    assert (await service.tick(1))["result"]["isError"]
    await service.read_page(1)
    assert text_of((await service.tick(1))["result"]) == "done"
