"""Merges the facts of several sources about one command: the best source for each fact, with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, ValueFact, WordFact

T = TypeVar("T")


class SourcedFlag(Struct, frozen=True):
    """A flag, and the sources of its facts."""

    flag: FlagFact
    source: str


class MergedCommand(Struct, frozen=True):
    """A command, merged from all sources."""

    fact: CommandFact
    flags: tuple[SourcedFlag, ...]


def merge(facts: Sequence[CommandFact]) -> MergedCommand:
    """Merge one or more facts about one command, best source first."""
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
        separator=_first_not_none(fact.separator for fact in facts),
        effect=_first(fact.effect for fact in facts),
        is_whole=whole is not None,
    )
    return MergedCommand(merged, flags)


def _group(facts: Sequence[CommandFact], whole: CommandFact | None) -> list[list[tuple[str, FlagFact]]]:
    """Group the facts about each flag; a flag that a complete source lacks is dropped."""
    groups: list[list[tuple[str, FlagFact]]] = []
    names: list[set[str]] = []
    for fact in [each for each in (whole,) if each] + [each for each in facts if each is not whole]:
        for flag in fact.flags:
            index = next((i for i, group_names in enumerate(names) if group_names.intersection(flag.names)), None)
            if index is not None:
                groups[index].append((fact.source, flag))
                names[index].update(flag.names)
            elif whole is None or fact is whole:
                groups.append([(fact.source, flag)])
                names.append(set(flag.names))
    rank = {fact.source: i for i, fact in enumerate(facts)}
    return [sorted(group, key=lambda each: rank[each[0]]) for group in groups]


def _merge_flag(group: Sequence[tuple[str, FlagFact]]) -> SourcedFlag:
    sources: dict[str, str] = {}

    def pick(fact: str, get: Callable[[FlagFact], T | None]) -> T | None:
        for source, flag in group:
            if (found := get(flag)) not in (None, "", ()):
                sources[fact] = source
                return found
        return None

    flag = FlagFact(
        names=tuple(dict.fromkeys(name for _, each in group for name in each.names)),
        value=_merge_value(group, sources),
        description=pick("text", lambda each: each.description) or "",
        required=pick("required", lambda each: each.required),
        style=pick("style", lambda each: each.style),
        effect=pick("effect", lambda each: each.effect),
    )
    return SourcedFlag(flag, _describe_sources(group[0][0], sources))


def _merge_value(group: Sequence[tuple[str, FlagFact]], sources: dict[str, str]) -> ValueFact | None:
    """Return the first known type. A better source may only know that there is a value: then it is no boolean."""
    takes_value = False
    for source, flag in group:
        value = flag.value
        if value is None:
            continue
        if value.type is None:
            takes_value = True
            sources.setdefault("value", source)
        elif not (takes_value and value.type == "boolean"):
            sources["type"] = source
            repeatable = _first_not_none(each.value.repeatable for _, each in group if each.value is not None)
            return (
                value
                if repeatable is None or value.type in ("boolean", "pairs")
                else _repeat(value, repeatable=repeatable)
            )
    return ValueFact(type="string") if takes_value else None


def _repeat(value: ValueFact, *, repeatable: bool) -> ValueFact:
    return ValueFact(
        type=value.type, values=value.values, repeatable=repeatable, minimum=value.minimum, maximum=value.maximum
    )


def _describe_sources(first: str, sources: dict[str, str]) -> str:
    others: dict[str, list[str]] = {}
    for fact, source in sources.items():
        if source != first:
            others.setdefault(source, []).append(fact)
    return "; ".join([first, *(f"{', '.join(names)}: {source}" for source, names in others.items())])


def _merge_words(facts: Sequence[CommandFact]) -> tuple[WordFact, ...] | None:
    lists = [fact.words for fact in facts if fact.words is not None]
    if not lists:
        return None
    descriptions = {word.name: word.description for words in reversed(lists) for word in words if word.description}
    best = next((words for words in lists if words), lists[0]) if not facts[0].is_whole else lists[0]
    return tuple(
        WordFact(
            name=word.name,
            type=word.type,
            values=word.values,
            description=word.description or descriptions.get(word.name, ""),
            required=word.required,
            repeatable=word.repeatable,
        )
        for word in best
    )


def _merge_subcommands(facts: Sequence[CommandFact]) -> Iterable[Subcommand]:
    merged: dict[str, Subcommand] = {}
    for fact in facts:
        for each in fact.subcommands:
            first = merged.get(each.name, each)
            merged[each.name] = Subcommand(
                each.name, first.description or each.description, first.usage or each.usage
            )
    return merged.values()


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value), None)


def _first_not_none(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
