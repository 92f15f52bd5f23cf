"""The apps of several servers behind one: whose page a `ui://` URI is, and who may call what only apps may call.

To a host, all groups are one server. A tool's UI comes from the tool's own group all the same: where two groups know
a URI, neither has it, and both are listed as `ui://<group>+<rest>`. What tools say of UIs is read in `mcp/apps.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from weakref import WeakKeyDictionary

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.errors import ResourceNotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.mcp.apps import may_render, with_links, with_links_in_meta
from dynamic_mcp.proxy.chain import Services
from dynamic_mcp.proxy.listed_names import Named
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.tools.results import is_error

_LISTS = (ListKind.RESOURCES, ListKind.TEMPLATES)
# How many clients without sessions are remembered, and how soon other replicas are asked again about one.
_MOST_CLIENTS = 10_000
_ASK_AGAIN_S = 1.0


class AppLinks:
    """Whose each `ui://` URI is, among the groups of a view that offer resources, as they were last looked at.

    `links_of` looks at them once, so whatever shows many tools gets this once, and asks for each tool.
    """

    def __init__(self, view: View) -> None:
        self._groups = {group.name: group for group in view.offering("resources")}
        self._catalogs: dict[str, Catalog | None] = dict.fromkeys(self._groups)
        self._known: dict[str, frozenset[str]] = {}
        self._owners: dict[str, tuple[GroupView, ...]] = {}

    def look(self) -> AppLinks:
        """Find again what the groups know of which the catalog has changed, and no other."""
        for name, group in self._groups.items():
            catalog = group.catalog
            if catalog is not self._catalogs[name]:
                self._catalogs[name] = catalog
                self._update(group, frozenset(() if catalog is None else self._find_known(group, catalog)))
        return self

    def shown_uri(self, group: GroupView, uri: str) -> str:
        """Return the URI, or template, by which clients know one of a group."""
        is_its_own = self._owners.get(uri) == (group,) and self._reads_as(uri) is None
        return uri if is_its_own else names.group_ui_uri(group.name, uri)

    def find(self, uri: str) -> tuple[GroupView, str] | None:
        """Return the group that a URI belongs to, and the URI as that group knows it; None if no group knows it.

        Raises ResourceNotFound for one that several know, since the client may mean any of them.
        """
        if (found := self._reads_as(uri)) is not None:
            return found
        owners = self._owners.get(uri, ())
        if len(owners) > 1:
            raise ResourceNotFound(uri)
        return (owners[0], uri) if owners else None

    def show(self, group: GroupView, tool: str, catalog: Catalog) -> Raw:
        """Return the definition that a catalog of a group has of a tool, with the links that clients know.

        A link that they cannot read is left out.
        """
        entry, app = catalog.tools[tool], catalog.app_tools.get(tool)
        return entry if app is None else with_links(entry, app, lambda uri: self._link(group, uri))

    def add_to_result(self, group: GroupView, tool: str, result: Raw) -> Raw:
        """Return a result of a tool with the links that its definition has, for hosts that look for them there."""
        app = group.catalog.app_tools.get(tool) if group.catalog else None
        if app is None or is_error(result):
            return result
        shown = ((path, self._link(group, uri)) for path, uri in app.links.items())
        return with_links_in_meta(result, {path: uri for path, uri in shown if uri is not None})

    def is_of_app(self, group: GroupView, tool: str) -> bool:
        """Return whether a tool has a UI that clients can read, or is for such UIs of its group only."""
        app = group.catalog.app_tools.get(tool) if group.catalog else None
        if app is None:
            return False
        if app.is_for_model:
            return any(self._may_read(group, uri) for uri in app.links.values())
        return app.is_for_app and bool(self._known.get(group.name))

    def _link(self, group: GroupView, uri: str) -> str | None:
        return self.shown_uri(group, uri) if self._may_read(group, uri) else None

    def _may_read(self, group: GroupView, uri: str) -> bool:
        return group.name in self._groups and names.is_ui(uri) and group.may_read(uri)

    def _reads_as(self, uri: str) -> tuple[GroupView, str] | None:
        """Return the group, and its own URI, that a URI with a group in its authority means."""
        named = names.split_ui_uri(uri)
        group = None if named is None else self._groups.get(named[0])
        return None if named is None or group is None else (group, named[1])

    def _update(self, group: GroupView, known: frozenset[str]) -> None:
        before = self._known.get(group.name, frozenset())
        for uri in before - known:
            others = tuple(each for each in self._owners.pop(uri) if each is not group)
            if others:
                self._owners[uri] = others
        for uri in known - before:
            self._owners[uri] = (*self._owners.get(uri, ()), group)
        self._known[group.name] = known

    def _find_known(self, group: GroupView, catalog: Catalog) -> Iterator[str]:
        """Yield the URIs and templates of UIs that a group lists, or names in its tools: those need not be listed."""
        for app in catalog.app_tools.values():
            yield from (uri for uri in app.links.values() if self._may_read(group, uri))
        for kind in _LISTS:
            yield from filter(names.is_ui, catalog.entries(kind))


def links_of(view: View) -> AppLinks:
    """Return whose the `ui://` URIs of a view are at this moment."""
    return view.derive(AppLinks).look()


class OpenApps:
    """The groups of whose apps each client may show one, since it has read a page of theirs.

    A client without a session may have read it at another replica.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._groups: WeakKeyDictionary[Client, dict[str, None]] = WeakKeyDictionary()
        self._groups_by_key: BoundedDict[str, dict[str, None]] = BoundedDict(_MOST_CLIENTS)
        self._asked_at: BoundedDict[str, float] = BoundedDict(_MOST_CLIENTS)
        self._asking: dict[str, asyncio.Task[list[str]]] = {}

    def record_read(self, client: Client, group: GroupView) -> None:
        """Record that a client has read a page of a group; one that shows none is no host of apps."""
        if may_render(client.hello.capabilities):
            key = _key_of(client)
            groups = self._groups.setdefault(client, {}) if key is None else self._groups_by_key.setdefault(key, {})
            groups[group.name] = None

    def groups_of(self, key: str) -> list[str]:
        """Return the groups of which a client without a session has read a page here; `key` says who it is."""
        return [*self._groups_by_key.get(key, ())]

    async def learn(self, client: Client) -> bool:
        """Ask other replicas whose pages a client has read there; return whether any were unknown here."""
        key, replicas = _key_of(client), self._services.replicas
        if key is None or replicas is None or not may_render(client.hello.capabilities):
            return False
        asking = self._asking.get(key)
        if asking is None:
            if self._services.clock.now() - self._asked_at.get(key, float("-inf")) < _ASK_AGAIN_S:
                return False
            asking = self._asking[key] = asyncio.create_task(replicas.find_opened_apps(key))
            asking.add_done_callback(lambda task: self._asking.pop(key, None))
        found = await asyncio.shield(asking)
        known = self._groups_by_key.get(key, {})
        if known.keys() >= {*found}:
            self._asked_at[key] = self._services.clock.now()
            return False
        self._groups_by_key[key] = {**known, **dict.fromkeys(found)}
        return True

    def may_call(self, client: Client, group: GroupView, tool: str) -> bool:
        """Return whether an app that a client may show is allowed to call a tool."""
        if group.catalog is None or tool not in group.catalog.tools or group.name not in self._find_groups(client):
            return False
        app = group.catalog.app_tools.get(tool)
        return app is None or app.is_for_app

    def find(self, client: Client, view: View, tool: str) -> list[Named]:
        """Return the tools that such an app may mean by a name: it has those that its own server gives them."""
        groups = (view.get(name) for name in self._find_groups(client))
        shown = [(group, group.shown_name(tool)) for group in groups if group is not None and group.offers("tools")]
        return [(group, name) for group, name in shown if self.may_call(client, group, name)]

    def _find_groups(self, client: Client) -> dict[str, None]:
        key = _key_of(client)
        return self._groups.get(client, {}) if key is None else self._groups_by_key.get(key, {})


def _key_of(client: Client) -> str | None:
    """Return what is the same for all requests of a client without a session, at all replicas; None with one."""
    hello, principal = client.hello, client.principal
    if client.transport != "http" or not hello.revision.is_stateless:
        return None
    who = (principal.issuer, principal.subject, client.only, client.profile)
    said = (bytes(hello.client_info).decode(), bytes(hello.capabilities).decode())
    return sha256(wire.encode((*who, *said))).hexdigest()
