"""Whole turns: a client, the scripted model behind it, and the witness, alone or through dynamic-mcp."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.machine import MODULES, Machine, Ran
from tests.clients.model import Call, Model, Result, Script
from tests.clients.table import OURS, Client, Server, Servers
from tests.clients.witness import TOOLS

Json = Any  # whatever JSON a test writes down
SEARCH, CALL = "get_dynamic_tools", "call_dynamic_tool"
SERVER = "lighthouses"
NAMES = tuple(tool["name"] for tool in TOOLS)


@dataclass(frozen=True)
class Turn:
    """What came of a turn; `first` are the tools in the model's first request, `results` what the calls brought."""

    ran: Ran
    first: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    witnessed: list[dict[str, Json]] = field(default_factory=list)


def witness(machine: Machine, *args: str, **env: str) -> Servers:
    """Return the one server, as a program."""
    return {SERVER: Server((sys.executable, str(machine.witness), *args), env)}


async def alone(client: Client, folder: Path) -> Turn:
    """Return a turn in which the client has the server itself, and the model calls each of its tools."""
    machine = Machine(folder)
    return await played(client, machine, witness(machine), [Call(client.named(SERVER, name)) for name in NAMES])


async def through(client: Client, folder: Path) -> Turn:
    """Return a turn after `import` and `install --replace`, in which the model searches and calls each tool."""
    machine = Machine(folder)
    return await played(client, machine, witness(machine), calls_through(client, NAMES), replaced=True)


def calls_through(client: Client, names: Sequence[str]) -> list[Call]:
    """Return a search and a call of each of these tools, by the program's two."""
    call = client.named(OURS, CALL)
    search = Call(client.named(OURS, SEARCH), {"query": "lighthouse"})
    return [search, *(Call(call, {"group": SERVER, "name": name, "args": {}}) for name in names)]


async def played(
    client: Client, machine: Machine, servers: Servers, calls: Sequence[Call], *, replaced: bool = False
) -> Turn:
    """Return a turn of these calls, with the servers as the client's own, or behind the program."""
    tools = list(dict.fromkeys(call.tool for call in calls))
    model = Model(Script(calls, client.reveal(tools) if client.reveal else None))
    async with model.listening():
        machine.write(client.write(model.url, servers))
        if replaced:
            await replace(client, machine)
        ran = await machine.run(
            str(MODULES / ".bin" / client.program), *client.go, variables=client.variables(model.url)
        )
    if not model.asked:
        return Turn(ran, witnessed=machine.witnessed)
    reveal = client.reveal(tools).tool if client.reveal else ""
    results = tuple(each for each in model.asked[-1].results if each.tool != reveal)
    return Turn(ran, model.asked[0].tools, results, machine.witnessed)


async def replace(client: Client, machine: Machine) -> None:
    """Import the client's servers, and put the program in their place."""
    await machine.dynamic_mcp("import", client.name, "--scope", "user", "--yes")
    await machine.dynamic_mcp("install", client.name, "--replace")


def by_tool(turn: Turn) -> Mapping[str, Result]:
    """Return the results of the server's tools, by their name."""
    return dict(zip(NAMES, turn.results[-len(NAMES) :], strict=True))


def objects_in(text: str) -> Iterator[dict[str, Json]]:
    """Yield each JSON object that is in a text, among whatever the client writes around it."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            end = at + 1
        else:
            yield value
        at = text.find("{", end)
