"""The use cases of a session: what each MCP method means in front of many groups. Knows no transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial

from msgspec import Raw

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.values import NO_LIMIT
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import METHOD_NOT_FOUND, DynamicMcpError, LoginNeeded
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group, OpenLink
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.completion import Completion
from dynamic_mcp.proxy.logins import LoginOffers
from dynamic_mcp.proxy.prompts import Prompts
from dynamic_mcp.proxy.resources import Resources
from dynamic_mcp.proxy.result_store import ResultStore
from dynamic_mcp.proxy.search import ToolSearch
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.tools import Tools
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.upstream.open import OURSELVES, PROTOCOL_VERSIONS, ClientHello, open_link

log = logging.getLogger(__name__)

# Changes that come together are announced together.
SETTLE_S = 0.05
# In `_meta` of a request that is no other use case: the group that it is for.
GROUP = "dynamic-mcp/group"
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")  # RFC 5424
# Capabilities that say what a server can do beyond the protocol.
_EXTENDING = ("experimental", "extensions")

UseCase = Callable[[Session, Frame], Awaitable[Frame]]


class Proxy:
    """Answers every session from the groups of one config, and tells the sessions what changes there."""

    def __init__(
        self,
        config: Config,
        *,
        opener: OpenLink | None = None,
        catalog_store: CatalogStore | None = None,
        semantic_index: SemanticIndex | None = None,
        logins: Logins | None = None,
    ) -> None:
        self.groups = Groups(
            config, self, opener=opener or partial(open_link, logins=logins), catalog_store=catalog_store
        )
        self._sessions: list[Session] = []
        self._logins = LoginOffers(logins, self._sessions)
        self._tasks = Tasks(self.groups)
        self._semantic_index = semantic_index or SemanticIndex()
        self._semantic_index.use(config.embeddings)
        self._finding = ToolSearch(self.groups, self._semantic_index)
        kept = ResultStore()
        self._tools = Tools(self.groups, self._tasks, self._finding, kept, split_calls=config.split_calls)
        self._resources = Resources(self.groups, kept)
        self._prompts = Prompts(self.groups)
        self._completion = Completion(self._prompts, self._resources)
        self.begun = asyncio.Event()  # a client has been greeted
        self._level: Raw | None = None
        self._announced: dict[str, object] = {}
        self._announcing: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._use_cases = self._by_method()

    def connect(self, send: Callable[[bytes], None], is_congested: Callable[[], bool] = lambda: False) -> Session:
        """Return a session for a new client, which is written to with `send` and may be slow to read."""
        session = Session(send, self, is_congested)
        self._sessions.append(session)
        return session

    @property
    def sessions(self) -> Sequence[Session]:
        """The clients that are connected."""
        return self._sessions

    def apply(self, config: Config) -> None:
        """Serve another config from now on; the sessions hear of the lists that this changes."""
        self.groups.apply(config)
        self._tools.split_calls = config.split_calls
        self._semantic_index.use(config.embeddings)
        self._finding.learn()
        self._announce_soon()

    def complain(self, text: str) -> None:
        """Tell every client of an error of the proxy itself, unless it asked for worse only."""
        if self._level is not None and _LEVELS.index(wire.text(self._level) or "") > _LEVELS.index("error"):
            return
        params = {"level": "error", "logger": "dynamic-mcp", "data": text}
        self._tell_all(Frame(method="notifications/message", params=Raw(wire.encode(params))))

    async def close(self) -> None:
        """End every group."""
        if self._announcing is not None:
            self._announcing.cancel()
        for task in self._background:
            task.cancel()
        self._logins.close()
        self._sessions.clear()
        await self._semantic_index.close()
        await self.groups.close()

    # --- Server: what a session asks -------------------------------------------------------------------

    async def answer(self, session: Session, frame: Frame) -> Frame:
        """Answer a request; one that was refused for want of a login is repeated after it."""
        try:
            return await self._answer(session, frame)
        except LoginNeeded as exc:
            if not await self._logins.accepted(session, exc.group):
                raise
        return await self._answer(session, frame)

    def _by_method(self) -> dict[str, UseCase]:
        return {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._tools.list_all,
            "tools/call": self._tools.call,
            "resources/list": self._resources.list_all,
            "resources/templates/list": self._resources.list_templates,
            "resources/read": self._resources.read,
            "resources/subscribe": self._resources.subscribe,
            "resources/unsubscribe": self._resources.unsubscribe,
            "prompts/list": self._prompts.list_all,
            "prompts/get": self._prompts.get,
            "completion/complete": self._completion.complete,
            "logging/setLevel": self._set_level,
            "tasks/get": self._tasks.get,
            "tasks/cancel": self._tasks.get,
            "tasks/result": self._tasks.result,
            "tasks/list": self._tasks.list_all,
        }

    async def _answer(self, session: Session, frame: Frame) -> Frame:
        """Answer a request by its method; what has no use case goes to the group that it can only be for."""
        use_case = self._use_cases.get(frame.method)
        if use_case is not None:
            return await use_case(session, frame)
        group = self._extended(session, wire.text(wire.member(frame.params, "_meta", GROUP)))
        if group is None:
            why = f"method not found: `{frame.method}`; `_meta` may name a group for it, as `{GROUP}`"
            return wire.error_frame(METHOD_NOT_FOUND, why)
        return await group.request(
            frame.method,
            wire.members(frame.params) if len(frame.params) else None,
            timeout_s=group.config.timeouts.tools_s,
            caller=session,
            what=frame.method,
        )

    def _extended(self, session: Session, name: str | None) -> Group | None:
        """Return the group for a method that the protocol does not know: the one named, else the only one able."""
        if name is not None:
            return self.groups[name]
        if not session.version:  # a newer client tries out what it may speak, with us and nobody else
            return None
        able = [group for group in self.groups if group.known and any(map(group.known.may, _EXTENDING))]
        return able[0] if len(able) == 1 else None

    def hear(self, session: Session, frame: Frame) -> None:
        """Take a notification of a client: for every group, or for the one that its `_meta` names."""
        name = wire.text(wire.member(frame.params, "_meta", GROUP))
        for group in self.groups:
            if frame.method == "notifications/roots/list_changed" or group.name == name:
                group.notify(frame.method, frame.params)

    async def _initialize(self, session: Session, frame: Frame) -> Frame:
        """Negotiate as the lifecycle of the MCP specification says, and let the groups begin."""
        params = wire.members(frame.params)
        asked = wire.text(params.get("protocolVersion"))
        session.version = asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
        declared = params.get("capabilities", wire.EMPTY_OBJECT)
        session.capabilities = wire.members(declared)
        session.client = wire.text(wire.member(_client_info(params), "name")) or ""
        self.groups.start(ClientHello(session.version, declared, _client_info(params), session))
        self._announced = self._shown()
        self.begun.set()
        self._finding.learn()
        return wire.result_frame(
            {
                "protocolVersion": session.version,
                "capabilities": self._capabilities(session.version),
                "serverInfo": {"name": "dynamic-mcp", "version": __version__},
                "instructions": self._tools.instructions(),
            }
        )

    def _capabilities(self, version: str) -> dict[str, object]:
        """Return the union of what the groups can do; a group that is not known yet may be able to do all."""

        def some(feature: str, *part: str) -> bool:
            return any(
                group.config.features.allows(feature) and (group.known is None or group.known.may(feature, *part))
                for group in self.groups
            )

        found: dict[str, object] = {"tools": {"listChanged": True}}
        if some("resources"):
            subscribe = {"subscribe": True} if some("resources", "subscribe") else {}
            found["resources"] = {**subscribe, "listChanged": True}
        elif any(group.config.features.tools and group.config.answers.limit < NO_LIMIT for group in self.groups):
            found["resources"] = {}  # what is cut from a result is read as one
        if some("prompts"):
            found["prompts"] = {"listChanged": True}
        found |= {"completions": {}} if some("completions") else {}
        found["logging"] = {}  # the proxy has things to say of its own
        found |= {name: merged for name in _EXTENDING if (merged := self._merged(name))}
        if version >= "2025-11-25" and some("tasks"):
            found["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return found

    def _merged(self, capability: str) -> dict[str, Raw]:
        """Return what all groups say of a capability that is an object by name, the earliest group's where two do."""
        merged: dict[str, Raw] = {}
        for group in self.groups:
            said = group.known.capabilities.get(capability) if group.known else None
            with contextlib.suppress(wire.Malformed):
                merged = {**(wire.members(said) if said else {}), **merged}
        return merged

    async def _ping(self, session: Session, frame: Frame) -> Frame:
        return wire.result_frame(b"{}")

    async def _set_level(self, session: Session, frame: Frame) -> Frame:
        """Tell every group that logs, and remember it for those that connect later."""
        level = wire.member(frame.params, "level")
        if wire.text(level) not in _LEVELS:
            raise wire.Malformed(f"`level` must be one of {', '.join(_LEVELS)}")
        self._level = level
        for group in self.groups:
            if group.state is State.READY:
                self._tell_level(group, session)
        return wire.result_frame(b"{}")

    # --- Observer: what a group does -------------------------------------------------------------------

    def changed(self, group: Group) -> None:
        """Tell the sessions when what a list answers is another answer now."""
        self._announce_soon()
        if group.state is State.NEEDS_LOGIN:
            self._logins.needed(group.name)

    def opened(self, group: Group) -> None:
        """Ask a new link for what sessions have asked of the one before: the log level, and subscriptions."""
        self._tell_level(group, None)
        for uri, session in self._resources.subscriptions(group).items():
            params = {"uri": Raw(wire.encode(uri))}
            self._in_background(self._repeat(group, session, "resources/subscribe", params))

    def named(self, group: Group, frame: Frame) -> Frame:
        """Return what an upstream says about a task with the id that the task has here."""
        return self._tasks.named(group, frame)

    def heard(self, group: Group, frame: Frame) -> None:
        """Pass a notification of an upstream on to whom it concerns; one that nobody knows goes to every session."""
        if frame.method == "notifications/resources/updated":
            self._resources.updated(group, frame)
            return
        if frame.method == "notifications/tasks/status" and (known := self._tasks.status(group, frame)):
            session, frame = known
            session.notify(frame)
            return
        if frame.method == "notifications/message" and any(session.takes(frame) for session in self._sessions):
            frame = _with_group_in_logger(group.name, frame)
        self._tell_all(self._tasks.named(group, frame))

    def _tell_all(self, frame: Frame) -> None:
        for session in self._sessions:
            if session.version:
                session.notify(frame)

    def _announce_soon(self) -> None:
        if self._announcing is None and self._sessions:
            self._announcing = asyncio.get_running_loop().call_later(SETTLE_S, self._announce)

    def _announce(self) -> None:
        self._announcing = None
        self._finding.learn()
        shown = self._shown()
        before, self._announced = self._announced, shown
        for feature in shown:
            if shown[feature] != before.get(feature):
                self._tell_all(Frame(method=f"notifications/{feature}/list_changed"))

    def _shown(self) -> dict[str, object]:
        """Return what the lists answer now, to tell whether it changes."""

        def entries(*kinds: ListKind) -> object:
            return [
                (group.name, kind, {key: bytes(entry) for key, entry in group.known.entries(kind).items()})
                for group in self.groups
                for kind in kinds
                if group.known and group.known.entries(kind)
            ]

        return {
            "tools": wire.encode(self._tools.entries()),
            "resources": entries(ListKind.RESOURCES, ListKind.TEMPLATES),
            "prompts": entries(ListKind.PROMPTS),
        }

    # --- what groups are told in the background --------------------------------------------------------

    def _tell_level(self, group: Group, session: Session | None) -> None:
        if self._level is not None and group.known is not None and group.known.may("logging"):
            self._in_background(self._repeat(group, session, "logging/setLevel", {"level": self._level}))

    async def _repeat(self, group: Group, session: Session | None, method: str, params: dict[str, Raw]) -> None:
        try:
            timeout_s = group.config.timeouts.resources_s
            await group.request(method, params, timeout_s=timeout_s, caller=session, what=method)
        except DynamicMcpError as exc:
            group_logger(log, group.name).warning("group %s: %s: %s", group.name, method, exc.message)

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _client_info(params: Mapping[str, Raw]) -> Raw:
    """Return who the client says it is, or who we are where it says less than servers insist on."""
    info = params.get("clientInfo", wire.EMPTY_OBJECT)
    complete = all(wire.text(wire.member(info, name)) for name in ("name", "version"))
    return info if complete else OURSELVES


def _with_group_in_logger(group: str, frame: Frame) -> Frame:
    """Put the group in front of the logger's name, so that a client can tell whose words these are."""
    logger = wire.text(wire.member(frame.params, "logger"))
    try:
        params = wire.with_member(frame.params, f"{group}/{logger}" if logger else group, "logger")
    except wire.Malformed:
        return frame
    return Frame(method=frame.method, params=params)
