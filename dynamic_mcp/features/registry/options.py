"""Decides which packages and remotes of a document can be used here, and which one is the default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from dynamic_mcp.features.registry.build import build
from dynamic_mcp.features.registry.document import Package, RemoteServer, ServerDocument
from dynamic_mcp.features.registry.questions import (
    ServerAnswers,
    ServerQuestion,
    is_unanswered,
    parts_of,
    questions_of,
)
from dynamic_mcp.features.registry.runtimes import UnusableOption, programs_of

Option: TypeAlias = Package | RemoteServer
Kind = Literal["package", "remote"]

# A placeholder answer, to find out whether an option can be used at all.
_SAMPLE = "${X}"
_RANKS = {"npm": 1, "pypi": 1, "oci": 2}


class RefusedOption(Struct, frozen=True):
    """An unusable option, and the reason."""

    label: str
    reason: str


def usable_options(document: ServerDocument) -> tuple[list[Option], list[RefusedOption]]:
    """Return the usable packages and remotes, and the unusable ones."""
    usable: list[Option] = []
    refusals = [RefusedOption(document.name, flaw) for flaw in document.flaws]
    options: list[Option] = [*document.packages, *document.remotes]
    for option in options:
        try:
            build(document, option, _samples(option))
        except UnusableOption as exc:
            refusals.append(RefusedOption(option.label, str(exc)))
        else:
            usable.append(option)
    return usable, refusals


def kind_of(option: Option) -> Kind:
    """Return the kind of an option."""
    return "package" if isinstance(option, Package) else "remote"


def matching(options: Sequence[Option], kind: Kind | None, word: str | None) -> list[Option]:
    """Return the options of a kind that match a word: by type, identifier or URL."""
    found = [each for each in options if kind in (None, kind_of(each))]
    return found if word is None else [each for each in found if word in names_of(each)]


def names_of(option: Option) -> tuple[str, ...]:
    """Return the words that name an option."""
    if isinstance(option, Package):
        return option.label, option.kind, option.identifier
    return option.label, option.kind, "streamable-http" if option.kind == "http" else "sse"


def best(options: Sequence[Option], has_program: Callable[[str], bool]) -> Option:
    """Return the default option: one that can run here, remote before local."""
    return min(options, key=lambda each: _rank(each, has_program))


def questions_about(option: Option) -> list[ServerQuestion]:
    """Return the questions about an option."""
    return list(questions_of(parts_of(option)))


def _samples(option: Option) -> ServerAnswers:
    return {each.key: (_SAMPLE,) for each in questions_about(option) if is_unanswered(each, {})}


def _rank(option: Option, has_program: Callable[[str], bool]) -> tuple[int, int]:
    if isinstance(option, RemoteServer):
        return (0, 0) if option.kind == "http" else (1, 3)
    is_there = has_program(programs_of(option)[0])
    return (0 if is_there else 1, _RANKS.get(option.kind, 3))
