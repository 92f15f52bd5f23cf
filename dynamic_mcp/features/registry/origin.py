"""Where a server of the config comes from: `x-registry` in its entry, so that it can be updated."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dynamic_mcp.features.registry.document import Document
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.questions import Answers

KEY = "x-registry"


class Origin(Struct, frozen=True, kw_only=True):
    """The registry, the server and its version, the option that was taken, and what was answered.

    `digest` is that of the document; it is empty if the server was not added by us, but linked later.
    """

    registry: str
    name: str
    version: str
    option: str
    answers: Answers = {}
    digest: str = ""

    def to_json(self) -> dict[str, object]:
        """Return what stands in the config."""
        given: dict[str, object] = {
            key: values[0] if len(values) == 1 else list(values) for key, values in self.answers.items()
        }
        facts: dict[str, object] = {
            "registry": self.registry,
            "name": self.name,
            "version": self.version,
            "from": self.option,
        }
        return facts | ({"set": given} if given else {}) | ({"sha256": self.digest} if self.digest else {})


def origin_of(registry: str, document: Document, option: Option, answers: Answers) -> Origin:
    """Return the origin of a server that is made from a document."""
    return Origin(
        registry=registry,
        name=document.name,
        version=document.version,
        option=option.label,
        answers=answers,
        digest=document.digest,
    )


def read_origin(entry: object) -> Origin | None:
    """Return the origin that an entry says, or None if it says none that can be used."""
    written = entry.get(KEY) if isinstance(entry, Mapping) else None
    if not isinstance(written, Mapping):
        return None
    texts = [written.get(key) for key in ("registry", "name", "version", "from")]
    registry, name, version, option = (text if isinstance(text, str) else "" for text in texts)
    if not (registry and name and version and option):
        return None
    digest = written.get("sha256")
    return Origin(
        registry=registry,
        name=name,
        version=version,
        option=option,
        answers=_read_answers(written.get("set")),
        digest=digest if isinstance(digest, str) else "",
    )


def _read_answers(written: object) -> Answers:
    if not isinstance(written, Mapping):
        return {}
    lists = {str(key): value if isinstance(value, list) else [value] for key, value in written.items()}
    return {key: tuple(each for each in values if isinstance(each, str)) for key, values in lists.items()}
