"""Whole turns: a client, the scripted model behind it, and the witness, alone or through dynamic-mcp."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.clients.files import Server, Servers
from tests.clients.machine import MODULES, TURN_S, Machine, Ran
from tests.clients.model import Call, Model, Result, Script
from tests.clients.table import OURS, Client
from tests.clients.witness import RESULTS
from tests.clients.witness_http import RemoteWitness
from tests.upstreams.odd_http import Request

Json = Any  # whatever JSON a test writes down
SEARCH, CALL = "get_dynamic_tools", "call_dynamic_tool"
SERVER = "lighthouses"
NAMES = tuple(RESULTS)
CHOOSE = "choose_lighthouse"
SHELL = {"V_SET": "a value", "V_EMPTY": "", "V_SHELL": "shell", "AWS_PROFILE": "harbour"}
PASSED = ("V_SHELL", "V_EMPTY", "V_UNSET")
SPELLINGS = (
    *("$V_SET", "${V_SET}", "x${V_SET}y", "${V_SET:-other}", "${V_UNSET:-other}", "${V_EMPTY:-other}", "$V_EMPTY"),
    *("$V_UNSET", "${V_UNSET}", "${env:V_SET}", "${env:V_UNSET}", "{env:V_SET}", "{env:V_UNSET}", "$env:V_SET"),
    *("%V_SET%", "$$V_SET", "$${V_SET}", "\\${V_SET}", "a$b", "100%", "~/x", "${HOME}"),
)


@dataclass(frozen=True)
class Turn:
    """What came of a turn.

    `first` are the tools in the model's first request, `results` what the calls brought; `witnessed` is how the
    server was started, `greetings` how it was greeted over HTTP.
    """

    machine: Machine
    ran: Ran
    first: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    witnessed: list[dict[str, Json]] = field(default_factory=list)
    greetings: list[Request] = field(default_factory=list)

    @property
    def started(self) -> dict[str, Json]:
        """How the server was started and greeted last; the machine's folder is `<machine>`."""
        assert self.witnessed, f"the server was not started: {self.ran}"
        return self._placed(self.witnessed[-1])  # type: ignore[no-any-return]

    @property
    def reached(self) -> tuple[str, dict[str, str]]:
        """With which path and headers the server was greeted last over HTTP."""
        assert self.greetings, f"the server was not reached: {self.ran}"
        return self._placed(self.greetings[-1].path), self._placed(self.greetings[-1].headers)

    def of_tools(self) -> Mapping[str, Result]:
        """Return the results of the server's tools, by their name."""
        assert len(self.results) >= len(NAMES), self.ran
        return dict(zip(NAMES, self.results[-len(NAMES) :], strict=True))

    def _placed(self, value: Json) -> Json:
        return json.loads(json.dumps(value).replace(str(self.machine.folder), "<machine>"))


async def alone(client: Client, folder: Path) -> Turn:
    """Return a turn in which the client has the server itself, and the model calls each of its tools."""
    machine = Machine(folder)
    return await played(client, machine, program(machine), direct(client, *NAMES))


async def through(client: Client, folder: Path) -> Turn:
    """Return a turn after `import` and `install --replace`, in which the model searches and calls each tool."""
    machine = Machine(folder)
    return await played(client, machine, program(machine), found(client, *NAMES), replaced=True)


async def cold(client: Client, folder: Path) -> Turn:
    """Return a turn in which the server answers only once the model has been asked, and so has yet to be known."""
    machine = Machine(folder)
    gate = folder / "asked"
    servers = program(machine, "--until", str(gate))
    return await played(client, machine, servers, found(client, *NAMES), replaced=True, when_asked=gate.touch)


async def spelled_alone(client: Client, folder: Path) -> Turn:
    """Return a turn with a server whose arguments and variables have every spelling of a variable."""
    machine = Machine(folder, SHELL)
    return await played(client, machine, spelled(client, machine), direct(client, NAMES[0]))


async def spelled_through(client: Client, folder: Path) -> Turn:
    """Return the same, through dynamic-mcp."""
    machine = Machine(folder, SHELL)
    return await played(client, machine, spelled(client, machine), found(client, NAMES[0]), replaced=True)


async def remote_alone(client: Client, folder: Path) -> Turn:
    """Return a turn with a remote server whose URL and headers have every spelling of a variable."""
    async with RemoteWitness().listening() as witness:
        servers = spelled_remote(client, witness.url)
        turn = await played(client, Machine(folder, SHELL), servers, direct(client, NAMES[0]))
    return replace(turn, greetings=witness.greetings)


async def remote_through(client: Client, folder: Path) -> Turn:
    """Return the same, through dynamic-mcp."""
    async with RemoteWitness().listening() as witness:
        servers = spelled_remote(client, witness.url)
        turn = await played(client, Machine(folder, SHELL), servers, found(client, NAMES[0]), replaced=True)
    return replace(turn, greetings=witness.greetings)


async def asking(client: Client, folder: Path) -> Turn:
    """Return a turn in which the server asks the person, through dynamic-mcp."""
    machine = Machine(folder)
    return await played(client, machine, program(machine), found(client, CHOOSE), replaced=True)


async def by_shell(client: Client, folder: Path) -> Turn:
    """Return a turn after `install --cli`, in which the model reads the skill and runs its commands.

    `first` are the model's requests.
    """
    assert client.in_shell is not None
    assert client.read_skill is not None
    machine = Machine(folder)
    entry = {"command": sys.executable, "args": [str(machine.witness)], "description": "Lights at the coast"}
    machine.write({str(machine.config.relative_to(machine.home)): json.dumps({"mcpServers": {SERVER: entry}})})
    model = Model(Script([]))
    async with model.listening():
        machine.write(client.write(model.url, {}))
        installed = json.loads((await machine.dynamic_mcp("install", client.name, "--cli", "--json")).out)
        skill = Path(installed["file"])
        script = [client.read_skill(OURS, skill), *map(client.in_shell, commands_of(skill))]
        model.play(Script(script))
        ran = await run(client, machine, *client.go, url=model.url)
    requests = tuple(json.dumps(body, ensure_ascii=False) for body, shown in model.requests if shown.tools)
    results = model.asked[-1].results if model.asked else ()
    return Turn(machine, ran, requests, results, machine.witnessed)


def commands_of(skill: Path) -> list[str]:
    """Return the search that a skill names, and its call of each tool, for this server."""
    text = skill.read_text(encoding="utf-8")
    lines = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    search = next(line for line in lines if " tools " in line).replace("what you need", "lighthouse")
    at = lines.index("# sh") + 1
    call = "\n".join(lines[at : at + 3]).replace('{"name": "value"}', "{}")
    return [search, *(call.replace("SERVER TOOL", f"{SERVER} {name}") for name in NAMES)]


def program(machine: Machine, *args: str) -> Servers:
    """Return the server, as a program."""
    return {SERVER: Server((sys.executable, str(machine.witness), *args))}


def spellings_of(client: Client) -> list[str]:
    """Return the spellings that the client takes."""
    return [each for each in SPELLINGS if each not in client.refuses]


def spelled(client: Client, machine: Machine) -> Servers:
    """Return the server with all that the client takes of the spellings."""
    spellings = spellings_of(client)
    variables = {f"V_OWN_{number}": each for number, each in enumerate(spellings)}
    return {SERVER: Server((sys.executable, str(machine.witness), *spellings), variables, passed=PASSED)}


def spelled_remote(client: Client, url: str) -> Servers:
    """Return the remote server with all that the client takes of the spellings, some of them in its path."""
    headers = {f"V-{number}": f"x {each}" for number, each in enumerate(spellings_of(client))}
    return {SERVER: Server(url=f"{url}/mcp/{client.in_url}", headers=headers, passed=PASSED)}


def direct(client: Client, *names: str) -> list[Call]:
    """Return a call of each of these tools, by the client's own name for it."""
    return [Call(client.named(SERVER, name)) for name in names]


def found(client: Client, *names: str) -> list[Call]:
    """Return a search and a call of each of these tools, by the program's two."""
    call = client.named(OURS, CALL)
    search = Call(client.named(OURS, SEARCH), {"query": "lighthouse"})
    return [search, *(Call(call, {"group": SERVER, "name": name, "args": {}}) for name in names)]


async def played(
    client: Client,
    machine: Machine,
    servers: Servers,
    calls: Sequence[Call],
    *,
    replaced: bool = False,
    when_asked: Callable[[], None] = lambda: None,
) -> Turn:
    """Return a turn of these calls, with the servers as the client's own, or behind the program."""
    tools = list(dict.fromkeys(call.tool for call in calls))
    reveal = client.reveal(tools) if client.reveal else None
    model = Model(Script(calls, reveal), when_asked)
    async with model.listening():
        machine.write(client.write(model.url, servers))
        if replaced:
            await put_in_front(client, machine)
        if client.call:
            return await _called(client, machine, calls)
        ran = await run(client, machine, *client.go, url=model.url)
    first = model.asked[0].tools if model.asked else ()
    results = model.asked[-1].results if model.asked else ()
    brought = tuple(each for each in results if reveal is None or each.tool != reveal.tool)
    return Turn(machine, ran, first, brought, machine.witnessed)


async def run(
    client: Client, machine: Machine, *args: str, url: str = "http://127.0.0.1:9", within_s: float = TURN_S
) -> Ran:
    """Run the client itself."""
    program = str(MODULES / ".bin" / client.program)
    return await machine.run(program, *args, variables=client.variables(url), within_s=within_s)


async def put_in_front(client: Client, machine: Machine) -> None:
    """Import the client's servers, and put the program in their place."""
    if client.installs:
        await machine.dynamic_mcp("import", client.name, "--scope", "user", "--yes")
        await machine.dynamic_mcp("install", client.name, "--replace")
        return
    await machine.dynamic_mcp("import", "--file", str(machine.home / client.file), "--yes")
    config = str(machine.config)
    machine.write(client.write("", {OURS: Server(("dynamic-mcp", config))}))


async def _called(client: Client, machine: Machine, calls: Sequence[Call]) -> Turn:
    """Return a turn of a client without a model, which is run for each call."""
    assert client.call is not None
    results = []
    ran = Ran(0, "", "")
    for call in calls:
        server, _, tool = call.tool.partition(".")
        ran = await run(client, machine, *client.call(server, tool, dict(call.arguments)))
        results.append(_printed(call.tool, ran.out))
    return Turn(machine, ran, (), tuple(results), machine.witnessed)


def _printed(tool: str, out: str) -> Result:
    """Return the result that a client has printed as JSON."""
    result = Result(tool, [out])
    for printed in objects_in(out):
        blocks = printed.get("content", [])
        result.texts += [each["text"] for each in blocks if each["type"] == "text"]
        result.images += [each["data"] for each in blocks if each["type"] == "image"]
        result.is_error = bool(printed.get("isError"))
    return result


def without_noise(client: Client, result: Result) -> Result:
    """Return a result without what differs from turn to turn, and without the name that the tool has here."""
    texts = [re.sub(client.noise, "…", text) for text in result.texts]
    return Result("", texts, result.images, result.is_error)


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
