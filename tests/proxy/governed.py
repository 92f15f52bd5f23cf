"""Two worlds that a client must not be able to tell apart: one where things are hidden from it, one without them.

In both the same access rules apply. In the second world, the upstreams do not have what the rules hide, and the
config does not have the groups that they hide. So the answers to a client must be the same bytes in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from msgspec import Struct

from dynamic_mcp.config.access import Access, AccessKind, AccessRule, Effect, ToolEffects
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.stream_session import StreamSession
from tests.fakes import BOUND_S, FakeClock, FakeUpstream, Json, Opener, PresentedGroup, config_of, group_config, tool
from tests.features.approvals.scene import READ_S, asking_with

ALICE = Authentication(Principal("https://idp.example", "alice"), "jwt", roles=("dev",))
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}
_META = "io.modelcontextprotocol/"


class Offers(Struct, frozen=True):
    """What a server has; `readable` are the URIs that it answers, listed or not."""

    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def keep(self, has: Callable[[AccessKind, str], bool], has_template: Callable[[str], bool]) -> Offers:
        """Return these offers without what is hidden."""
        return Offers(
            tools=tuple(name for name in self.tools if has(AccessKind.TOOL, name)),
            prompts=tuple(name for name in self.prompts if has(AccessKind.PROMPT, name)),
            resources=tuple(uri for uri in self.resources if has(AccessKind.RESOURCE, uri)),
            templates=tuple(filter(has_template, self.templates)),
            readable=tuple(uri for uri in self.readable if has(AccessKind.RESOURCE, uri)),
        )


EVERYTHING: Mapping[str, Offers] = {
    "a": Offers(
        tools=("read_x", "delete_x", "b__c", "c"),
        prompts=("greet", "b__hi"),
        resources=("x://a/one", "x://shared"),
        templates=("x://a/items/{id}", "y://{+rest}"),
        readable=("x://a/one", "x://shared", "x://a/items/7", "x://a/unlisted", "y://far/off"),
    ),
    "a__b": Offers(
        tools=("c", "read_x"),
        prompts=("hi", "greet"),
        resources=("x://shared", "x://b/one"),
        templates=("x://a/items/{id}",),
        readable=("x://shared", "x://b/one", "x://a/items/8"),
    ),
    "z": Offers(
        tools=("read_x", "send"),
        prompts=("greet",),
        resources=("x://z/one",),
        readable=("x://z/one", "x://a/unlisted"),
    ),
}


# The tools that may change something.
WRITING = ("delete_x", "send", "b__c", "c")


class Server(FakeUpstream):
    """An upstream that answers for what it offers, and refuses the rest."""

    def __init__(self, name: str, offers: Offers) -> None:
        super().__init__()
        self.name = name
        self.offers = offers
        self.used: list[tuple[str, str]] = []
        hello = self.answers["initialize"] | {"capabilities": CAPABILITIES}
        self.answers = {
            "initialize": hello,
            "tools/list": {"tools": [tool(each, description=f"Does {each}.") for each in offers.tools]},
            "prompts/list": {"prompts": [{"name": each} for each in offers.prompts]},
            "resources/list": {"resources": [{"uri": each, "name": "r"} for each in offers.resources]},
            "resources/templates/list": {
                "resourceTemplates": [{"uriTemplate": each, "name": "t"} for each in offers.templates]
            },
            "tasks/list": {"tasks": []},
        }
        self._uses: dict[str, tuple[Callable[[Json], str], Iterable[str]]] = {
            "tools/call": (lambda params: params["name"], offers.tools),
            "prompts/get": (lambda params: params["name"], offers.prompts),
            "resources/read": (lambda params: params["uri"], offers.readable),
            "resources/subscribe": (lambda params: params["uri"], offers.readable),
            "resources/unsubscribe": (lambda params: params["uri"], offers.readable),
            "completion/complete": (
                lambda params: next((params["ref"][key] for key in ("name", "uri") if key in params["ref"]), ""),
                (*offers.prompts, *offers.templates, *offers.resources),
            ),
            "tasks/get": (lambda params: params["taskId"], ()),
            "tasks/cancel": (lambda params: params["taskId"], ()),
            "tasks/result": (lambda params: params["taskId"], ()),
        }

    def send(self, line: bytes) -> None:
        super().send(line)
        message = json.loads(line)
        method = message.get("method", "")
        if "id" in message and method not in self.answers:
            asyncio.get_running_loop().call_soon(
                self.say, {"jsonrpc": "2.0", "id": message["id"], **self._use(message)}
            )

    def _use(self, message: Json) -> dict[str, Json]:
        method = message["method"]
        if method not in self._uses:
            return {"error": {"code": -32601, "message": f"method not found in {self.name}"}}
        key_of, known = self._uses[method]
        key = key_of(message["params"])
        self.used.append((method, key))
        if key not in known:
            return {"error": {"code": -32602, "message": f"{self.name} does not know it"}}
        return {"result": self._result(method, key)}

    def _result(self, method: str, key: str) -> Json:
        text = {"type": "text", "text": f"{key} of {self.name}"}
        match method:
            case "tools/call":
                return {"content": [text]}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": text}]}
            case "resources/read":
                return {"contents": [{"uri": key, "text": text["text"]}]}
            case "completion/complete":
                return {"completion": {"values": [text["text"]]}}
        return {}


class Plan(Struct, frozen=True):
    """Access rules, and how the groups are shown."""

    rules: tuple[AccessRule, ...]
    default: Effect = Effect.DENY
    direct: Mapping[str, DirectTools] = {}
    split_calls: bool = False

    def has(self, group: str, kind: AccessKind, name: str) -> bool:
        """Tell whether a thing exists for the client, by the words of the documentation."""
        own = [rule for rule in self.rules if _is_about(rule, group, kind, name)]
        if any(rule.effect is Effect.DENY and not rule.arguments for rule in own):
            return False
        return self.default is Effect.ALLOW or any(rule.effect is not Effect.DENY for rule in own)

    def decide(self, group: str, kind: AccessKind, name: str, *, level: int) -> Effect:
        """Return what follows for a thing that exists, with this argument."""
        own = {
            rule.effect
            for rule in self.rules
            if _is_about(rule, group, kind, name)
            and (not rule.arguments or (level == 1 and kind is not AccessKind.RESOURCE))
        }
        return next((each for each in (Effect.DENY, Effect.ASK, Effect.ALLOW) if each in own), self.default)

    def has_template(self, group: str, template: str) -> bool:
        """Tell whether a template exists: these templates are not denied whole, and one of their URIs is allowed."""
        prefix = template.partition("{")[0]
        own = [rule for rule in self.rules if _globs(rule, AccessKind.RESOURCE) and _any(rule.servers, group)]
        covering = [rule for rule in own if _any(rule.resources, f"{prefix}\0")]
        if any(rule.effect is Effect.DENY and not rule.arguments for rule in covering):
            return False
        meeting = [rule for rule in own if any(_meets(glob, prefix) for glob in rule.resources or ())]
        return self.default is Effect.ALLOW or any(
            rule.effect is not Effect.DENY and not rule.arguments for rule in meeting
        )

    def has_group(self, group: str) -> bool:
        """Tell whether a group exists: its rules leave something that may be allowed."""
        return any(self._leaves(group, kind) for kind in AccessKind)

    def _leaves(self, group: str, kind: AccessKind) -> bool:
        own = [rule for rule in self.rules if _globs(rule, kind) and _any(rule.servers, group)]
        of_all = [rule for rule in own if "*" in _globs(rule, kind) and rule.only is None and not rule.arguments]
        if any(rule.effect is Effect.DENY for rule in of_all):
            return False
        return self.default is Effect.ALLOW or any(rule.effect is not Effect.DENY for rule in own)

    def config_of(self, group: str) -> PresentedGroup:
        direct = self.direct.get(group, DirectTools())
        return group_config(group, direct=direct, effects=ToolEffects(read=("read_*",), write=WRITING))

    @property
    def access(self) -> Access:
        return Access(default=self.default, roles={"dev": self.rules})


def _is_about(rule: AccessRule, group: str, kind: AccessKind, name: str) -> bool:
    globs = _globs(rule, kind)
    access = "write" if kind is AccessKind.TOOL and name in WRITING else "read"
    if not _any(rule.servers, group) or rule.only not in (None, access):
        return False
    if rule.arguments and kind is AccessKind.RESOURCE:  # which has no arguments
        return False
    is_strict = rule.effect is Effect.ALLOW or kind is AccessKind.RESOURCE
    return _any(globs, name) if is_strict else _any([glob.lower() for glob in globs], name.lower())


def _globs(rule: AccessRule, kind: AccessKind) -> tuple[str, ...]:
    """Return what a rule names of a kind; prompts and resources only read."""
    if kind is not AccessKind.TOOL and rule.only == "write":
        return ()
    return {AccessKind.TOOL: rule.tools, AccessKind.PROMPT: rule.prompts, AccessKind.RESOURCE: rule.resources}[
        kind
    ] or ()


def _any(globs: Iterable[str] | None, name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs or ())


def _meets(glob: str, prefix: str) -> bool:
    """Tell whether a glob, whose only wildcard is a star at its end, matches a text with this prefix."""
    start = glob.removesuffix("*")
    return start.startswith(prefix) or (glob != start and prefix.startswith(start))


class World:
    """A proxy with these rules, in front of what is there."""

    def __init__(self, plan: Plan, offers: Mapping[str, Offers]) -> None:
        self.servers = {name: Server(name, each) for name, each in offers.items()}
        self.config = config_of(
            *(plan.config_of(name) for name in offers), access=plan.access, split_calls=plan.split_calls
        )
        self.clock = FakeClock()
        opener = Opener(**{name: [server] for name, server in self.servers.items()})
        self.proxy = Proxy(self.config, opener=opener, steps=asking_with(self.clock))

    def join(self, *, only: str | None = None, is_modern: bool = False, decision: str = "") -> Asker:
        """Return one more client, with the role that the rules are for; a legacy one may show forms for approval."""
        return Asker(self, only=only, is_modern=is_modern, decision=decision)

    @property
    def used(self) -> set[tuple[str, str, str]]:
        """What the upstreams were asked to use: server, method, and name or URI."""
        return {(name, *each) for name, server in self.servers.items() for each in server.used}


class Asker:
    """A client that asks one thing after another, and keeps the bytes of each answer.

    Its person has one decision for all forms, which are kept too; without one, it shows none.
    """

    def __init__(self, world: World, *, only: str | None, is_modern: bool, decision: str = "") -> None:
        self.forms: list[str] = []
        self._clock = world.clock
        self._is_modern = is_modern
        self._decision = decision
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._count = 0
        self.session = StreamSession(ClientConnection(self._take, origin=ClientOrigin(ALICE, only=only)), world.proxy)

    async def initialize(self) -> bytes:
        """Shake hands, as only clients of older revisions do."""
        if self._is_modern:
            return b""
        can: Json = {"elicitation": {}} if self._decision else {}
        hello = {"protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.ask("initialize", hello)
        self.session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    async def ask(self, method: str, params: Mapping[str, Json]) -> bytes:
        """Send a request and return the line that answers it."""
        if self._is_modern:
            about = {"protocolVersion": MODERN.name, "clientInfo": {"name": "t", "version": "1"}}
            meta = {f"{_META}{name}": value for name, value in {**about, "clientCapabilities": {}}.items()}
            params = {**params, "_meta": meta}
        return await self.ask_raw(method, json.dumps(params).encode())

    async def ask_raw(self, method: str, params: bytes) -> bytes:
        """Send a request with these params, as they are."""
        self._count += 1
        id = f"c{self._count}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[id] = answer
        head = json.dumps({"jsonrpc": "2.0", "id": id, "method": method}).encode()
        self.session.receive(head[:-1] + b',"params":' + params + b"}")
        async with asyncio.timeout(2 * BOUND_S):
            return await answer

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:
            self._answers[message["id"]].set_result(line)
        elif message["method"] == "elicitation/create":
            self.forms.append(message["params"]["message"])
            content = {"action": "accept", "content": {"decision": self._decision}}
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": content}
            asyncio.get_running_loop().call_soon(self._reply, json.dumps(reply).encode())

    def _reply(self, line: bytes) -> None:
        self._clock.time += READ_S
        self.session.receive(line)


@contextlib.asynccontextmanager
async def two_worlds(plan: Plan) -> AsyncIterator[tuple[World, World]]:
    """Run both worlds: the one where things are hidden, and the one without them."""
    left = {
        name: offers.keep(
            lambda kind, key, name=name: plan.has(name, kind, key),  # type: ignore[misc]
            lambda template, name=name: plan.has_template(name, template),  # type: ignore[misc]
        )
        for name, offers in EVERYTHING.items()
        if plan.has_group(name)
    }
    hiding, lacking = World(plan, EVERYTHING), World(plan, left)
    try:
        yield hiding, lacking
    finally:
        await hiding.proxy.close()
        await lacking.proxy.close()
