"""The origin of a server of the config: `x-registry` in its entry, so that it can be updated."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from dynamic_mcp.features.registry.document import ServerDocument
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.questions import ServerAnswers

KEY = "x-registry"
_NAMES = {"option": "from", "answers": "set", "is_linked": "linked"}


class ServerOrigin(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_NAMES):
    """The registry, the server and its version, the chosen option, and the answers.

    If it `is_linked`, the entry was not built from the document, and only follows its version.
    """

    registry: str
    name: str
    version: str
    option: str
    answers: ServerAnswers = {}
    is_linked: bool = False

    def to_json(self) -> dict[str, object]:
        facts: dict[str, object] = msgspec.to_builtins(self)
        answers = {key: values[0] if len(values) == 1 else list(values) for key, values in self.answers.items()}
        return {**facts, "set": answers} if answers else facts


def origin_of(
    registry: str, document: ServerDocument, option: Option, answers: ServerAnswers, *, is_linked: bool = False
) -> ServerOrigin:
    """Return the origin of a server that is built from a document, or linked to it."""
    return ServerOrigin(
        registry=registry,
        name=document.name,
        version=document.version,
        option=option.label,
        answers=answers,
        is_linked=is_linked,
    )


def read_origin(entry: object) -> ServerOrigin | None:
    """Return the origin in an entry, or None if it has no valid one."""
    written = entry.get(KEY) if isinstance(entry, Mapping) else None
    if not isinstance(written, Mapping):
        return None
    answers = written.get("set") or {}
    try:
        lists = {key: value if isinstance(value, list) else [value] for key, value in answers.items()}
        origin = msgspec.convert({**written, "set": lists}, ServerOrigin)
    except (msgspec.ValidationError, AttributeError):
        return None
    return origin if origin.registry and origin.name and origin.version and origin.option else None
