"""Reads the files of the audit log as they are, whole lines only. What is shown always comes from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dynamic_mcp.features.audit.chain import Damaged, read_line
from dynamic_mcp.features.audit.line import AuditLine

# What takes the place of a line that is none.
DAMAGED = "damaged"


class Place(Struct, frozen=True, gc=False):
    """Where a line is: the name of its file, its first byte and its length, with the newline."""

    file: str
    start: int
    size: int


class StoredLine(Struct, frozen=True):
    """A line as it is in its file, without the newline, and what it says; None if it says nothing that we know."""

    place: Place
    data: bytes
    line: AuditLine | None

    @property
    def known(self) -> AuditLine:
        """What the line says; a damaged one says that."""
        return self.line or AuditLine(v=0, event=DAMAGED, outcome="unknown")


def read_whole_lines(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file from here on, with where they begin, but not a last one without its end."""
    file.seek(start)
    for data in file:
        if not data.endswith(b"\n"):
            return
        yield start, data
        start += len(data)


def read_places(directory: Path, places: Iterable[Place]) -> Iterator[StoredLine]:
    """Yield the lines at these places; those of a file that is gone meanwhile are left out. Raises OSError."""
    with ExitStack() as stack:
        opened: dict[str, BinaryIO | None] = {}
        for place in places:
            if place.file not in opened:
                opened[place.file] = _open(stack, directory / place.file)
            file = opened[place.file]
            if file is not None:
                file.seek(place.start)
                yield parse(place, file.read(place.size))


def parse(place: Place, data: bytes) -> StoredLine:
    """Return a line with what it says."""
    data = data.removesuffix(b"\n")
    try:
        return StoredLine(place, data, read_line(data))
    except Damaged:
        return StoredLine(place, data, None)


def _open(stack: ExitStack, path: Path) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
