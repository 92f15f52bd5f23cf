"""Merges what several sources say of one command: the best source for each fact, and a note of where it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, Value, WordFact

T = TypeVar("T")


class SourcedFlag(Struct, frozen=True):
    """A flag, and the sources of what is known of it."""

    flag: FlagFact
    source: str


class MergedCommand(Struct, frozen=True):
    """A command, as all sources together have it."""

    fact: CommandFact
    flags: tuple[SourcedFlag, ...]


def merge(facts: Sequence[CommandFact]) -> MergedCommand:
    """Merge facts about one command, best source first. There must be one at least."""
    whole = next((fact for fact in facts if fact.is_whole), None)
    groups = _group(facts, whole)
    words = _merge_words(facts)
    flags = tuple(_merge_flag(group) for group in groups)
    merged = CommandFact(
        source="; ".join(dict.fromkeys(fact.source for fact in facts)),
        path=facts[0].path,
        description=_first(fact.description for fact in facts) or "",
        flags=tuple(each.flag for each in flags),
        words=words,
        subcommands=tuple(_merge_subcommands(facts)),
        separator=_first_known(fact.separator for fact in facts),
        effect=_first(fact.effect for fact in facts),
        is_whole=whole is not None,
    )
    return MergedCommand(merged, flags)


def _group(facts: Sequence[CommandFact], whole: CommandFact | None) -> list[list[tuple[str, FlagFact]]]:
    """Put together what the sources say of each flag; of a source that is whole, no flag is missing."""
    groups: list[list[tuple[str, FlagFact]]] = []
    names: list[set[str]] = []
    for fact in [each for each in (whole,) if each] + [each for each in facts if each is not whole]:
        for flag in fact.flags:
            found = next((i for i, known in enumerate(names) if known.intersection(flag.names)), None)
            if found is not None:
                groups[found].append((fact.source, flag))
                names[found].update(flag.names)
            elif whole is None or fact is whole:
                groups.append([(fact.source, flag)])
                names.append(set(flag.names))
    rank = {fact.source: i for i, fact in enumerate(facts)}
    return [sorted(group, key=lambda each: rank[each[0]]) for group in groups]


def _merge_flag(group: Sequence[tuple[str, FlagFact]]) -> SourcedFlag:
    origin: dict[str, str] = {}

    def pick(what: str, get: Callable[[FlagFact], T | None]) -> T | None:
        for source, flag in group:
            if (found := get(flag)) not in (None, "", ()):
                origin[what] = source
                return found
        return None

    flag = FlagFact(
        names=tuple(dict.fromkeys(name for _, each in group for name in each.names)),
        value=_merge_value(group, origin),
        description=pick("text", lambda each: each.description) or "",
        required=pick("required", lambda each: each.required),
        style=pick("style", lambda each: each.style),
        effect=pick("effect", lambda each: each.effect),
    )
    return SourcedFlag(flag, _say(group[0][0], origin))


def _merge_value(group: Sequence[tuple[str, FlagFact]], origin: dict[str, str]) -> Value | None:
    """Take the first type. A better source may only know whether there is a value: then a boolean is not its type."""
    takes_value = False
    for source, flag in group:
        value = flag.value
        if value is None:
            continue
        if value.type is None:
            takes_value = True
            origin.setdefault("value", source)
        elif not (takes_value and value.type == "boolean"):
            origin["type"] = source
            repeatable = _first_known(each.value.repeatable for _, each in group if each.value is not None)
            return (
                value
                if repeatable is None or value.type in ("boolean", "pairs")
                else _repeat(value, repeatable=repeatable)
            )
    return Value(type="string") if takes_value else None


def _repeat(value: Value, *, repeatable: bool) -> Value:
    return Value(
        type=value.type, values=value.values, repeatable=repeatable, minimum=value.minimum, maximum=value.maximum
    )


def _say(first: str, origin: dict[str, str]) -> str:
    others: dict[str, list[str]] = {}
    for what, source in origin.items():
        if source != first:
            others.setdefault(source, []).append(what)
    return "; ".join([first, *(f"{', '.join(whats)}: {source}" for source, whats in others.items())])


def _merge_words(facts: Sequence[CommandFact]) -> tuple[WordFact, ...] | None:
    lists = [fact.words for fact in facts if fact.words is not None]
    if not lists:
        return None
    said = {word.name: word.description for words in reversed(lists) for word in words if word.description}
    best = next((words for words in lists if words), lists[0]) if not facts[0].is_whole else lists[0]
    return tuple(
        WordFact(
            name=word.name,
            type=word.type,
            values=word.values,
            description=word.description or said.get(word.name, ""),
            required=word.required,
            repeatable=word.repeatable,
        )
        for word in best
    )


def _merge_subcommands(facts: Sequence[CommandFact]) -> Iterable[Subcommand]:
    merged: dict[str, Subcommand] = {}
    for fact in facts:
        for each in fact.subcommands:
            known = merged.get(each.name, each)
            merged[each.name] = Subcommand(
                each.name, known.description or each.description, known.usage or each.usage
            )
    return merged.values()


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value), None)


def _first_known(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
