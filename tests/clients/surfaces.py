"""Measure what a model gets of the two tools, of direct tools and of `auto`, and write it to docs/clients.md.

    python -m tests.clients.surfaces [CLIENT …] [NUMBER …]

Each run replaces the rows of these clients, with these numbers of tools, and leaves the others. The scripted model
looks for two tools, as far as it is shown how, and calls them at once. The clients are where
DYNAMIC_MCP_TEST_CLIENTS and DYNAMIC_MCP_TEST_NODE name them; see CONTRIBUTING.md.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients import fleet
from tests.clients.machine import HERE, Machine
from tests.clients.model import Call, Json, Model, Saying, Shown
from tests.clients.model.server import DONE
from tests.clients.report import PAGE, SURFACES
from tests.clients.table import CLIENTS, OURS, Client
from tests.clients.turns import CALL, SEARCH, run

WORDS = """
`python -m tests.clients.surfaces` measured this. The scripted model needs two tools that read, of the last server,
and knows their names: it calls both at once when it sees them, and else searches by the client's search or by ours.

| column | is |
|---|---|
| listing | the two tools, all tools by `"direct": true` without a limit, or `"direct": "auto"` |
| tokens at the start | what the first request has besides that of a client without servers, estimated as bytes / 4 |
| requests | how often the model is asked until it makes the right calls |
| tokens then | what the request before these calls has besides that of a client without servers |
| permission | the name that the client has for the calls, by which it asks a person and remembers |
| parallel | whether both calls reached the server at the same time |

`max_direct` is the default with `auto`, so of 500 tools these two are beyond it, as nothing was used before. A run
that has no row was not made, or did not come to the right calls: Copilot CLI refuses 500 tools, which are more than
it leaves room for. With `direct`, Claude Code, Copilot CLI and Qwen Code have all tools in the prompt, as `install`
writes a field that keeps ours there; with `auto` it leaves the field out where the client gets all tools.

"""
AFTER = """
`auto` is not the default. It costs Claude Code less than the two tools up to the limit of `max_direct`, and more beyond it; Codex
and Qwen Code get tools of their own, for more tokens but with few tools in Qwen Code; for all others it is the two tools. And an entry that an earlier
`install` wrote keeps all tools in the prompt, so another default would cost most who have one, until they install anew.

The connectors of the OpenAI and Claude APIs are not in the table: they call a server at a public URL from the vendor's
side, so they cannot be run without an account and the network.

### What a person is asked

Seen by hand, with the versions above, a config of ten tools on two servers, and nothing allowed beforehand: Claude Code with
`--permission-prompt-tool`, Codex (`-a on-request`) and Gemini CLI in a terminal. Other clients were not asked.

| client | listing | is asked for | what "always" remembers |
|---|---|---|---|
| Claude Code | two tools | `mcp__dynamic-mcp__get_dynamic_tools`, then `mcp__dynamic-mcp__call_dynamic_tool` with `group`, `name` and `args` | a rule with that name in the project's `.claude/settings.local.json`: the next call, of another tool, was not asked for |
| Claude Code | direct | `mcp__dynamic-mcp__fleet1__search_invoices`, and each other tool by its name | a rule for each tool |
| Codex | two tools | `call_dynamic_tool`, with `group`, `name` and `args`; not the search, which only reads | `approval_mode = "approve"` for `call_dynamic_tool` in `config.toml`: the next call, of another tool, was not asked for |
| Codex | direct | nothing: both tools say that they only read (`readOnlyHint`) | - |
| Gemini CLI | two tools | `get_dynamic_tools`, then `call_dynamic_tool` with `group`, `name` and `args` | that tool, or all of the server, until the session ends |
| Gemini CLI | direct | `fleet1__search_invoices`, and each other tool by its name | the same |

So with the two tools, "always" is for every tool of every server. What must be asked for each time is better asked by dynamic-mcp
itself: [approval](approval.md). `settings.split_calls` at least tells tools that only read from the others.
"""  # noqa: E501 - rows of a table
MEASURED = ("claude", "codex", "gemini", "qwen-code", "opencode", "copilot-cli", "kilocode", "cline")
# Tools in all, by how many servers.
SIZES = {10: 2, 50: 5, 500: 10}
MODES: dict[str, Json] = {
    "two tools": {"defaults": {"direct": False}},
    "direct": {"defaults": {"direct": True}, "max_direct": False},
    "auto": {"defaults": {"direct": "auto"}},
}
_TOKEN_BYTES = 4
_COLUMNS = 8
# Clients start their servers while the model thinks.
_THINK_S = 20.0
_THINK_LONGER_S = 0.05  # for each tool
# A client with 500 tools in its prompt may take minutes.
_TURN_S = 400.0
# How the searches of clients say that there is no such tool: with its name.
_NOT_FOUND = re.compile(r"^(Not found|No .* found).*$", re.MULTILINE)

# A row by its client, its number of tools and what is listed.
Row = tuple[str, str, str]


@dataclass(frozen=True)
class Wanted:
    """Two tools of one server, by their names there."""

    server: str
    tools: tuple[str, str]

    def listed(self, client: Client) -> list[str]:
        """Return what the client calls them where they are listed directly."""
        return [client.named(OURS, f"{self.server}__{tool}") for tool in self.tools]


@dataclass
class Seeker:
    """A model that wants two tools: it calls them if it sees them, else searches by what it is shown."""

    client: Client
    wanted: Wanted
    is_direct: bool

    def next(self, shown: Shown) -> Saying:
        """Return what the model says to a request."""
        if not shown.tools:
            return DONE
        own, call = self.wanted.listed(self.client), self.client.named(OURS, CALL)
        used = [result.tool for result in shown.results]
        if sum(each in (*own, call) for each in used) >= len(own):
            return DONE
        if set(own) <= set(shown.tools) or self._is_revealed(shown, own):
            return tuple(Call(name, {"project": "acme/site"}) for name in own)
        if self.is_direct and self._reveal(own) and self._reveals(shown) == 0:
            return self._reveal(own) or DONE
        search = self.client.named(OURS, SEARCH)
        if search not in used:
            tools = [search, call]
            if search not in shown.tools and not self._is_revealed(shown, tools) and self._reveal(tools):
                return (self._reveal(tools) or DONE) if self._reveals(shown) < 2 else DONE
            return Call(search, {"query": self.wanted.tools[0].replace("_", " "), "group": self.wanted.server})
        return tuple(
            Call(call, {"group": self.wanted.server, "name": tool, "args": {"project": "acme/site"}})
            for tool in self.wanted.tools
        )

    def _reveal(self, names: list[str]) -> Call | None:
        return self.client.reveal(names) if self.client.reveal else None

    def _reveals(self, shown: Shown) -> int:
        reveal = self._reveal(["x"])
        return 0 if reveal is None else sum(each.tool == reveal.tool for each in shown.results)

    def _is_revealed(self, shown: Shown, names: Iterable[str]) -> bool:
        reveal = self._reveal(["x"])
        texts = [
            _NOT_FOUND.sub("", each.text) for each in shown.results if reveal is not None and each.tool == reveal.tool
        ]
        return all(any(name in text for text in texts) for name in names)


@dataclass(frozen=True)
class Figures:
    """What one run showed; `start` and `context` are tokens beyond what the client alone sends its model.

    `turns` is how often the model was asked until it made the right calls, and `permission` the tool that the client
    would ask a person about.
    """

    start: int
    turns: int
    context: int
    parallel: int
    permission: str

    @property
    def cells(self) -> list[str]:
        """The figures as cells of a table."""
        parallel = "yes" if self.parallel > 1 else "no"
        return [f"{self.start:,}", f"{self.turns}", f"{self.context:,}", self.permission, parallel]


async def measure(client: Client, mode: str, number: int, base: int, folder: Path) -> Figures:
    """Run one turn of a client with so many tools; `base` is the size of the client's own first request."""
    machine, wanted = _prepared(mode, number, folder), _wanted(number)
    await machine.dynamic_mcp("stats", "--json")  # so that all catalogs are known
    think_s = _THINK_S + number * _THINK_LONGER_S
    model = Model(Seeker(client, wanted, is_direct=mode != "two tools"), think_s=think_s)
    async with model.listening():
        machine.write(client.write(model.url, {}))
        await machine.dynamic_mcp("install", client.name)
        ran = await run(client, machine, *client.go, url=model.url, within_s=_TURN_S)
    asked = [(body, shown) for body, shown in model.requests if shown.tools]
    own = wanted.listed(client)
    calls = {client.named(OURS, CALL), *own}
    answered = next((at for at, (_, shown) in enumerate(asked) if _times(shown, calls) >= len(own)), None)
    together = _most_together(machine, wanted.server)
    if answered is None or not together:
        raise RuntimeError(f"{client.name}, {mode}, {number} tools: the model did not get there: {ran}")
    used = {each.tool for each in asked[answered][1].results} & calls
    return Figures(
        (_size(asked[0][0]) - base) // _TOKEN_BYTES,
        answered,
        (_size(asked[answered - 1][0]) - base) // _TOKEN_BYTES,
        together,
        "each tool" if used <= set(own) else "`call_dynamic_tool`",
    )


def _most_together(machine: Machine, server: str) -> int:
    """Return how many calls of a server were in flight at once; 0 if none was made."""
    record = machine.folder / "servers" / f"fleet.py.{server}.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    return max((int(json.loads(line)["together"]) for line in lines), default=0)


async def measure_base(client: Client, folder: Path) -> int:
    """Return how long the first request of a client is that has no servers."""
    machine = Machine(folder)

    class Silent:
        def next(self, shown: Shown) -> Saying:
            return DONE

    model = Model(Silent())
    async with model.listening():
        machine.write(client.write(model.url, {}))
        ran = await run(client, machine, *client.go, url=model.url, within_s=_TURN_S)
    first = next((body for body, shown in model.requests if shown.tools), None)
    assert first is not None, f"{client.name} by itself did not ask its model: {ran}"
    return _size(first)


def _size(body: Json) -> int:
    """Return how much of a request the model reads: without the tools that are deferred."""
    tools = [each for each in body.get("tools") or () if not each.get("defer_loading")]
    return len(json.dumps({**body, "tools": tools}, ensure_ascii=False).encode())


def _times(shown: Shown, names: Iterable[str]) -> int:
    names = set(names)
    return sum(result.tool in names for result in shown.results)


def _wanted(number: int) -> Wanted:
    servers = SIZES[number]
    names = [each for each in fleet.tool_names(number // servers) if each.startswith(fleet.READING)]
    return Wanted(f"fleet{servers - 1}", (names[-1], names[-2]))  # the last, so that no limit favours them


def _prepared(mode: str, number: int, folder: Path) -> Machine:
    machine = Machine(folder)
    script = machine.folder / "servers" / "fleet.py"
    script.parent.mkdir(parents=True)
    shutil.copy(HERE / "fleet.py", script)
    servers = SIZES[number]
    entries = {
        f"fleet{each}": {"command": sys.executable, "args": [str(script), f"fleet{each}", str(number // servers)]}
        for each in range(servers)
    }
    machine.config.parent.mkdir(parents=True)
    machine.config.write_text(json.dumps({"mcpServers": entries, "settings": MODES[mode]}))
    return machine


async def measure_all(clients: Sequence[Client], numbers: Sequence[int]) -> dict[Row, Figures | None]:
    """Measure these clients with so many tools, one run after the other; None where a client did not get there."""
    found: dict[Row, Figures | None] = {}
    for client in clients:
        with tempfile.TemporaryDirectory() as folder:
            base = await measure_base(client, Path(folder) / "base")
            for number, mode in itertools.product(numbers, MODES):
                where = Path(folder) / f"{number}-{mode.replace(' ', '-')}"
                row = (client.title, str(number), mode)
                try:
                    found[row] = await measure(client, mode, number, base, where)
                except RuntimeError as exc:
                    print(exc, file=sys.stderr)
                    found[row] = None
                print(*row, found[row], file=sys.stderr, flush=True)
    return found


def section(rows: Mapping[Row, Sequence[str]]) -> str:
    """Return the section of the page, from the cells of its rows."""
    lines = [
        "| client | tools | listing | tokens at the start | requests | tokens then | permission | parallel |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for client, number, mode in itertools.product(CLIENTS, SIZES, MODES):
        row = (client.title, str(number), mode)
        if row in rows:
            lines.append(f"| {' | '.join((*row, *rows[row]))} |")
    return SURFACES + WORDS + "\n".join(lines) + "\n" + AFTER


def rows_of(text: str) -> dict[Row, Sequence[str]]:
    """Return the rows of a section, by the client, the number of tools and what is listed."""
    found: dict[Row, Sequence[str]] = {}
    for line in text.splitlines():
        cells = line.strip("|").split("|")
        if len(cells) == _COLUMNS and cells[1].strip().isdigit():
            client, number, mode, *figures = (cell.strip() for cell in cells)
            found[client, number, mode] = figures
    return found


def main() -> int:
    """Measure, and replace what was measured in the section."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()] or list(SIZES)
    names = [each for each in sys.argv[1:] if not each.isdigit()] or MEASURED
    found = asyncio.run(measure_all([each for each in CLIENTS if each.name in names], numbers))
    page, _, measured = PAGE.read_text().partition(SURFACES)
    rows = {row: cells for row, cells in rows_of(measured).items() if row not in found}
    rows |= {row: figures.cells for row, figures in found.items() if figures is not None}
    PAGE.write_text(page + section(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
