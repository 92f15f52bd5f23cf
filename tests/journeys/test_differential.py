"""The same client, the same requests: what comes through the proxy is what the server itself says, byte for byte.

Apart from ids, and from what the docs name: prompts are listed, and loggers named, behind their group, and questions
say which server asks. The server is reached over stdio, streamable HTTP and the older HTTP+SSE; directly it is asked
over stdio. The npm server is used where `mcp-server-everything` is on the PATH; clock and chance stand still in it
(frozen.cjs).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.mcp import names, wire
from tests import hosting
from tests.journeys.remote_server import free_port, listening
from tests.program import Json, Program, full, started, window_command
from tests.upstreams import full_offers as offers
from tests.upstreams.full import options_from
from tests.upstreams.full_http import FullHttp

GROUP = "up"
# Both sides of a comparison run in this, and the proxy hands just this on to the server.
PASSED = ("PATH", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
CAPABILITIES: Json = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
}
ANSWERS = {
    "roots/list": b'{"roots":[{"uri":"file:///a%20b","name":"caf\\u00e9","x-root":1}]}',
    "sampling/createMessage": b'{"role":"assistant","model":"m","content":{"type":"text","text":"\\u00e4","x":1.50}}',
    "elicitation/create": b'{"action":"accept","content":{"name":"Ada","integer":7,"interpretation":"historical"}}',
}
AS_TASKS = {
    "sampling/createMessage": b'{"task":{"taskId":"mine","status":"working","ttl":null}}',
    "elicitation/create": b'{"task":{"taskId":"mine","status":"working","ttl":null}}',
    "tasks/get": b'{"taskId":"mine","status":"completed","ttl":null,"x-n":1.50}',
    "tasks/result": b'{"action":"decline","role":"assistant","content":{"type":"text","text":"t"},"model":"m"}',
}
SHOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
OVER = pytest.mark.parametrize("over", ["stdio", "http", "sse"])
LISTS = [
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
]


class Peer:
    """A client of a server itself; `log` holds what it got, to be compared."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.log: list[bytes] = []

    async def ask(self, method: str, params: Json = b"{}") -> bytes:
        """Send a request, and note and return the answer: all but the id and the version."""
        answer = wire.members(await self.program.exchange(method, _json(params)))
        return self.note({key: value for key, value in answer.items() if key not in ("jsonrpc", "id")})

    async def call(self, tool: str, arguments: Json = b"{}", **params: Json) -> bytes:
        """Call a tool."""
        return await self.ask("tools/call", {"name": tool, "arguments": Raw(_json(arguments)), **params})

    async def get_prompt(self, name: str, arguments: Json = b"{}") -> bytes:
        """Get a prompt."""
        return await self.ask("prompts/get", {"name": name, "arguments": Raw(_json(arguments))})

    async def list_all(self, method: str, member: str, wanted: str = "") -> list[Raw]:
        """Note and return the entries of a list; one that has changed is asked for until it has what is wanted."""
        changed = f"notifications/{method.partition('/')[0]}/list_changed"
        changes = 0
        found = await self._entries(method, member)
        while wanted and wanted.encode() not in b"".join(map(bytes, found)):
            changes += 1
            await self.program.hears(changed, changes)
            found = await self._entries(method, member)
        for entry in found:
            renamed = "name" if member == "prompts" else ""
            self.note({key: value for key, value in wire.members(entry).items() if key != renamed})
        return found

    async def _entries(self, method: str, member: str) -> list[Raw]:
        """Return what is on all pages of a list."""
        found: list[Raw] = []
        cursor = b""
        while True:
            page = await self.program.exchange(method, b'{"cursor":%s}' % cursor if cursor else b"{}")
            found += wire.elements(wire.member(page, "result", member))
            cursor = bytes(wire.member(page, "result", "nextCursor"))
            if not cursor:
                return found

    async def tools(self) -> list[Raw]:
        """Return the tools, with at least what a model is shown of them."""
        return await self._entries("tools/list", "tools")

    def note(self, members: dict[str, Raw]) -> bytes:
        """Keep an answer, or an entry, for the comparison."""
        self.log.append(wire.encode(members))
        return self.log[-1]

    def heard(self) -> list[tuple[str, dict[str, Raw]]]:
        """Return what the server said and asked, in order; that lists change it says of itself and of others."""
        frames = [wire.parse(line) for line in self.program.lines]
        return [
            (frame.method, self.as_said(frame))
            for frame in frames
            if frame.method and not frame.method.endswith("list_changed")
        ]

    def as_said(self, frame: wire.Frame) -> dict[str, Raw]:
        """Return the params of a message, without the token that belongs to its id."""
        params = frame.params
        if len(frame.id) and len(wire.member(params, "_meta", "progressToken")):
            params = wire.with_member(params, None, "_meta", "progressToken")
        return wire.members(params) if len(params) else {}


class Through(Peer):
    """A client of the proxy in front of that server."""

    async def call(self, tool: str, arguments: Json = b"{}", **params: Json) -> bytes:
        inner = {"group": GROUP, "name": tool, "args": Raw(_json(arguments))}
        return await self.ask("tools/call", {"name": "call_dynamic_tool", "arguments": inner, **params})

    async def get_prompt(self, name: str, arguments: Json = b"{}") -> bytes:
        return await super().get_prompt(names.qualified_name(GROUP, name), arguments)

    async def tools(self) -> list[Raw]:
        shown = await self.program.request(
            "tools/call", {"name": "get_dynamic_tools", "arguments": {"group": GROUP, "detail": "full"}}
        )
        listed = Raw(shown["result"]["content"][0]["text"].encode())
        return wire.elements(wire.member(listed, "tools"))

    def as_said(self, frame: wire.Frame) -> dict[str, Raw]:
        params = super().as_said(frame)
        if frame.method == "notifications/message":
            own = (wire.text(params["logger"]) or "").removeprefix(GROUP).removeprefix("/")
            params["logger"] = Raw(wire.encode(own))
            if not own:
                del params["logger"]
        if frame.method in ("elicitation/create", "sampling/createMessage"):
            assert wire.text(wire.member(frame.params, "_meta", "dynamic-mcp/group")) == GROUP
            params = _without_group(params)
        return params

    def note(self, members: dict[str, Raw]) -> bytes:
        asked = wire.member(members.get("error", wire.EMPTY_OBJECT), "data", "elicitations")
        if len(asked):
            plain = [_without_group(wire.members(each)) for each in wire.elements(asked)]
            members = {**members, "error": wire.with_member(members["error"], plain, "data", "elicitations")}
        # what a server writes in the name of the proxy is renamed
        return super().note(
            {
                key: Raw(bytes(value).replace(b'"upstream.dynamic-mcp/', b'"dynamic-mcp/'))
                for key, value in members.items()
            }
        )


def _without_group(question: dict[str, Raw]) -> dict[str, Raw]:
    """Return a question without what says which server asks it."""
    plain = dict(question)
    if "message" in plain:
        message = bytes(plain["message"])
        assert message.startswith(b'"%s asks: ' % GROUP.encode())
        plain["message"] = Raw(message.replace(b"%s asks: " % GROUP.encode(), b"", 1))
    name = b'"dynamic-mcp/group":"%s"' % GROUP.encode()
    meta = bytes(plain["_meta"])
    assert name in meta
    meta = meta.replace(b"," + name, b"").replace(name, b"")
    if meta == b"{}":
        del plain["_meta"]
    else:
        plain["_meta"] = Raw(meta)
    return plain


def _json(value: Json) -> bytes:
    return value if isinstance(value, bytes) else wire.encode(value)


@contextlib.asynccontextmanager
async def served(config: Json, over: str) -> AsyncIterator[Json]:
    """Run the server of a config so that it is reached over this, and hand out the config for that."""
    if over == "stdio":
        yield config
    elif "full.py" in config["args"][0]:
        options = options_from(config["args"][1:])
        async with FullHttp(options, older=over == "sse").listening() as url:
            yield {"url": url, "type": over}
    else:
        port = free_port()
        kind = {"http": "streamableHttp", "sse": "sse"}[over]
        environment = {**config["env"], "PORT": str(port)}
        async with listening(config["command"], kind, port=port, env=environment):
            yield {"url": f"http://127.0.0.1:{port}/{'mcp' if over == 'http' else 'sse'}", "type": over}


@contextlib.asynccontextmanager
async def meeting(side: type[Peer], config: Json, folder: Path, over: str = "stdio") -> AsyncIterator[Peer]:
    """Start a server, or the proxy in front of it, and shake hands."""
    async with served(config, over if side is Through else "stdio") as reached, _met(side, reached, folder) as peer:
        yield peer


@contextlib.asynccontextmanager
async def _met(side: type[Peer], config: Json, folder: Path) -> AsyncIterator[Peer]:
    common = {"LANG": "C.UTF-8", **{name: os.environ[name] for name in PASSED}}
    environment = {**common, **config.get("env", {})}
    command = [config.get("command"), *config.get("args", ())]
    if side is Through:
        file = folder / "dynamic-mcp.json"
        file.write_text(json.dumps({"mcpServers": {GROUP: {**config, "validate": "off"}}}))
        own = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}
        environment = {**common, **own}
        command = [*window_command(str(file))]
    host = hosting.hosting if side is Through else None
    async with started(*command, env=environment, terminate=side is Peer, hosting=host) as program:
        program.answers = ANSWERS
        await program.initialize(capabilities=CAPABILITIES)
        yield side(program)


async def assert_same(
    config: Json, folder: Path, visit: Callable[[Peer], Awaitable[None]], over: str = "stdio"
) -> None:
    """Make the same visit to the server twice and to the proxy once, and compare all that came back."""

    async def seen(side: type[Peer]) -> tuple[list[bytes], list[tuple[str, dict[str, Raw]]]]:
        async with meeting(side, config, folder, over) as peer:
            await visit(peer)
            return peer.log, peer.heard()

    direct, again, through = await asyncio.gather(seen(Peer), seen(Peer), seen(Through))
    assert direct == again, "the server itself does not answer alike twice"
    if over == "stdio":
        for mine, theirs in zip(through[0], direct[0], strict=True):
            assert mine == theirs
        assert through[1] == direct[1]
        return
    for mine, theirs in zip(through[0], direct[0], strict=True):
        assert without_session(mine) == without_session(theirs)
    mine_said, theirs_said = ([_said(*each) for each in side] for side in (through[1], direct[1]))
    if over == "http":  # what belongs to no request comes on another connection, so its place among the rest is open
        mine_said, theirs_said = sorted(mine_said), sorted(theirs_said)
    assert mine_said == theirs_said


def _said(method: str, params: dict[str, Raw]) -> bytes:
    return method.encode() + without_session(wire.encode(params))


def without_session(text: bytes) -> bytes:
    """Leave out the id of the session, which only a server over HTTP has, and tell ids by their form alone."""
    text = re.sub(rb"( - SessionId |(from )?session )(undefined|" + _UUID + rb")", b"", text)
    return re.sub(_UUID + rb"|\b([0-9a-f]{2})\1{7,}\b", b"(an id)", text)


_UUID = rb"00000000-0000-4000-8000-[0-9]{12}"


# --- the official server -------------------------------------------------------------------------------------


def everything() -> Json:
    """Return the config of the npm server, or skip the test."""
    command = shutil.which("mcp-server-everything")
    if command is None:
        pytest.skip("the command `mcp-server-everything` is not on the PATH of this machine")
    frozen = Path(__file__).parent / "frozen.cjs"
    return {"command": command, "args": ["stdio"], "env": {"NODE_OPTIONS": f"--require {frozen}"}}


# What its tools are called with; all others with nothing.
ARGUMENTS: dict[str, list[Json]] = {
    "echo": [{"message": "h\u00e9"}, {}],
    "get-annotated-message": [{"messageType": kind, "includeImage": True} for kind in ("error", "success", "debug")],
    "get-resource-links": [{"count": 4}, {"count": 99}],
    "get-resource-reference": [{"resourceType": kind, "resourceId": 3} for kind in ("Text", "Blob", "None")],
    "get-structured-content": [{"location": "Chicago"}],
    "get-sum": [{"a": 1, "b": 2.5}, {"a": "x"}],
    "gzip-file-as-resource": [
        {"name": "a.gz", "data": "data:text/plain,hello", "outputType": kind} for kind in ("resource", "resourceLink")
    ],
    "toggle-simulated-logging": [{}, {}],
    "toggle-subscriber-updates": [{}, {}],
    "trigger-long-running-operation": [{"duration": 0.1, "steps": 2}],
    "trigger-sampling-request": [{"prompt": "p", "maxTokens": 7}],
    "trigger-sampling-request-async": [{"prompt": "p", "maxTokens": 7}],
    "trigger-url-elicitation": [
        {"url": "https://example.com/", "elicitationId": "e"},
        {"url": "https://example.com/", "errorPath": True},
    ],
}
COMPLETIONS: list[Json] = [
    {
        "ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
        "argument": {"name": "resourceId", "value": "7"},
    },
    {
        "ref": {"type": "ref/prompt", "name": "completable-prompt"},
        "argument": {"name": "name", "value": ""},
        "context": {"arguments": {"department": "Sales"}},
    },
]


async def _settled_in(peer: Peer) -> None:
    """Wait until the server has asked for the roots, which it does when it likes, and has said so."""
    await peer.program.hears("notifications/message")


@pytest.mark.full
@OVER
async def test_every_tool_of_everything_answers_alike(tmp_path: Path, over: str) -> None:
    async def visit(peer: Peer) -> None:
        await _settled_in(peer)
        await peer.ask("logging/setLevel", {"level": "debug"})
        await peer.ask("resources/subscribe", {"uri": "demo://resource/dynamic/text/1"})
        for tool in tools:
            for n, arguments in enumerate(ARGUMENTS.get(tool, [{}])):
                await peer.call(tool, arguments, _meta={"progressToken": f"{tool} {n}", "x-trace": 1})

    async with meeting(Peer, everything(), tmp_path) as peer:
        await _settled_in(peer)
        listed = [wire.text(wire.member(tool, "name")) or "" for tool in await peer.tools()]
        left_out = {"simulate-research-query", "get-env"}  # the environment has a mark or a port of its own
        tools = [name for name in listed if name not in left_out]
        assert set(ARGUMENTS) <= set(tools)
    await assert_same(everything(), tmp_path, visit, over)


@pytest.mark.full
@OVER
async def test_resources_prompts_and_completions_of_everything_are_alike(tmp_path: Path, over: str) -> None:
    async def visit(peer: Peer) -> None:
        await _settled_in(peer)
        await peer.call("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hello"})
        resources = [json.loads(bytes(entry)) for entry in await peer.list_all(*LISTS[0], wanted="a.gz")]
        for method, member in LISTS[1:]:
            await peer.list_all(method, member)
        dynamic = [f"demo://resource/dynamic/{kind}" for kind in ("text/1", "blob/2", "text/none")]
        for uri in (*(each["uri"] for each in resources), *dynamic, "demo://nowhere"):
            await peer.ask("resources/read", {"uri": uri})
        await peer.ask("resources/subscribe", {"uri": dynamic[0]})
        await peer.ask("resources/unsubscribe", {"uri": dynamic[0]})
        await peer.get_prompt("simple-prompt")
        await peer.get_prompt("args-prompt", {"city": "K\u00f6ln", "state": "NRW"})
        await peer.get_prompt("args-prompt")
        await peer.get_prompt("completable-prompt", {"department": "Sales", "name": "Eve"})
        for kind in ("Text", "Blob", "None"):
            await peer.get_prompt("resource-prompt", {"resourceType": kind, "resourceId": "3"})
        for params in COMPLETIONS:
            await peer.ask("completion/complete", params)
        await peer.ask("ping")

    await assert_same(everything(), tmp_path, visit, over)


@pytest.mark.full
@OVER
async def test_tasks_of_everything_and_of_its_client_are_alike(tmp_path: Path, over: str) -> None:
    async def visit(peer: Peer) -> None:
        await _settled_in(peer)
        for ambiguous in (True, False):
            arguments = {"topic": "python", "ambiguous": ambiguous}
            began = json.loads(await peer.call("simulate-research-query", arguments, task={"ttl": 60000}))
            about = {"taskId": began["result"]["task"]["taskId"]}
            await peer.ask("tasks/get", about)
            await peer.ask("tasks/result" if ambiguous else "tasks/cancel", about)
            await peer.ask("tasks/get", about)
        await peer.ask("tasks/get", {"taskId": "nobody's"})
        await peer.list_all("tasks/list", "tasks")
        peer.program.answers = AS_TASKS
        for tool in ("trigger-sampling-request-async", "trigger-elicitation-request-async"):
            await peer.call(tool, {"prompt": "p"})

    await assert_same(everything(), tmp_path, visit, over)


@pytest.mark.parametrize("server", [pytest.param(everything, marks=pytest.mark.full), full])
async def test_tools_are_shown_with_the_members_that_their_server_gave_them(
    tmp_path: Path, server: Callable[[], Json]
) -> None:
    async def seen(side: type[Peer]) -> list[dict[str, bytes]]:
        async with meeting(side, server(), tmp_path) as peer:
            await peer.ask("ping")
            members = [wire.members(tool) for tool in await peer.tools()]
        return [{key: wire.compact(tool[key]) for key in SHOWN if key in tool} for tool in members]

    direct, through = await asyncio.gather(seen(Peer), seen(Through))
    assert through == direct


# --- ours ----------------------------------------------------------------------------------------------------


async def _visit_all(peer: Peer) -> None:
    resources, *others = zip(LISTS, ("full://text", "full://item/{id}", "greet"), strict=True)
    uris = [json.loads(bytes(entry))["uri"] for entry in await peer.list_all(*resources[0], wanted=resources[1])]
    for which, wanted in others:
        await peer.list_all(*which, wanted=wanted)
    for uri in (*uris, "full://item/7", "full://full/files/x?rev=1", "full://hidden", "full://nowhere"):
        await peer.ask("resources/read", b'{"uri":%s,"x-v":{"twice":1,"twice":2}}' % _json(uri))
    for name in ("greet", "only_full", offers.LONG_PROMPT + "1", offers.LONG_PROMPT + "2"):
        await peer.get_prompt(name, b'{"city":"K\\u00f6ln","style":"odd","x-n":1.50}')
    for ref in ({"type": "ref/resource", "uri": "full://item/{id}"}, {"type": "ref/prompt", "name": "only_full"}):
        await peer.ask("completion/complete", {"ref": ref, "argument": {"name": "id", "value": "\u00e4"}})
    for level in ("debug", "error"):
        await peer.ask("logging/setLevel", {"level": level})
        await peer.call("log", {"level": "warning", "logger": "http"})
    unknown = b'{"z":%s,"a":{"twice":1,"twice":2},"_meta":{"dynamic-mcp/group":"up"}}'
    await peer.ask("vendor/echo", unknown % offers.LONG)


async def _visit_tools(peer: Peer) -> None:
    asking = ("elicit", "elicit_url", "sample", "roots")
    for tool in ("rich", "plain", "fail", "need_url", *asking, "elicited", "vendor"):
        await peer.call(tool, b'{"key":"k","n":%s}' % offers.LONG)
    for token in (b'"t\\u00f6k"', b"7", b"1.0", offers.LONG):
        await peer.call("progress", {"steps": 2}, _meta=Raw(b'{"z":1,"progressToken":%s}' % token))
    uri = {"uri": "full://text"}
    for method in ("resources/subscribe", "resources/unsubscribe"):
        await peer.ask(method, uri)
        await peer.call("update", uri)


async def _visit_tasks(peer: Peer) -> None:
    for n, status in enumerate(("completed", "cancelled"), start=1):
        await peer.call("plain", task=Raw(b'{"ttl":60000,"x":1.50}'), _meta={"progressToken": n})
        id = f"full-task-{n}"
        await peer.ask("tasks/get", {"taskId": id})
        await peer.call("step_task", {"task": id, "step": n})
        await peer.call("elicit_for_task", {"task": id})
        if status == "cancelled":
            await peer.ask("tasks/cancel", {"taskId": id})
        await peer.call("finish", {"task": id, "status": status})
        await peer.ask("tasks/result", {"taskId": id})
    await peer.list_all("tasks/list", "tasks")


async def _visit(peer: Peer) -> None:
    await _visit_all(peer)
    await _visit_tools(peer)
    await _visit_tasks(peer)


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="whole"), pytest.param(("--page", "1"), id="paged", marks=pytest.mark.full)],
)
@OVER
async def test_a_server_with_all_that_there_is_answers_alike(
    tmp_path: Path, options: Iterable[str], over: str
) -> None:
    await assert_same(full(*options), tmp_path, _visit, over)


@OVER
async def test_requests_reach_the_server_with_the_params_that_were_sent(tmp_path: Path, over: str) -> None:
    async def received(side: type[Peer]) -> list[tuple[str, dict[str, Raw]]]:
        async with meeting(side, full(), tmp_path, over) as peer:
            await _visit(peer)
            recorded = json.loads(json.loads(await peer.call("record"))["result"]["content"][0]["text"])
        frames = [wire.parse(line.encode()) for line in recorded]
        return [
            (frame.method, peer.as_said(frame))
            for frame in frames
            if not frame.method.endswith("/list") and frame.method not in ("initialize", "ping")
        ]

    direct, through = await asyncio.gather(received(Peer), received(Through))
    assert through == direct
