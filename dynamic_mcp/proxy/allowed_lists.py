"""The lists of a group without what is not presented or not allowed, and no word that tells of it.

A list that is the same as before stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.errors import INTERNAL_ERROR
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.mcp import wire

if TYPE_CHECKING:  # loaded with the first access rule
    from dynamic_mcp.policy.access import GroupRules, Judgement

# Instead of complaints that could name what is hidden.
INCOMPLETE = "the list is not complete; the log says more"
_FAILED = Raw(wire.encode({"code": INTERNAL_ERROR, "message": INCOMPLETE}))
_NONE = Listing()


class AllowedLists:
    """Filters the catalogs of one group, for one presentation and one set of rules."""

    def __init__(self, presentation: Presentation, rules: GroupRules | None) -> None:
        self._presentation = presentation
        self._rules = rules
        self._filtered: dict[ListKind, tuple[Listing, Listing]] = {}
        self._judgements: dict[tuple[AccessKind, str], Judgement] = {}

    def filter(self, whole: Catalog) -> Catalog:
        """Return a catalog without what is not presented, and what is not allowed."""
        lists = {kind: self._filter_list(kind, listing) for kind, listing in whole.lists.items()}
        changed = {kind: listing for kind, listing in lists.items() if listing is not whole.lists[kind]}
        catalog = whole.with_lists(changed)
        if self._rules is None:
            return catalog
        return replace(
            catalog,
            instructions=self._without_hidden_names(whole, whole.instructions),
            title=self._without_hidden_names(whole, whole.title),
            hello=None if whole.hello is None else self.filter_hello(whole.hello, whole),
        )

    def filter_hello(self, hello: Mapping[str, Raw], whole: Catalog | None) -> Mapping[str, Raw]:
        """Return what an upstream says of itself, without instructions that name what is hidden."""
        text = wire.text(hello.get("instructions"))
        if self._rules is None or not text or (whole is not None and self._without_hidden_names(whole, text)):
            return hello
        return {name: value for name, value in hello.items() if name != "instructions"}

    def judge(self, kind: AccessKind, name: str, whole: Catalog | None) -> Judgement:
        """Return the decision for a tool or prompt, also for one that is in no list."""
        assert self._rules is not None
        found = self._judgements.get((kind, name))
        return found if found is not None else self._judge(kind, name, whole.tools.get(name) if whole else None)

    # --- lists -----------------------------------------------------------------------------------------

    def _filter_list(self, kind: ListKind, listing: Listing) -> Listing:
        if not self._presentation.features.allows(kind.capability):
            return _NONE
        source, filtered = self._filtered.get(kind, (None, _NONE))
        if source is not listing:
            entries = self._filter_entries(kind, listing.entries)
            filtered = listing if len(entries) == len(listing.entries) else replace(listing, entries=entries)
            if self._rules is not None and listing.complaints:
                error = _FAILED if listing.has_failed else listing.error
                filtered = replace(filtered, complaints=(INCOMPLETE,), error=error)
            self._filtered[kind] = listing, filtered
        return filtered

    def _filter_entries(self, kind: ListKind, entries: Mapping[str, Raw]) -> Mapping[str, Raw]:
        if kind is ListKind.TOOLS:
            allows = self._presentation.tools.allows
            entries = {name: tool for name, tool in entries.items() if allows(name)}
        if self._rules is None:
            return entries
        match kind:
            case ListKind.TOOLS:
                shown = self._judge_all(AccessKind.TOOL, entries)
            case ListKind.PROMPTS:
                shown = self._judge_all(AccessKind.PROMPT, entries)
            case ListKind.RESOURCES | ListKind.SKILLS:
                shown = {uri for uri in entries if self._rules.may_see_resource(uri)}
            case ListKind.TEMPLATES:
                shown = {template for template in entries if self._rules.shows_template(template)}
        return {key: entry for key, entry in entries.items() if key in shown}

    def _judge_all(self, kind: AccessKind, entries: Mapping[str, Raw]) -> set[str]:
        self._judgements = {key: each for key, each in self._judgements.items() if key[0] is not kind}
        for name, entry in entries.items():
            self._judgements[kind, name] = self._judge(kind, name, entry)
        return {name for name in entries if self._judgements[kind, name].is_visible}

    def _judge(self, kind: AccessKind, name: str, entry: Raw | None) -> Judgement:
        assert self._rules is not None
        if kind is AccessKind.PROMPT or not self._rules.needs_classes:
            return self._rules.judge(kind, name)
        from dynamic_mcp.policy.classify import access_of

        access = "write" if entry is None else access_of(name, entry, self._presentation.effects).access
        return self._rules.judge(kind, name, access)

    def _without_hidden_names(self, whole: Catalog, text: str) -> str:
        """Return a text, or nothing if it names something that is hidden."""
        folded = text.casefold()
        return "" if any(name.casefold() in folded for name in self._hidden_names(whole)) else text

    def _hidden_names(self, whole: Catalog) -> Iterable[str]:
        for kind, listing in whole.lists.items():
            shown = self._filter_list(kind, listing).entries
            yield from (key for key in listing.entries if key not in shown)
