"""Takes foreign JSON apart: every member has the type and the size that its reader expects, or the error names it.

Members are asked for by their current names; those of 2025-07-09 had underscores (`registry_type`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from dynamic_mcp.system.text import one_line

T = TypeVar("T")

LONGEST_TEXT = 10_000
MOST_ITEMS = 200


class FlawedDocument(Exception):
    """A part of a document that cannot be used; the message names the member and says what is wrong."""


class Reader:
    """The members of one object."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise FlawedDocument(f"`{path}` is not an object" if path else "it is not an object")
        self._members = value
        self._path = path

    def text(self, name: str) -> str | None:
        """Return a text that can be shown on one line and stand in a command, or None if there is none."""
        value = self._member(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise FlawedDocument(f"`{self._at(name)}` is not a text")
        if len(value) > LONGEST_TEXT:
            raise FlawedDocument(f"`{self._at(name)}` is longer than {LONGEST_TEXT} characters")
        if not value.isprintable():
            raise FlawedDocument(f"`{self._at(name)}` has control characters")
        return value

    def required(self, name: str) -> str:
        """Return a text that must be there and not be empty."""
        value = self.text(name)
        if not value:
            raise FlawedDocument(f"`{self._at(name)}` is missing")
        return value

    def remark(self, name: str) -> str:
        """Return a text that is only shown: on one line, and without control characters."""
        value = self._member(name)
        return one_line(value, 1000) if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        """Return a boolean; false if it is left out."""
        value = self._member(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise FlawedDocument(f"`{self._at(name)}` is neither true nor false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if it is left out."""
        items = self.items(name)
        reader = Reader({str(number): each for number, each in enumerate(items)}, self._at(name))
        return tuple(reader.text(str(number)) or "" for number in range(len(items)))

    def items(self, name: str) -> list[object]:
        """Return a list; empty if it is left out."""
        value = self._member(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise FlawedDocument(f"`{self._at(name)}` is not a list")
        if len(value) > MOST_ITEMS:
            raise FlawedDocument(f"`{self._at(name)}` has more than {MOST_ITEMS} items")
        return value

    def inner(self, name: str) -> Reader | None:
        """Return an object, or None if there is none."""
        value = self._member(name)
        return None if value is None else Reader(value, self._at(name))

    def each(self, name: str, read: Callable[[Reader], T]) -> tuple[T, ...]:
        """Return what `read` makes of each object in a list."""
        return tuple(
            read(Reader(value, f"{self._at(name)}[{number}]")) for number, value in enumerate(self.items(name))
        )

    def by_name(self, name: str, read: Callable[[Reader], T]) -> dict[str, T]:
        """Return what `read` makes of each member of an object."""
        inner = self.inner(name)
        return {} if inner is None else {key: read(each) for key, each in inner.members()}

    def members(self) -> Iterator[tuple[str, Reader]]:
        """Yield the members by name, each of which must be an object."""
        if len(self._members) > MOST_ITEMS:
            raise FlawedDocument(f"`{self._path}` has more than {MOST_ITEMS} members")
        for key, value in self._members.items():
            if not key.isprintable() or len(key) > LONGEST_TEXT:
                raise FlawedDocument(f"`{self._path}` has a name with control characters")
            yield key, Reader(value, self._at(key))

    def _member(self, name: str) -> object:
        older = re.sub(r"([A-Z0-9]+)", lambda match: f"_{match[1].lower()}", name)
        return self._members.get(name, self._members.get(older))

    def _at(self, name: str) -> str:
        return f"{self._path}.{one_line(name)}" if self._path else one_line(name)
