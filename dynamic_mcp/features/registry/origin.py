"""The origin of a server of the config: `x-registry` in its entry, so that it can be updated."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dynamic_mcp.features.registry.document import ServerDocument
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.questions import ServerAnswers

KEY = "x-registry"


class ServerOrigin(Struct, frozen=True, kw_only=True):
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
        """Return the origin for the config."""
        answers: dict[str, object] = {
            key: values[0] if len(values) == 1 else list(values) for key, values in self.answers.items()
        }
        facts: dict[str, object] = {
            "registry": self.registry,
            "name": self.name,
            "version": self.version,
            "from": self.option,
        }
        return facts | ({"set": answers} if answers else {}) | ({"linked": True} if self.is_linked else {})


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
    texts = [written.get(key) for key in ("registry", "name", "version", "from")]
    registry, name, version, option = (text if isinstance(text, str) else "" for text in texts)
    if not (registry and name and version and option):
        return None
    return ServerOrigin(
        registry=registry,
        name=name,
        version=version,
        option=option,
        answers=_read_answers(written.get("set")),
        is_linked=written.get("linked") is True,
    )


def _read_answers(written: object) -> ServerAnswers:
    if not isinstance(written, Mapping):
        return {}
    lists = {str(key): value if isinstance(value, list) else [value] for key, value in written.items()}
    return {key: tuple(each for each in values if isinstance(each, str)) for key, values in lists.items()}
