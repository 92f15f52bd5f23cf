"""What a client may see: the only way to a group. A group that is not in a view cannot be told from none at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from msgspec import Raw, structs

from dynamic_mcp.config.resolved import Config, Presentation, Timeouts
from dynamic_mcp.errors import Disabled, NotFound
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.lifecycle import DOWN, State
from dynamic_mcp.system.text import one_line

_NONE = Listing()
_FEATURES = ("tools", "resources", "prompts")


class GroupView:
    """One group as it is presented: its filtered catalog, its description, and how its calls are treated.

    `config` is what is run for it, `switched_off` the features that it does not let through.
    """

    def __init__(self, group: Group, presentation: Presentation) -> None:
        self.group = group
        self.name = group.name
        self.config = group.config
        self.presentation = presentation
        self.switched_off = frozenset(name for name in _FEATURES if not presentation.features.allows(name))
        self._whole: Catalog | None = None
        self._known: Catalog | None = None
        self._tools: tuple[Listing | None, Listing] = (None, _NONE)

    def __repr__(self) -> str:
        return f"<GroupView of {self.group!r}>"

    @property
    def state(self) -> State:
        """How the group is."""
        return self.group.state

    @property
    def is_down(self) -> bool:
        """Whether every instance of the group has failed."""
        return self.group.state in DOWN

    @property
    def reason(self) -> str:
        """Why the group is down, in one line; empty while it is not."""
        return self.group.reason

    @property
    def description(self) -> str:
        """One line for a model: the config's, else from the upstream's own words, else from how it is started."""
        if self.presentation.description:
            return " ".join(self.presentation.description.split())
        derived = self.group.known.summary if self.group.known else ""
        return derived or f"Tools from `{one_line(self.config.label)}`"

    @property
    def known(self) -> Catalog | None:
        """What the group offers here, as far as it is known."""
        whole = self.group.known
        if whole is not self._whole:
            self._known = None if whole is None else self._filter(whole)
            self._whole = whole
        return self._known

    def adapt(self, timeouts: Timeouts, result_limit: int) -> GroupView:
        """Return the group with other timeouts for its calls, and another limit on their results."""
        answers = structs.replace(self.presentation.answers, limit=result_limit)
        if (timeouts, answers) == (self.config.timeouts, self.presentation.answers):
            return self  # with all that is remembered of it
        adapted = GroupView(self.group, structs.replace(self.presentation, answers=answers))
        adapted.config = structs.replace(self.config, timeouts=timeouts)
        return adapted

    def offers(self, feature: str) -> bool:
        """Tell whether the config lets this feature through."""
        return feature not in self.switched_off

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Say what is missing from these lists and why; empty when they are whole."""
        return self.group.complaint(kinds)

    async def learn_hello(self, client: Client) -> Mapping[str, Raw] | None:
        """Return what the upstream says of itself, connecting if need be; None if the group was replaced meanwhile.

        Raises UpstreamError.
        """
        return await self.group.learn_hello(client)

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return what the group offers here, connecting to learn it only if need be. Raises UpstreamError."""
        return self._filter(await self.group.learn_catalog(client, kinds))

    async def reread(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists again, for a name that is not among them. Raises UpstreamError."""
        return self._filter(await self.group.reread(client, kinds))

    def _filter(self, whole: Catalog) -> Catalog:
        """Return a catalog without the tools and the lists that are not presented."""
        if whole is self._whole and self._known is not None:
            return self._known
        lists = {kind: _NONE for kind in whole.lists if not self.offers(kind.capability)}
        if ListKind.TOOLS in whole.lists and ListKind.TOOLS not in lists:
            lists[ListKind.TOOLS] = self._filter_tools(whole.lists[ListKind.TOOLS])
        return whole.with_lists(lists)

    def _filter_tools(self, listing: Listing) -> Listing:
        """Return the tools that pass the filter; the same object as long as the upstream's list is the same."""
        source, filtered = self._tools
        if source is not listing:
            allows = self.presentation.tools.allows
            entries = {name: tool for name, tool in listing.entries.items() if allows(name)}
            filtered = listing if len(entries) == len(listing.entries) else replace(listing, entries=entries)
            self._tools = listing, filtered
        return filtered


class View:
    """The groups that a client may see, in the order of the config; `split_calls` and `roots` are the config's.

    Of the group views that are `known`, those are used again that still hold.
    """

    def __init__(self, groups: Iterable[Group], config: Config, known: Iterable[GroupView] = ()) -> None:
        self.split_calls = config.split_calls
        self.roots = config.roots
        self._groups: dict[str, GroupView] = {}
        by_group = {each.group: each for each in known}
        for group in groups:
            presentation = config.presentations[group.name]
            old = by_group.get(group)
            if old is None or (old.config, old.presentation) != (group.config, presentation):
                old = GroupView(group, presentation)
            self._groups[group.name] = old

    def __iter__(self) -> Iterator[GroupView]:
        return iter(self._groups.values())

    def __getitem__(self, name: str) -> GroupView:
        """Return the group of this name. Raises NotFound with the closest names and all that there are."""
        try:
            return self._groups[name]
        except KeyError:
            raise NotFound("group", name, self.names, hint=self.names_in_words()) from None

    def has_group(self, group: Group) -> bool:
        """Tell whether this very group is in the view, and not another one of its name."""
        found = self._groups.get(group.name)
        return found is not None and found.group is group

    @property
    def names(self) -> list[str]:
        """The names, in config order."""
        return list(self._groups)

    def names_in_words(self, feature: str = "") -> str:
        """Say which groups there are, or which of them offer a feature."""
        names = ", ".join(f"`{group.name}`" for group in self if group.offers(feature))
        return f"the groups are {names}" if names else "no group is configured"

    def offering(self, feature: str) -> list[GroupView]:
        """Return the groups that let this feature through."""
        return [group for group in self if group.offers(feature)]

    def group(self, name: str, feature: str) -> GroupView:
        """Return a group that lets a feature through. Raises NotFound and Disabled."""
        group = self._groups.get(name)
        if group is None:
            return self[name]
        if feature in group.switched_off:
            raise Disabled(feature, name)
        return group

    def single(self, name: str) -> SingleView:
        """Return one group of this view alone, always the same view while there is such a group."""
        found = self._singles.get(name)
        if found is not None:
            return found
        group = self._groups.get(name)
        if group is None:
            return SingleView()  # not remembered, because a client may ask for any name
        return self._singles.setdefault(name, SingleView(group, roots=self.roots))

    @cached_property
    def _singles(self) -> dict[str, SingleView]:
        return {}


class SingleView(View):
    """One group of another view, for clients that see it as if there were no proxy; empty if there is none."""

    def __init__(self, *group: GroupView, roots: tuple[str, ...] = ()) -> None:
        self.split_calls = False
        self.roots = roots
        self._groups = {each.name: each for each in group}

    def names_in_words(self, feature: str = "") -> str:
        """Say that the group has gone, if it has; other groups do not exist here."""
        return "" if self._groups else "the config does not have this group any more"


class AdaptedView(View):
    """Some of the groups of another view, adapted for one client."""

    def __init__(self, groups: Iterable[GroupView], *, split_calls: bool) -> None:
        self.split_calls = split_calls
        self.roots = ()
        self._groups = {group.name: group for group in groups}
