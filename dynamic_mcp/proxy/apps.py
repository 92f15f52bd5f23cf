"""The apps of several servers behind one: whose page a `ui://` URI is, and who may call what only apps may call.

To a host, all groups are one server. A tool's UI comes from the tool's own group all the same: where two groups know
a URI, neither has it, and both are listed as `ui://<group>+<rest>`. What tools say of UIs is read in `mcp/apps.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.errors import ResourceNotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import names
from dynamic_mcp.mcp.apps import may_render, with_links, with_links_in_meta
from dynamic_mcp.proxy.listed_names import Named
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools.results import is_error

_LISTS = (ListKind.RESOURCES, ListKind.TEMPLATES)


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
    """The groups of whose apps each client may show one, since it has read a page of theirs."""

    def __init__(self) -> None:
        self._groups: WeakKeyDictionary[Client, dict[str, None]] = WeakKeyDictionary()

    def record_read(self, client: Client, group: GroupView) -> None:
        """Record that a client has read a page of a group; one that shows none is no host of apps."""
        if may_render(client.hello.capabilities):
            self._groups.setdefault(client, {})[group.name] = None

    def may_call(self, client: Client, group: GroupView, tool: str) -> bool:
        """Return whether an app that a client may show is allowed to call a tool."""
        if group.catalog is None or tool not in group.catalog.tools or group.name not in self._groups.get(client, ()):
            return False
        app = group.catalog.app_tools.get(tool)
        return app is None or app.is_for_app

    def find(self, client: Client, view: View, tool: str) -> list[Named]:
        """Return the tools that such an app may mean by a name: it has those that its own server gives them."""
        groups = (view.get(name) for name in self._groups.get(client, ()))
        shown = [(group, group.shown_name(tool)) for group in groups if group is not None and group.offers("tools")]
        return [(group, name) for group, name in shown if self.may_call(client, group, name)]
