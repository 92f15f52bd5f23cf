"""Ten thousand sessions of one replica: what they take, who is told of it, and what happens at the bound."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from pathlib import Path

import pytest

from tests.features.cluster.replicas import KEY
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.process.test_workers import until_logged
from tests.program import Json, full, text_of
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
    pytest.mark.timeout(180),
]
SESSIONS = 10_000
_CONNECTIONS = 16
_KIB_OF_SESSION = 16
_USED = 50  # sessions that call afterwards, at the other replica


def memory_kib(program: HttpProgram) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


async def open_some(url: str, count: int) -> list[McpClient]:
    """Begin sessions one after the other, over one connection."""
    async with HttpClient(url) as http:
        clients = [McpClient(http) for _ in range(count)]
        for each in clients:
            await each.initialize()
    return clients


async def ready(program: HttpProgram) -> Json:
    async with web_client() as web:
        return (await web.get(f"{program.own_origin}/ready")).json()


async def test_ten_thousand_sessions_of_one_replica_are_bounded_and_told_of(tmp_path: Path) -> None:
    ports, metrics = {"a": free_port(), "b": free_port()}, free_port()
    peers = [f"http://127.0.0.1:{port}" for port in ports.values()]
    async with contextlib.AsyncExitStack() as stack:
        programs: dict[str, HttpProgram] = {}
        for name, port in ports.items():
            place = tmp_path / name
            place.mkdir()
            settings: Json = {
                "cluster": {"name": name, "peers": peers, "keys": [KEY]},
                "http": {"max_sessions": SESSIONS},
                **({"metrics": {"listen": metrics}} if name == "a" else {}),
            }
            serving = serving_http(place, {"up": {**full(), "home": True}}, port=port, settings=settings)
            programs[name] = await stack.enter_async_context(serving)
        first, other = programs["a"], programs["b"]
        used = await open_some(first.origin, _CONNECTIONS)  # what is loaded with the first ones
        memory, sockets = memory_kib(first), first.count_sockets()

        rest, per_connection = SESSIONS - _CONNECTIONS, (SESSIONS - _CONNECTIONS) // _CONNECTIONS
        counts = [per_connection] * (_CONNECTIONS - 1) + [rest - per_connection * (_CONNECTIONS - 1)]
        clients = await asyncio.gather(*(open_some(first.origin, count) for count in counts))
        used += clients[0][:_USED]

        assert (memory_kib(first) - memory) / rest < _KIB_OF_SESSION
        assert first.count_sockets() <= sockets + _CONNECTIONS, "sessions have no connections of their own"
        assert (await ready(first))["sessions"] == SESSIONS
        async with web_client() as web:
            measured = (await web.get(f"http://127.0.0.1:{metrics}/metrics")).text
        assert re.search(rf'dynamic_mcp_sessions{{[^}}]*transport="http"[^}}]*}} {SESSIONS}\b', measured)

        async with HttpClient(first.origin) as http:
            with pytest.raises(Refused) as refused:
                await McpClient(http).initialize()
        assert refused.value.status == 503
        assert int(refused.value.headers["retry-after"]) > 0
        assert f"the limit of {SESSIONS} sessions is reached" in json.loads(refused.value.body)["error"]["message"]
        await until_logged(first, f"the limit of {SESSIONS} sessions is reached", 1)

        async with HttpClient(other.origin) as http:  # what is there goes on, wherever its requests come
            for number, client in enumerate(used):
                client.http = http
                answer = await client.call("up", "echo", {"text": str(number)})
                assert text_of(answer["result"]) == str(number)
            assert (await ready(other))["cluster"]["forwarded"] == len(used)
            assert await used[0].delete() == 204
        async with HttpClient(first.origin) as http:
            await McpClient(http).initialize()
