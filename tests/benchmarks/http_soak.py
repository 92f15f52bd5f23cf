"""Let many sessions use one process over HTTP for minutes, beside bad neighbours, and check the history.

    python -m tests.benchmarks.http_soak [--seed 1] [--sessions 256] [--arrivals 768] [--seconds 20] [--history FILE]

The sessions of the crowd call, ask, subscribe and cancel on five servers, have their streams cut and resume them, and
a third of them vanish. A few others only call a server of their own, and their latencies are told: alone, beside the
crowd, and beside the crowd together with the bad neighbours. These are a server that is frozen and called, one that
floods its clients with log messages, 20 clients that never read them, and clients that vanish at every call. It ends
with what the checker of `tests/history` finds wrong, what the process holds before and after, and an exit code that
tells. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from tests.benchmarks.core import SERVER
from tests.benchmarks.driver import Json
from tests.benchmarks.http_face import call, descendants
from tests.benchmarks.soak_daemon import show_table
from tests.history.checker import Violation, show
from tests.history.http_crowd import HttpCrowd, HttpCrowdPlan, crowded_program
from tests.history.http_program import HttpProgram
from tests.history.http_sessions import HttpSessions
from tests.history.record import History
from tests.history.windows import Holdings, measure_at_rest
from tests.http_client import Disconnected, HttpClient
from tests.mcp_client import McpClient
from tests.program import UPSTREAMS

_WITHIN_S = 900.0
_DEAF_CLIENTS = 20
_CALLERS, _EVERY_S = 64, 0.25
_FROZEN_CALLERS = 16
_FLOOD: Json = {"kind": "flood", "size": 2000}
# Where the machine is busy, sessions of the crowd may take long to come back.
_SESSION_TIMEOUT_S = 20.0
_TOOLS_TIMEOUT = "30s"
_HTTP: Json = {"max_sessions": 5000, "session_timeout": _SESSION_TIMEOUT_S}


class Soak:
    """A run of all phases in one history."""

    def __init__(self, program: HttpProgram, history: History, chosen: argparse.Namespace) -> None:
        self.rows: list[dict[str, str]] = []
        self.violations: list[Violation] = []
        self.vanished = 0
        self._program = program
        self._history = history
        self._chosen = chosen

    async def run(self) -> tuple[Holdings, Holdings]:
        """Run all phases; return what the process holds before and after them."""
        await self._crowd("w", 6, 12).warm_up()
        await self._load("warm-up", seconds=1)
        await _call_once(self._program.url, "frozen", "echo", {"text": "hello"})
        await asyncio.sleep(_SESSION_TIMEOUT_S)  # until the sessions have ended that were left
        before = await measure_at_rest(self._program.pid, self._program.watched)
        await self._load("alone")
        await self._beside_crowd("beside the crowd", "c")
        async with self._bad_neighbours():
            await self._load("beside bad neighbours")
            await self._beside_crowd("beside both", "b")
        await asyncio.sleep(2 * _SESSION_TIMEOUT_S)
        return before, await measure_at_rest(self._program.pid, self._program.watched)

    def _crowd(self, name: str, slots: int, arrivals: int) -> HttpCrowd:
        plan = HttpCrowdPlan(
            self._chosen.seed,
            name,
            slots,
            arrivals,
            arrivals // 3,
            within_s=_WITHIN_S,
            patience_s=120.0,
            settles_within_s=4 * _SESSION_TIMEOUT_S,
        )
        return HttpCrowd(plan, self._history, HttpSessions(self._program.url, self._history, plan.seed))

    async def _beside_crowd(self, phase: str, name: str) -> None:
        """Measure again and again while a crowd lives."""
        began = time.perf_counter()
        crowd = asyncio.create_task(self._crowd(name, self._chosen.sessions, self._chosen.arrivals).run())
        await self._load(phase)
        self.violations = await crowd  # those of the history so far
        print(f"{phase}: {time.perf_counter() - began:.0f} s, {len(self.violations)} violations", flush=True)
        print(
            show(self.violations, self._history.events, self._chosen.seed).partition("\nthe history of")[0],
            flush=True,
        )

    async def _load(self, phase: str, seconds: float = 0.0) -> None:
        process = await asyncio.create_subprocess_exec(
            *_load_command(self._program, "quiet", _CALLERS),
            *("--seconds", str(seconds or self._chosen.seconds)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        found = json.loads(output)
        shown = {name: f"{found[name]:.2f}" for name in ("p50_ms", "p99_ms", "max_ms")}
        self.rows.append({"calls": phase, "number": str(found["calls"]), **shown, "errors": str(found["errors"])})
        print(f"{phase}: {found}", flush=True)

    # --- bad neighbours --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _bad_neighbours(self) -> AsyncIterator[None]:
        """Freeze a server that is called, flood clients that do not read, and let clients vanish."""
        _signal_frozen(self._program, signal.SIGSTOP)
        calling = await asyncio.create_subprocess_exec(
            *_load_command(self._program, "frozen", _FROZEN_CALLERS),
            *("--seconds", "100000"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with contextlib.AsyncExitStack() as stack:
            deaf = [await stack.enter_async_context(HttpClient(self._program.url)) for _ in range(_DEAF_CLIENTS)]
            tasks = [asyncio.create_task(_never_read(client)) for client in deaf]
            tasks.append(asyncio.create_task(self._vanish_again_and_again()))
            try:
                yield
            finally:
                calling.kill()
                await calling.wait()
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                print(f"neighbours: {[end for end in ends if not isinstance(end, asyncio.CancelledError)]}")
                _signal_frozen(self._program, signal.SIGCONT)
                for client in deaf:
                    client.abort()

    async def _vanish_again_and_again(self) -> None:
        for group in iter(lambda: ("frozen", "flood", "quiet")[self.vanished % 3], ""):
            async with HttpClient(self._program.url) as http:
                session = McpClient(http)
                await session.initialize()
                params = {"name": "call_dynamic_tool", "arguments": {"group": group, "name": "echo", "args": {}}}
                body = json.dumps(session.message("tools/call", params)).encode()
                await http.begin("POST", "/mcp", session.fields(accept="application/json, text/event-stream"), body)
                await asyncio.sleep(0.02)
                http.abort()
            self.vanished += 1


async def _call_once(url: str, group: str, tool: str, args: Json) -> None:
    async with HttpClient(url) as http:
        session = McpClient(http)
        await session.initialize(name="load")
        await session.call(group, tool, args)
        await session.delete()


async def _never_read(http: HttpClient) -> None:
    """Listen, and call for floods again and again, without ever reading a stream."""
    session = McpClient(http)
    await session.initialize(name="deaf")
    listening = await http.begin("GET", "/mcp", session.fields(accept="text/event-stream"))
    listening.pause()
    params = {"name": "call_dynamic_tool", "arguments": {"group": "flood", "name": "fault", "args": _FLOOD}}
    while True:
        body = json.dumps(session.message("tools/call", params)).encode()
        fields = session.fields(accept="application/json, text/event-stream", content_type="application/json")
        with contextlib.suppress(Disconnected, OSError):
            (await http.begin("POST", "/mcp", fields, body, is_fresh=True)).pause()
        await asyncio.sleep(1.0)


def _signal_frozen(program: HttpProgram, number: signal.Signals) -> None:
    for each in descendants(program.pid):
        if b"frozen" in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0"):
            os.kill(each, number)


def _load_command(program: HttpProgram, group: str, sessions: int) -> tuple[str, ...]:
    options = ("--sessions", str(sessions), "--every", str(_EVERY_S), "--params", call(group))
    return (sys.executable, "-m", "tests.benchmarks.http_load", "--port", str(program.port), *options)


async def soak(chosen: argparse.Namespace) -> bool:
    """Run all phases and print what happened; return whether nothing was wrong."""
    history = History()

    def program(*command: str) -> Program:
        return Program(command=sys.executable, args=command, env=dict(os.environ), cwd=None)

    others = {
        "quiet": program(*SERVER[1:]),
        "frozen": program(*SERVER[1:], "frozen"),
        "flood": program(str(UPSTREAMS / "odd.py")),
    }
    with tempfile.TemporaryDirectory() as name:
        async with crowded_program(Path(name), history, others, tools_timeout=_TOOLS_TIMEOUT, **_HTTP) as served:
            run = Soak(served, history, chosen)
            before, after = await run.run()
        errors = served.errors()
    if chosen.history is not None:
        chosen.history.write_text(show(run.violations, history.events, chosen.seed))
    print(show_table(run.rows))
    print(f"before: {before}\nafter:  {after}\nmore than before: {after.growth(before) or 'nothing'}")
    print(f"clients that vanished beside the crowd: {run.vanished}; exit code {served.exit_code}; events: ", end="")
    print(len(history.events))
    print(f"stderr: {errors[-2000:] or 'nothing'}")
    return not run.violations and served.exit_code == 0


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--sessions", type=int, default=256)
    options.add_argument("--arrivals", type=int, default=768)
    options.add_argument("--seconds", type=float, default=20.0, help="how long latencies are measured in each phase")
    options.add_argument("--history", type=Path, help="write what is wrong, with the events around it, to this file")
    raise SystemExit(0 if asyncio.run(soak(options.parse_args())) else 1)


if __name__ == "__main__":
    main()
