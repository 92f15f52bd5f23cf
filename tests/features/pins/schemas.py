"""Definitions of tools for property tests, and ways to change them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from hypothesis import strategies as st
from msgspec import Raw, structs

from dynamic_mcp.config.rules import Policy
from dynamic_mcp.features.pins.judgement import PinJudgement, judge, pin_all
from dynamic_mcp.features.pins.lock_file import PinnedServer
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind

Json = object
Members = dict[str, Json]

TODAY = "2026-11-23"

_WORDS = st.sampled_from(
    ["create", "read", "issue", "the", "a", "of", "repository", "list", "name", "owner", "number"]
)
SENTENCES = st.lists(_WORDS, min_size=1, max_size=8).map(" ".join)
_NAMES = st.sampled_from(["owner", "repo", "title", "body", "state", "number", "labels"])


def _objects(inner: st.SearchStrategy[Members]) -> st.SearchStrategy[Members]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(_NAMES, inner, min_size=1, max_size=3)},
        optional={"description": SENTENCES, "additionalProperties": st.booleans()},
    )


_LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean"])},
    optional={
        "description": SENTENCES,
        "enum": st.lists(_WORDS, min_size=2, max_size=4, unique=True),
        "minimum": st.integers(0, 9),
        "default": _WORDS,
    },
)
SCHEMAS = _objects(st.recursive(_LEAVES, _objects, max_leaves=4))
TOOLS = st.fixed_dictionaries(
    {"name": st.just("create_issue"), "description": SENTENCES, "inputSchema": SCHEMAS},
    optional={
        "title": st.sampled_from(["Create issue", "Create an issue"]),
        "outputSchema": SCHEMAS,
        "annotations": st.fixed_dictionaries(
            {}, optional={"readOnlyHint": st.booleans(), "destructiveHint": st.booleans(), "title": SENTENCES}
        ),
    },
)


def raw(value: Json) -> Raw:
    return Raw(json.dumps(value).encode())


def catalog_of(*tools: Members, instructions: str = "") -> Catalog:
    entries = {str(tool["name"]): raw(tool) for tool in tools}
    return Catalog({ListKind.TOOLS: Listing(entries)}, instructions=instructions)


def pins_of(catalog: Catalog) -> PinnedServer:
    """Return what is pinned once a catalog was seen."""
    return pin_all(PinnedServer(), judge(None, catalog, "hold", today=TODAY).accepted)


def judge_change(before: Members, after: Members, *, policy: Policy = "hold") -> PinJudgement:
    return judge(pins_of(catalog_of(before)), catalog_of(after), policy, today=TODAY)


def leaves(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each value that has no others in it."""
    match value:
        case dict() if value:
            for name, each in value.items():
                yield from leaves(each, (*path, name))
        case list() if value:
            for index, each in enumerate(value):
                yield from leaves(each, (*path, index))
        case _:
            yield path


def with_changed(value: Json, path: tuple[str | int, ...], change: Callable[[Json], Json]) -> Json:
    """Return JSON with one value changed."""
    if not path:
        return change(value)
    first, rest = path[0], path[1:]
    match value:
        case dict():
            return {name: with_changed(each, rest, change) if name == first else each for name, each in value.items()}
        case list():
            return [with_changed(each, rest, change) if at == first else each for at, each in enumerate(value)]
    raise KeyError(first)


def approve(pinned: PinnedServer | None, judgement: PinJudgement, by: str) -> PinnedServer:
    """Return the pins with what is held approved by a person, as `pins approve` writes them."""
    pins = {each.key: structs.replace(each.pin, approved_by=by) for each in judgement.differences if each.held}
    return pin_all(pinned or PinnedServer(), pins)
