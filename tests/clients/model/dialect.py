"""What every dialect of a model's API has in common: which tools a model is shown, what it calls, what came back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = Any  # whatever JSON a client sends


@dataclass(frozen=True)
class Call:
    """A tool that the model calls, under the name that the client gives it."""

    tool: str
    arguments: Mapping[str, Json] = field(default_factory=dict)


@dataclass
class Result:
    """What the model is shown of one call: the texts, and the images as base64."""

    tool: str
    texts: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    is_error: bool = False

    @property
    def text(self) -> str:
        """All texts."""
        return "\n".join(self.texts)


@dataclass(frozen=True)
class Shown:
    """All that one request shows the model."""

    tools: tuple[str, ...]
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Answer:
    """What goes back to the client: one JSON document, or events of a stream."""

    document: Json = None
    events: tuple[bytes, ...] = ()


# What the model says to a request: a text, or tools to call at once.
Saying = str | Call | tuple[Call, ...]


class Dialect(Protocol):
    """One API."""

    def speaks(self, path: str) -> bool:
        """Tell whether requests to this path are in this dialect."""

    def read(self, body: Json) -> Shown:
        """Return what the request shows the model."""

    def answer(self, body: Json, path: str, saying: Saying, number: int) -> Answer:
        """Return the answer that calls tools or says a text; the number is the answer's own."""


def calls_of(saying: Call | tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls, which may be a single one."""
    return (saying,) if isinstance(saying, Call) else saying


def event(data: Json, name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def typed(events: Iterable[Mapping[str, Json]]) -> tuple[bytes, ...]:
    """Return events that are named by their own `type`."""
    return tuple(event(each, each["type"]) for each in events)


def blocks(content: Json) -> Iterator[dict[str, Json]]:
    """Yield the blocks of a content, which may also be a text or nothing."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (each for each in content if isinstance(each, dict))


def base64_of(url: str) -> str:
    """Return the data in a `data:` URL."""
    return url.partition(";base64,")[2]
