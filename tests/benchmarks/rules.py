"""Measure what rules on calls and plug-ins add to a call, or save: in memory, and over pipes.

    python -m tests.benchmarks.rules [--calls 300] [--rounds 40] [--only WORD]

"others" are ten rules about other tools, "pass" ten about the called tool that let it pass; of its overrides, some
put arguments in. Rounds are short and interleaved; each figure is of their medians. It judges nothing; the aim is
that ten rules of each kind add 30 µs or less in all, and that a hit takes less time than a call of the server itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.resolved import Rules
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.limits.config import Counted, Limit
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.features.redaction.config import Place, Redact
from dynamic_mcp.middleware import CallRequest, CallResult, Middleware, Next
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from tests.benchmarks import driver
from tests.benchmarks.core import SERVER, plain, through_group
from tests.benchmarks.driver import Json
from tests.fakes import FakeUpstream, Opener, config_of, group_config, tool
from tests.features.overrides.overridden import rules_of

TEN = range(10)
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"sql": TEXT, "limit": {"type": "integer"}, "db": TEXT, "note": TEXT}}
GIVEN = {"sql": "select id, name from users where id = 7", "limit": 10}
SHORT = "id: 7, name: Ann"
LONG = "\n".join(f"id: {number}, name: Ann, joined: 2024-05-0{number % 9 + 1}" for number in range(200))  # 8 KB

OTHER_OVERRIDES: Json = {f"other_{n}_*": {"title": "x", "arguments": {"a": {"fixed": 1}}} for n in TEN}
OVERRIDES: Json = {
    **{f"{'query'[: n % 5]}*": {"title": f"Query {n}"} for n in range(5)},
    **{f"*{'query'[n:]}": {"arguments": {"db": {"fixed": "main"}}} for n in range(4)},
    "query": {"title": "Query", "arguments": {"note": {"default": "none"}}},
}
COUNTED: tuple[Counted, ...] = ("person",)
PLACES: tuple[Place, ...] = ("arguments", "results")
WORDS = ("drop", "delete", "truncate", "alter", "grant", "copy")
DENIED = tuple(
    Guard(f"guards[{n}]", ("query",), path="$.sql", deny=rf"(?i)\b{word}\b") for n, word in enumerate(WORDS)
)
ALLOWED = (
    Guard("guards[6]", ("q*",), path="$.sql", allow=r"select .*"),
    Guard("guards[7]", ("*",), path="$.limit", allow=r"[0-9]{1,3}"),
    Guard("guards[8]", ("*",), path="$.sql", allow=r"[a-z0-9 ,=']+"),
    Guard("guards[9]", ("*ry",), deny=r"\x00"),
)
PRESETS = ("keys", "tokens", "emails", "card_numbers")
OTHERS: Mapping[str, Rules] = {
    "overrides": rules_of(**OTHER_OVERRIDES),
    "guards": {"guards": tuple(Guard(f"guards[{n}]", (f"other_{n}_*",), deny="x") for n in TEN)},
    "limits": {"limits": tuple(Limit(f"limits[{n}]", (f"other_{n}_*",), rate=1, concurrent=1) for n in TEN)},
    "cache": {"cache": tuple(Cache(f"cache[{n}]", (f"*other_{n}*",), (f"x://{n}/*",)) for n in TEN)},
    "redact": {"redact": tuple(Redact(f"redact[{n}]", (f"other_{n}_*",), pattern="[0-9]+") for n in TEN)},
}
PASSING: Mapping[str, Rules] = {
    "overrides": rules_of(**OVERRIDES),
    "guards": {"guards": (*DENIED, *ALLOWED)},
    "limits": {
        "limits": (
            *(Limit(f"limits[{n}]", ("q*", f"x{n}"), COUNTED[n % 2 :], rate=1e6, burst=1_000_000) for n in range(5)),
            *(Limit(f"limits[{n}]", ("q*", f"x{n}"), COUNTED[n % 2 :], concurrent=64) for n in range(5, 10)),
        )
    },
    "cache": OTHERS["cache"],
    "redact": {
        "redact": (
            *(Redact(f"redact[{n}]", presets=(name,), places=PLACES[min(n, 1) :]) for n, name in enumerate(PRESETS)),
            *(Redact(f"redact[{n}]", ("q*",), pattern=rf"\bcustomer-{n}-[0-9]{{6}}") for n in range(4, 10)),
        )
    },
}


class PassOn(Middleware):
    """A plug-in that lets everything pass."""

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        """Return what follows."""
        return await next(request)


def all_of(kinds: Mapping[str, Rules]) -> Rules:
    """Return the rules of all kinds together."""
    return {kind: rules[kind] for kind, rules in kinds.items()}


class Client:
    """A client in memory of a proxy with these rules, in front of a server that answers with a text."""

    def __init__(self, rules: Rules, plugins: tuple[Plugin, ...] = (), text: str = SHORT) -> None:
        answer = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
        server = FakeUpstream({"tools/call": answer, "tools/list": {"tools": [tool("query", inputSchema=SCHEMA)]}})
        group = group_config("up", rules=rules, effects=ToolEffects(read=("query",)))
        self._config = config_of(group, middleware=plugins)
        self.proxy = Proxy(self._config, opener=Opener(up=[server]))
        self._server = server
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._session = Session(ClientConnection(self._take), self.proxy)

    async def start(self) -> None:
        """Open plug-ins, and shake hands."""
        if self._config.middleware:
            await self.proxy.open(self._config)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        await self._request(_line("initialize", hello))
        self._session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        await self.measure(100)

    async def measure(self, calls: int) -> float:
        """Return the median time of a call, in microseconds."""
        arguments = {"group": "up", "name": "query", "args": GIVEN}
        line = _line("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            answer = await self._request(line)
            times.append(time.perf_counter() - start)
        assert b'"isError"' not in answer, answer
        self._server.sent.clear()
        self._server.lines.clear()
        return statistics.median(times) * 1e6

    async def _request(self, line: bytes) -> bytes:
        self._answered = asyncio.get_running_loop().create_future()
        self._session.receive(line)
        return await self._answered

    def _take(self, line: bytes) -> None:
        if not self._answered.done() and b'"id":1' in line:
            self._answered.set_result(line)


def _line(method: str, params: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def clients() -> Mapping[str, Client]:
    """Return a client for each row of the table, those first that others are compared with."""
    hit = {"cache": (Cache("cache[0]", tools=("query",), ttl_s=3600),)}
    return {
        "no rules": Client({}),
        "all, others": Client(all_of(OTHERS)),
        "all, pass": Client(all_of(PASSING)),
        **{f"{kind}, others": Client(rules) for kind, rules in OTHERS.items()},
        **{f"{kind}, pass": Client(rules) for kind, rules in PASSING.items() if kind != "cache"},
        "a hit": Client(hit),
        "a plug-in": Client({}, (Plugin(f"{PassOn.__module__}:{PassOn.__qualname__}"),)),
        "8 KB, no rules": Client({}, text=LONG),
        "8 KB, all, pass": Client(all_of(PASSING), text=LONG),
    }


async def measure_in_memory(calls: int, rounds: int, only: str) -> None:
    """Print what each set of rules adds to a call of a server in memory."""
    chosen = {name: each for name, each in clients().items() if only in name or name.endswith("no rules")}
    found: dict[str, list[float]] = {name: [] for name in chosen}
    for client in chosen.values():
        await client.start()
    for _ in range(rounds):
        for name, client in chosen.items():
            found[name].append(await client.measure(calls))
    bases = {name: "8 KB, no rules" if name.startswith("8 KB") else "no rules" for name in found}
    show("in memory", found, bases)
    for client in chosen.values():
        await client.proxy.close()


def measure_over_pipes(calls: int, rounds: int) -> None:
    """Print how long a call takes to the server itself, through the proxy, and if it is a hit."""
    for size in (100, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            peers = {
                "the server itself": (SERVER, plain),
                "through the proxy": (_proxy(folder, "plain", {}), through_group),
                "a hit": (_proxy(folder, "kept", {"cache": [{"tools": ["blob"], "ttl": "1h"}]}), through_group),
            }
            found: dict[str, list[float]] = {name: [] for name in peers}
            for _ in range(rounds):
                for name, (argv, call) in peers.items():
                    found[name].append(_measure_peer(argv, call("blob", {"bytes": size}), calls))
        show(f"over pipes, {size} bytes", found, dict.fromkeys(found, "the server itself"))


def _proxy(folder: str, name: str, rules: Json) -> list[str]:
    server = {"command": SERVER[0], "args": SERVER[1:], "effects": {"read": ["blob"]}, **rules}
    file = Path(folder) / f"{name}.json"
    file.write_text(json.dumps({"mcpServers": {"group0": server}}))
    return [str(Path(sys.executable).with_name("dynamic-mcp")), str(file)]


def _measure_peer(argv: list[str], call: Json, calls: int) -> float:
    peer = driver.Peer(argv)
    try:
        peer.start()
        peer.until_works(call)
        peer.burst(200, 1, call)
        return peer.burst(calls, 1, call).at(0.5) * 1e6
    finally:
        peer.close()


def show(title: str, found: Mapping[str, list[float]], bases: Mapping[str, str]) -> None:
    """Print a table: the least and the middle of the rounds, and what each row adds to the row that is its base.

    What is added is the middle of what was added in each round, so that a loaded machine counts for both.
    """
    print(f"\n{title:22} {'least':>9} {'added':>7} {'median':>9} {'added':>7}")
    for name, times in found.items():
        base = found[bases[name]]
        added = statistics.median(own - other for own, other in zip(times, base, strict=True))
        least, middle = min(times), statistics.median(times)
        print(f"{name:22} {least:8.1f}  {least - min(base):+7.1f} {middle:8.1f}  {added:+7.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", metavar="WORD", help="rows with this word, and no pipes")
    options = parser.parse_args()
    asyncio.run(measure_in_memory(options.calls, options.rounds, options.only))
    if not options.only:
        measure_over_pipes(5000, 5)
