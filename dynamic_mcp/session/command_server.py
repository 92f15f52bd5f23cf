"""Serves one command in the daemon: MCP by the proxy, and the messages beyond MCP here."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View, ViewScope
from dynamic_mcp.session.command_messages import (
    CATALOG,
    OPEN_UI,
    PING,
    REREAD,
    SESSIONS,
    VIEW,
    CatalogAnswer,
    CatalogRequest,
    GroupFacts,
    GroupFactsList,
    SessionList,
    UiAddress,
    ViewOptions,
    encode_error,
    encode_upstream_error,
)
from dynamic_mcp.system.decoding import decode_as

_Message = TypeVar("_Message", bound=msgspec.Struct)

_FEATURES = ("tools", "resources", "prompts")


class CommandServer:
    """The server of one command's session. The command selects its view with a `VIEW` request.

    `open_ui` serves the page and returns its URL.
    """

    def __init__(self, proxy: Proxy, open_ui: Callable[[], Awaitable[str]]) -> None:
        self._proxy = proxy
        self._open_ui = open_ui
        self._options: ViewOptions | None = None
        self._adapted: tuple[View, View] | None = None
        self._handlers: dict[str, Callable[[Request], Awaitable[Frame]]] = {
            VIEW: self._choose_view,
            CATALOG: self._read_catalog,
            REREAD: self._reread,
            PING: self._ping,
            SESSIONS: self._list_sessions,
            OPEN_UI: self._serve_ui,
        }

    # --- Server ----------------------------------------------------------------------------------------

    def view_for(self, client: Client) -> View:
        """Return the current view, with the command's options applied."""
        whole = self._proxy.view_for(client)
        if self._options is None:
            return whole
        if self._adapted is None or self._adapted[0] is not whole:
            self._adapted = whole, _adapt(whole, self._options)
        return self._adapted[1]

    def initialize(self, client: Client) -> Awaitable[Mapping[str, object]]:
        return self._proxy.initialize(client)

    async def answer(self, request: Request) -> Frame:
        """Answer a request. Errors have what the command needs for its exit code."""
        answer = self._handlers.get(request.method, self._proxy.answer)
        try:
            frame = await answer(request)
        except wire.Malformed as exc:
            return encode_error(InvalidArguments(str(exc)))
        except DynamicMcpError as exc:
            return encode_error(exc)
        return encode_upstream_error(frame.error) if len(frame.error) else frame

    def notify(self, request: Request) -> None:
        self._proxy.notify(request)

    def release(self, client: Client) -> None:
        self._proxy.release(client)

    # --- beyond MCP ------------------------------------------------------------------------------------

    async def _choose_view(self, request: Request) -> Frame:
        self._options, self._adapted = _decode(request.params, ViewOptions), None
        view = self.view_for(request.client)
        return _result(GroupFactsList([_facts(ViewedGroup(group, request.client)) for group in view]))

    async def _read_catalog(self, request: Request) -> Frame:
        wanted = _decode(request.params, CatalogRequest)
        group = ViewedGroup(request.view[wanted.group], request.client)
        catalog = await group.read_catalog([ListKind[kind] for kind in wanted.kinds])
        return _result(CatalogAnswer.build(_facts(group), catalog))

    async def _reread(self, request: Request) -> Frame:
        group = ViewedGroup(request.view[_decode(request.params, CatalogRequest).group], request.client)
        catalog = await group.reread()
        return _result(CatalogAnswer.build(_facts(group), catalog))

    async def _ping(self, request: Request) -> Frame:
        await ViewedGroup(request.view[_decode(request.params, CatalogRequest).group], request.client).ping()
        return wire.result_frame(b"{}")

    async def _list_sessions(self, request: Request) -> Frame:
        names = [client.hello.name for client in self._proxy.clients if not client.is_command]
        return _result(SessionList(names, os.getpid()))

    async def _serve_ui(self, request: Request) -> Frame:
        return _result(UiAddress(await self._open_ui()))


def _adapt(whole: View, options: ViewOptions) -> View:
    groups = [
        group.adapt(options.groups[group.name].timeouts, options.groups[group.name].result_limit)
        for group in whole
        if group.name in options.groups
    ]
    scope = ViewScope(split_calls=options.split_calls, place=whole.scope.place, access_rules=whole.access_rules)
    return View(groups, scope)


def _facts(group: ViewedGroup) -> GroupFacts:
    features = [feature for feature in _FEATURES if group.offers(feature)]
    return GroupFacts(group.name, group.description, features, group.state is State.READY, group.complaint(ListKind))


def _decode(params: Raw, kind: type[_Message]) -> _Message:
    """Return a command's message. Raises Malformed."""
    try:
        return decode_as(params, kind)
    except msgspec.DecodeError as exc:
        raise wire.Malformed(str(exc)) from exc


def _result(message: msgspec.Struct) -> Frame:
    return wire.result_frame(wire.encode(message))
