"""Filters lists for each client through plug-ins. Entries outside them do not exist for the client, even for calls.

Each client's requests are answered by a separate view. In it, a list is unknown until the plug-ins have filtered it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.errors import DynamicMcpError, PluginError
from dynamic_mcp.features.plugins.opened import ActivePlugin
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.instance import FIND_WITHIN_S
from dynamic_mcp.mcp import uri_template, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.middleware import CallerInfo, Item
from dynamic_mcp.middleware import ListKind as PublicListKind
from dynamic_mcp.proxy.lists import learn
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.bounded import BoundedDict

log = logging.getLogger(__name__)

# The number of views cached per view of the config. A forgotten view is made again.
_MAX_VIEWS = 1000
# How long a failed plug-in is not asked again for the same list.
_PAUSE_S = 5.0
_KINDS: Mapping[ListKind, PublicListKind] = {
    ListKind.TOOLS: "tools",
    ListKind.PROMPTS: "prompts",
    ListKind.RESOURCES: "resources",
    ListKind.TEMPLATES: "templates",
    ListKind.SKILLS: "resources",  # by the URI of its SKILL.md
}
_RESOURCES = (ListKind.RESOURCES, ListKind.TEMPLATES)
_ABOUT_RESOURCES = frozenset(("resources/read", "resources/subscribe", "resources/unsubscribe"))


class ListHooks:
    """Filters lists through plug-ins. `caller_of` describes a client to them."""

    def __init__(self, plugins: Sequence[ActivePlugin], caller_of: Callable[[Client], CallerInfo]) -> None:
        self.plugins = tuple(plugins)
        self._caller_of = caller_of
        self._views: WeakKeyDictionary[View, BoundedDict[CallerInfo, View]] = WeakKeyDictionary()

    async def answer(self, answer: Callable[[Request], Awaitable[Frame]], request: Request) -> Frame:
        """Answer a request within the client's view. A command chooses its own view."""
        if not request.client.is_command:
            request = structs.replace(request, view=self._find(request.view, self._caller_of(request.client)))
            groups = [group for group in request.view if isinstance(group, HookedGroup)]
            if request.method in _ABOUT_RESOURCES and not _is_listed(request):
                await learn(request.client, groups, _RESOURCES, FIND_WITHIN_S)
            await asyncio.gather(*(group.refresh() for group in groups if not group.is_fresh))
        return await answer(request)

    def _find(self, view: View, caller: CallerInfo) -> View:
        found = self._views.get(view)
        if found is None:
            found = self._views[view] = BoundedDict(_MAX_VIEWS)
        hooked = found.get(caller)
        if hooked is None:
            hooked = found[caller] = self._make(view, caller)
        return hooked

    def _make(self, view: View, caller: CallerInfo) -> View:
        return View((self._hook(group, caller) for group in view), view.scope)

    def _hook(self, group: GroupView, caller: CallerInfo) -> GroupView:
        plugins = [each for each in self.plugins if each.servers.matches(group.name)]
        return HookedGroup(group, plugins, caller) if plugins else group


class _Outcome(Struct, frozen=True):
    """The plug-ins' result for a list. With an error, the list is unknown, or cannot skip the failed plug-in.

    `until` is when they are asked again, by the loop's clock; None: with the next change of the list.
    """

    given: Listing
    shown: Listing
    error: PluginError | None = None
    until: float | None = None


class HookedGroup(GroupView):
    """A view of a group with the lists of the `base`, filtered by plug-ins for one client."""

    def __init__(self, base: GroupView, plugins: Sequence[ActivePlugin], caller: CallerInfo) -> None:
        super().__init__(base.group, base.presentation, base.rules, base=base)
        self._base = base
        self._plugins = tuple(plugins)
        self._caller = caller
        self._outcomes: dict[ListKind, _Outcome] = {}
        self._catalog: Catalog | None = None
        self._shown: Catalog | None = None
        self._hidden: tuple[Mapping[str, Raw], Mapping[str, Raw], frozenset[str]] | None = None

    @property
    def catalog(self) -> Catalog | None:
        """The group's catalog in this view, as far as it is known and plug-ins have filtered it."""
        catalog = self._base.catalog
        if catalog is not self._catalog:
            self._shown = None if catalog is None else self._assemble(catalog)
            self._catalog = catalog
        return self._shown

    @property
    def may_hide(self) -> bool:
        return True

    @property
    def is_fresh(self) -> bool:
        """True if plug-ins have filtered all known lists."""
        catalog = self._base.catalog
        return catalog is None or not self._find_stale(catalog)

    async def refresh(self) -> None:
        """Ask plug-ins to filter the known lists, if these have changed."""
        if (catalog := self._base.catalog) is not None:
            await self._ask(catalog)

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return the group's catalog in this view. Raises UpstreamError, and PluginError if it cannot be filtered."""
        kinds = tuple(kinds)
        return await self._show(await self._base.learn_catalog(client, kinds), kinds)

    async def reread(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists again, and have plug-ins filter them. Raises UpstreamError and PluginError."""
        kinds = tuple(kinds)
        return await self._show(await self._base.reread(client, kinds), kinds)

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Return what is missing from these lists and why; empty if they are complete."""
        kinds = tuple(kinds)
        errors = (self._outcomes[kind].error for kind in kinds if kind in self._outcomes)
        found = dict.fromkeys((self._base.complaint(kinds), *(exc.message for exc in errors if exc is not None)))
        return "; ".join(filter(None, found))

    def may_have(self, kind: ListKind, key: str) -> bool:
        """Return whether an unlisted entry may be requested: plug-ins have not allowed it."""
        return False

    def may_read(self, uri: str) -> bool:
        """Return whether a resource, if there is one, exists for this client.

        Resources that a plug-in left out do not exist, nor do those that match only templates it left out.
        """
        whole, shown = self._base.catalog, self.catalog
        if not self._base.may_read(uri) or whole is None or shown is None or not shown.knows(_RESOURCES):
            return False
        if uri in whole.entries(ListKind.RESOURCES):
            return uri in shown.entries(ListKind.RESOURCES)
        if all(whole.entries(kind).keys() == shown.entries(kind).keys() for kind in _RESOURCES):
            return True
        return self._may_read_unlisted(uri, whole, shown)

    def _may_read_unlisted(self, uri: str, whole: Catalog, shown: Catalog) -> bool:
        """Return whether no reading of a URI is an entry that plug-ins left out."""
        from dynamic_mcp.policy.arguments import ConditionError
        from dynamic_mcp.policy.uris import variants

        try:
            readings = variants(uri)
        except ConditionError:
            return False
        if not self._find_hidden(whole, shown).isdisjoint(readings):
            return False
        templates, shown_templates = whole.entries(ListKind.TEMPLATES), shown.entries(ListKind.TEMPLATES)
        for reading in readings:
            made_by = [each for each in templates if uri_template.matches(each, reading)]
            if made_by and not any(each in shown_templates for each in made_by):
                return False
        return True

    def _find_hidden(self, whole: Catalog, shown: Catalog) -> frozenset[str]:
        """Return the readings of the resources that plug-ins left out."""
        lists = whole.entries(ListKind.RESOURCES), shown.entries(ListKind.RESOURCES)
        if self._hidden is None or self._hidden[0] is not lists[0] or self._hidden[1] is not lists[1]:
            from dynamic_mcp.policy.uris import readings_of_all

            self._hidden = *lists, readings_of_all(lists[0].keys() - lists[1].keys())
        return self._hidden[2]

    # --- asking plug-ins -------------------------------------------------------------------------------

    async def _show(self, catalog: Catalog, kinds: Iterable[ListKind]) -> Catalog:
        while self._find_stale(catalog):  # repeat if another request has asked for a newer list meanwhile
            await self._ask(catalog)
        for kind in kinds:
            if kind in catalog.lists and (error := self._outcomes[kind].error) is not None:
                raise error
        return self._assemble(catalog)

    def _find_stale(self, catalog: Catalog) -> list[tuple[ListKind, Listing]]:
        now = asyncio.get_running_loop().time()
        return [(kind, each) for kind, each in catalog.lists.items() if _is_stale(self._find(kind, each), now)]

    def _find(self, kind: ListKind, listing: Listing) -> _Outcome | None:
        """Return the plug-ins' result for a list, or for an equal one; None if they have not been asked."""
        outcome = self._outcomes.get(kind)
        if outcome is None or outcome.given is listing:
            return outcome
        if outcome.given != listing:
            return None
        shown = listing if outcome.shown is outcome.given else outcome.shown
        outcome = self._outcomes[kind] = structs.replace(outcome, given=listing, shown=shown)
        return outcome

    async def _ask(self, catalog: Catalog) -> None:
        stale = self._find_stale(catalog)
        self._outcomes |= zip(
            (kind for kind, _ in stale),
            await asyncio.gather(*(self._ask_for(kind, listing) for kind, listing in stale)),
            strict=True,
        )
        self._catalog = None  # the filtered list may differ now

    async def _ask_for(self, kind: ListKind, listing: Listing) -> _Outcome:
        own = self._base.own_name if kind is ListKind.TOOLS else str
        names = {key: own(key) for key in listing.entries}
        given = [Item(_KINDS[kind], self.name, names[key], bytes(entry)) for key, entry in listing.entries.items()]
        items, failed = given, False
        for each in self._plugins:
            try:
                items = await self._ask_one(each, _KINDS[kind], items)
            except PluginError as exc:
                log.error("%s of %s: %s", kind.method, self.name, exc.message, exc_info=exc.__cause__)  # noqa: TRY400
                failed = True
                if not each.settings.skips_errors:
                    return _Outcome(listing, listing, exc, asyncio.get_running_loop().time() + _PAUSE_S)
        shown = listing
        if len(items) != len(given) or any(one.raw is not other.raw for one, other in zip(items, given, strict=True)):
            keys = {name: key for key, name in names.items()}
            shown = structs.replace(listing, entries={keys[item.name]: Raw(item.raw) for item in items})
        return _Outcome(listing, shown, None, asyncio.get_running_loop().time() + _PAUSE_S if failed else None)

    async def _ask_one(self, plugin: ActivePlugin, kind: PublicListKind, items: list[Item]) -> list[Item]:
        """Return one plug-in's filtered list. Raises PluginError."""
        opened, settings = plugin.opened, plugin.settings
        if opened is None:
            raise PluginError(settings.use, "is not open")
        with opened.in_use():
            ask = partial(opened.plugin.list, kind, tuple(items), self._caller)
            found = await opened.run(ask, settings.timeout_s)
        return _check(settings.use, items, found)

    def _assemble(self, catalog: Catalog) -> Catalog:
        """Return the filtered catalog, without the lists that plug-ins have not filtered."""
        lists: dict[ListKind, Listing] = {}
        for kind, listing in catalog.lists.items():
            outcome = self._find(kind, listing)
            if outcome is not None and outcome.error is None:
                lists[kind] = outcome.shown
        is_same = all(lists.get(kind) is each for kind, each in catalog.lists.items())
        return catalog if is_same else structs.replace(catalog, lists=lists)


def _is_listed(request: Request) -> bool:
    """Return whether a group is known to list the resource of a request."""
    uri = wire.text(wire.member(request.params, "uri"))
    return any(
        group.catalog is not None and uri in group.catalog.entries(ListKind.RESOURCES) for group in request.view
    )


def _is_stale(outcome: _Outcome | None, now: float) -> bool:
    return outcome is None or (outcome.until is not None and outcome.until <= now)


def _check(use: str, items: Sequence[Item], found: object) -> list[Item]:
    """Return the items from a plug-in. Raises PluginError if they are not among those given."""
    if not isinstance(found, Sequence) or not all(isinstance(each, Item) for each in found):
        raise PluginError(use, "has not returned a sequence of `Item`")
    before = {each.name: each for each in items}
    for item in found:
        original = before.pop(item.name, None)
        if original is None:
            raise PluginError(use, f"has added `{item.name[:100]}`, which is not in the list or is a duplicate")
        if item.raw is not original.raw and not _is_same_entry(item, original):
            raise PluginError(use, f"has returned no valid definition of `{item.name[:100]}`")
    return list(found)


def _is_same_entry(item: Item, original: Item) -> bool:
    """Return whether a definition can replace another: it is JSON on one line, with the same name."""
    key = next(kind.key for kind, public in _KINDS.items() if public == original.kind)
    try:
        item.raw.decode()
        name = wire.text(wire.members(item.raw).get(key))
    except (ValueError, DynamicMcpError):
        return False
    return b"\n" not in item.raw and name is not None and name == wire.text(wire.member(original.raw, key))
