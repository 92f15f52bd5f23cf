"""What is new about the definitions of a server, as one line of the log and as one event."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.judgement import PinJudgement
from dynamic_mcp.features.pins.lock_file import PinnedServer
from dynamic_mcp.system.text import one_line, pluralize

_MAX_NAMED = 10


class Item(Struct, frozen=True):
    """One definition that there is news of: its name in words, and what happened to it.

    `mark` tells this news from all other.
    """

    name: str
    mark: str
    is_change: bool = False
    is_cosmetic: bool = False
    is_held: bool = False
    is_unpinned: bool = False
    finding: str = ""


class News(Struct, frozen=True):
    """What a judgement says that is new.

    `is_baseline` tells that something else is run under the name than before. What is seen for the first time of its
    kind is no news by itself.
    """

    versions: str
    is_baseline: bool
    items: tuple[Item, ...]

    @classmethod
    def of(
        cls, stored: PinnedServer | None, pinned: PinnedServer | None, judgement: PinJudgement, version: str
    ) -> News:
        """Return the news of a server, of which `pinned` counts and `stored` is in the lock file."""
        is_baseline = stored is not None and pinned is None
        before = "" if pinned is None else pinned.version
        versions = f" {before} -> {version}" if before and version and before != version else ""
        added = [key for key in judgement.additions if _is_news(key, pinned, judgement)]
        changes = {(each.kind, each.name): each for each in judgement.changes}
        items: list[Item] = []
        for key in (*changes, *added):
            change, findings = changes.get(key), judgement.findings.get(key, ())
            item = Item(
                _name(key),
                f"{key[0].name} {key[1]} {'' if change is None else change.hash}",
                is_change=change is not None,
                is_cosmetic=change is not None and change.is_cosmetic,
                is_held=key in judgement.held,
                is_unpinned=key in judgement.unpinned,
                finding=findings[0].text if findings else "",
            )
            items.append(item)
        return cls(versions, is_baseline, tuple(items))

    @property
    def marks(self) -> frozenset[str]:
        """What tells this news from all other."""
        return frozenset((*(item.mark for item in self.items), *(("baseline",) if self.is_baseline else ())))

    def without(self, told: Collection[str]) -> News:
        """Return the news without what was told before."""
        items = tuple(item for item in self.items if item.mark not in told)
        return News(self.versions, self.is_baseline and "baseline" not in told, items)

    @property
    def is_alarming(self) -> bool:
        """Whether somebody should look at it."""
        return self.is_baseline or any(
            item.is_held or item.finding or (item.is_change and not item.is_cosmetic) for item in self.items
        )

    def describe(self, group: str) -> str:
        """Return it as one line of a log."""
        changed = sum(item.is_change for item in self.items)
        added = len(self.items) - changed
        counts = [f"{pluralize(changed, 'definition')} changed"] if changed else []
        counts += [f"{added} new"] if added else []
        parts = ["something else is run under this name now, and its definitions are the new baseline"]
        parts = [*(parts if self.is_baseline else []), *([", ".join(counts)] if counts else [])]
        unpinned = sum(item.is_unpinned for item in self.items)
        parts += [f"{unpinned} not pinned, as there are too many"] if unpinned else []
        held = [item.name for item in self.items if item.is_held]
        suspicious = [f"{item.name} ({item.finding})" for item in self.items if item.finding and not item.is_held]
        parts += [f"held: {_join(held)}"] if held else []
        parts += [f"suspicious: {_join(suspicious)}"] if suspicious else []
        command = "diff" if changed or held else "status"
        return f"group {group}{self.versions}: {'; '.join(parts)}; run `dynamic-mcp pins {command} {group}`"

    def members(self) -> Mapping[str, object]:
        """Return it as the details of an event."""
        named = {
            "changed": [item.name for item in self.items if item.is_change],
            "added": [item.name for item in self.items if not item.is_change],
            "held": [item.name for item in self.items if item.is_held],
            "suspicious": [item.name for item in self.items if item.finding],
        }
        found: dict[str, object] = {name: each[:_MAX_NAMED] for name, each in named.items() if each}
        return {**found, "baseline": "new"} if self.is_baseline else found


def _is_news(key: Key, pinned: PinnedServer | None, judgement: PinJudgement) -> bool:
    """Tell whether an addition is worth a word: one beside what was known, or one that looks dangerous."""
    is_beside = pinned is not None and bool(pinned.pins(key[0]))
    return is_beside or key in judgement.held or key in judgement.findings


def _name(key: Key) -> str:
    kind, name = key
    match kind:
        case PinKind.TOOL:
            return f"`{one_line(name)}`"
        case PinKind.INSTRUCTIONS:
            return kind.noun
    return f"{kind.noun} `{one_line(name)}`"


def _join(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
