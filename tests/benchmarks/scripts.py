"""What a script saves: twelve tasks by single calls and by one script, in tokens and turns, and what a script costs.

usage: python -m tests.benchmarks.scripts [--fastmcp PYTHON] [--load]

With `--fastmcp`, the Python of an environment with `fastmcp[code-mode]`, its CodeMode does the same tasks. With
`--load`, twenty clients run scripts while another one makes plain calls, whose times are told.

The model is scripted: by single calls it makes those that the script makes, and calls that the script gathers are one
turn. Tokens are characters / 4: written ones are those of the calls, read ones those of their results. What a model
reads again in later turns is not counted. It judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import FakeUpstream, Json, Opener, config_of, group_config
from tests.features.scripts.scene import SLOW_S, ScriptClient, text

WORDS = "The page does not load when the session has ended meanwhile, and the message does not say why. "
ISSUES = [
    {"number": n, "title": f"Issue {n}", "state": "open", "body": WORDS * 4, "user": f"u{n % 7}", "at": n}
    for n in range(1, 21)
]
ROWS = [
    {"id": n, "customer": f"Customer {n}", "status": ("open", "paid")[n % 2], "days": n % 90, "amount": n * 3}
    for n in range(500)
]
IMAGE = {"type": "image", "data": "iVBORw0KGgo" * 3000, "mimeType": "image/png"}


def failing(args: Json) -> Json:
    """Fail at every other of the first tries."""
    return text({"ok": args["n"]}) if args.get("try", 9) > 1 else {**text("busy, try again"), "isError": True}


TOOLS: dict[str, Callable[[Json], Json]] = {
    "list_issues": lambda args: text(ISSUES),
    "list_comments": lambda args: text([{"by": f"u{args['issue'] % 3}", "at": 30, "body": WORDS * 3}] * 4),
    "query": lambda args: text(ROWS),
    "list_people": lambda args: text(
        [{"user": f"u{n}", "team": f"team {n % 3}", "mail": f"u{n}@x"} for n in range(60)]
    ),
    "list_files": lambda args: text(
        {"files": [{"name": f"f{args['page']}-{n}.py", "size": n, "sha": "0" * 40} for n in range(50)]}
        | ({"next": args["page"] + 1} if args["page"] < 10 else {})
    ),
    "job": failing,
    "weather": lambda args: (
        {**text("no such city"), "isError": True}
        if args["city"] % 5 == 0
        else text({"celsius": args["city"], "wind": WORDS, "hourly": [{"hour": n, "celsius": n} for n in range(24)]})
    ),
    "read_log": lambda args: text("\n".join(f"{n} {('INFO', 'ERROR')[n % 17 == 0]} {WORDS}" for n in range(60))),
    "screenshot": lambda args: {"content": [IMAGE]},
    "get_user": lambda args: text({"user": args["user"], "active": args["user"][-1] in "135", "bio": WORDS * 2}),
    "add_label": lambda args: text({"ok": True}),
    "now": lambda args: text({"now": "2026-11-26T18:00:00Z"}),
}
GATHER = "import asyncio\n"
# Each task: its name, and the script.
TASKS = {
    "fan out over 20": GATHER
    + """issues = await call("s", "list_issues", {"state": "open"})
found = await asyncio.gather(*[call("s", "list_comments", {"issue": each["number"]}) for each in issues])
return [each["number"] for each, comments in zip(issues, found) if comments[-1]["by"] == "u0"][:3]""",
    "filter 500 rows": """rows = await call("s", "query", {"sql": "select * from orders"})
late = [each for each in rows if each["status"] == "open" and each["days"] > 85]
return {"count": len(late), "sum": sum(each["amount"] for each in late)}""",
    "join two servers": """teams = {each["user"]: each["team"] for each in await call("s", "list_people")}
counts = {}
for each in await call("s", "list_issues", {"state": "open"}):
    team = teams[each["user"]]
    counts[team] = counts.get(team, 0) + 1
return counts""",
    "paginate": """names, page = [], 1
while page:
    found = await call("s", "list_files", {"page": page})
    names += [each["name"] for each in found["files"] if each["size"] > 47]
    page = found.get("next")
return len(names)""",
    "retry": """for number in range(5):
    try:
        return await call("s", "job", {"n": 7, "try": number})
    except ToolError:
        pass""",
    "partial failure": GATHER
    + """async def find(city):
    try:
        return (await call("s", "weather", {"city": city}))["celsius"]
    except ToolError:
        return None
found = await asyncio.gather(*[find(city) for city in range(1, 13)])
return {"warmest": max(each for each in found if each), "failed": found.count(None)}""",
    "aggregate": GATHER
    + """logs = await asyncio.gather(*[call("s", "read_log", {"day": day}) for day in range(7)])
return [log.count("ERROR") for log in logs]""",
    "an image": 'return await call("s", "screenshot")',
    "nested conditions": """active = []
for user in sorted({each["user"] for each in await call("s", "list_issues", {"state": "open"})}):
    if (await call("s", "get_user", {"user": user}))["active"]:
        comments = await call("s", "list_comments", {"issue": int(user[1:])})
        if len(comments) > 3:
            active.append(user)
return active""",
    "stop early": """page = 1
while page:
    found = await call("s", "list_files", {"page": page})
    if any(each["name"] == "f3-10.py" for each in found["files"]):
        return page
    page = found.get("next")""",
    "respect a limit": """done = 0
for each in await call("s", "list_issues", {"state": "open"}):
    if each["number"] % 2 and done < 5:
        await call("s", "add_label", {"number": each["number"], "label": "stale"})
        done += 1
return done""",
    "one call only": 'return await call("s", "now")',
}
TWENTY = GATHER + 'return len(await asyncio.gather(*[call("s", "now") for _ in range(20)]))'


class ToolError(Exception):
    """A call has failed."""


class Single:
    """The model that makes single calls, and what it writes and reads."""

    def __init__(self, client: ScriptClient) -> None:
        self._client = client
        self._in_flight = 0
        self.recorded: dict[str, dict[str, Json]] = {}
        self.written = self.read = self.turns = 0

    async def run(self, code: str) -> Json:
        """Do what a script does, by single calls."""
        names: dict[str, Any] = {"call": self.call, "ToolError": ToolError}
        exec("async def task():\n" + textwrap.indent(code, "    "), names)  # noqa: S102 - our own code
        task: Callable[[], Awaitable[Json]] = names["task"]
        return await task()

    async def call(self, group: str, name: str, args: Json = None) -> Json:
        """Make one call."""
        self.turns += self._in_flight == 0
        self._in_flight += 1
        self.written += len(json.dumps({"group": group, "name": name, "args": args or {}}))
        result = await self._client.call(group, name, args or {})
        self._in_flight -= 1
        self.recorded.setdefault(name, {})[json.dumps(args or {}, sort_keys=True)] = result
        self.read += _size(result)
        if result.get("isError"):
            raise ToolError
        block = result["content"][0]
        if "text" not in block:
            return block
        try:
            return json.loads(block["text"])
        except ValueError:
            return block["text"]


def _size(result: Json) -> int:
    return sum(len(block.get("text", "")) for block in result["content"])


async def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fastmcp", metavar="PYTHON")
    parser.add_argument("--load", action="store_true")
    asked = parser.parse_args()
    upstream = FakeUpstream({"tools/call": lambda params: TOOLS[params["name"]](params["arguments"])}, tools=TOOLS)
    config = config_of(group_config("s", share=Share.ALL), scripts=Scripts(calls=200))
    proxy = Proxy(config, opener=Opener(s=[upstream]))
    client = ScriptClient(proxy, bound_s=SLOW_S)
    await client.initialize()
    print(
        f"{'':20}{'single calls: written':>22}{'read':>8}{'turns':>7}{'a script: written':>20}{'read':>7}{'share':>8}"
    )
    recorded: dict[str, dict[str, Json]] = {}
    for name, code in TASKS.items():
        single = Single(client)
        expected = await single.run(code)
        for tool, results in single.recorded.items():
            recorded.setdefault(tool, {}).update(results)
        result = await client.run(code)
        with contextlib.suppress(ValueError):
            assert json.loads(result["content"][0].get("text", "")) == expected, (name, result)
        written, read = len(json.dumps({"code": code})), _size(result)
        share = (written + read) / (single.written + single.read)
        print(
            f"{name:20}{single.written // 4:22,}{single.read // 4:8,}{single.turns:7}"
            f"{written // 4:20,}{read // 4:7,}{share:8.0%}"
        )
    for label, code in (("nothing", "return 1"), ("20 calls at once", TWENTY)):
        times = []
        for _ in range(20):
            began = time.perf_counter()
            await client.run(code)
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        print(f"a script of {label}: {times[10]:.1f} ms (best {times[0]:.1f})")
    print(f"memory of this process: {_resident_mib()} MiB")
    if asked.load:
        await measure_load(proxy, client)
    await proxy.close()
    if asked.fastmcp:
        compare(asked.fastmcp, recorded)


async def measure_load(proxy: Proxy, client: ScriptClient) -> None:
    """Print how long plain calls take beside twenty clients that run scripts."""
    for count in (0, 20):
        clients = [ScriptClient(proxy, bound_s=SLOW_S) for _ in range(count)]
        for each in clients:
            await each.initialize()
        running = [asyncio.create_task(_run_for_ever(each)) for each in clients]
        times = []
        for _ in range(1000):
            began = time.perf_counter()
            await client.call("s", "now", {})
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        times.sort()
        print(f"a plain call beside {len(ended)} clients: {times[500]:.2f} ms, p99 {times[990]:.2f} ms")


async def _run_for_ever(client: ScriptClient) -> None:
    while True:
        await client.run(TWENTY)


def compare(python: str, recorded: dict[str, dict[str, Json]]) -> None:
    """Print what the same tasks take by FastMCP's CodeMode."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tasks.json")
        file.write_text(json.dumps({"tools": recorded, "tasks": TASKS, "twenty": TWENTY}))
        script = str(Path(__file__).with_name("fastmcp_scripts.py"))  # -P: a module here is named `http`
        found = json.loads(subprocess.check_output([python, "-P", script, str(file)]).splitlines()[-1])
    print(f"FastMCP CodeMode: its tools take {found['tools'] // 4} tokens")
    for name, task in found["tasks"].items():
        written = len(json.dumps({"code": TASKS[name].replace('call("s", ', "call_tool(")}))
        outcome = f"failed: {task['text']}" if task["failed"] else task["text"][:40]
        print(f"{name:20}{written // 4:8,}{task['read'] // 4:8,}  {outcome}")
    times = found["times"]
    print(f"a script of 20 calls at once: {times[10]:.1f} ms (best {times[0]:.1f})")
    print(f"memory of its process: {found['resident_mib']} MiB")


def _resident_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) >> 10


if __name__ == "__main__":
    asyncio.run(main())
