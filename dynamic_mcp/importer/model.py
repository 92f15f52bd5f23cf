"""What an import looks at and what it finds there: values only, which every part of the importer shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from dynamic_mcp.config.values import Inherit


class Scope(StrEnum):
    """Whose settings a file holds; LOCAL is a tool's per-project part of the user's own file."""

    USER = "user"
    PROJECT = "project"
    LOCAL = "local"


@dataclass(frozen=True)
class Machine:
    """Where tools keep their files: every system can be looked at on every other."""

    home: Path
    project: Path
    environment: Mapping[str, str]
    platform: Literal["linux", "darwin", "win32"]


@dataclass(frozen=True)
class Source:
    """One file of one tool, and which of its scopes; `tool` is `file` for a file that was named."""

    tool: str
    scope: Scope
    file: Path


@dataclass(frozen=True)
class Notice:
    """Something that was dropped, approximated or needs a person: `where` is `tool/scope/server.field`.

    One that `is_about_us` says that the tool starts dynamic-mcp.
    """

    where: str
    reason: str
    is_about_us: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True)
class ForeignServer:
    """One server in the form of our own config: `entry` is the object that goes under `mcpServers`.

    `exports` are the variables that the entry refers to and that the tool itself used to ask for. `inherits` is what
    the tool gave the program of its own environment, None for a server that is no program. One that `is_refused`
    is to the tool as if it were not there.
    """

    name: str
    entry: Mapping[str, object]
    source: Source
    notices: tuple[Notice, ...] = ()
    exports: tuple[str, ...] = ()
    inherits: Inherit | None = None
    is_refused: bool = False

    def with_fields(self, fields: Mapping[str, object]) -> ForeignServer:
        """Return the same server with these fields in its entry."""
        return replace(self, entry={**self.entry, **fields})

    @property
    def is_off(self) -> bool:
        """Tell whether the tool has switched it off."""
        return self.entry.get("enabled") is False

    def without_field(self, name: str) -> ForeignServer:
        """Return the same server without this field in its entry."""
        return replace(self, entry={key: value for key, value in self.entry.items() if key != name})


@dataclass(frozen=True)
class Reading:
    """What one file gave; `error` says why it gave nothing, with line and column where it could not be parsed.

    `is_borrowed` marks a file of something else, such as a plugin, whose servers stand beside those of the tool.
    `omitted_count` is the number of servers that were left out because their scope was not requested.
    """

    source: Source
    servers: tuple[ForeignServer, ...] = ()
    notices: tuple[Notice, ...] = ()
    error: str = ""
    is_borrowed: bool = False
    omitted_count: int = 0

    @property
    def has_own_entry(self) -> bool:
        """Tell whether dynamic-mcp is among the servers of the file."""
        return any(notice.is_about_us for notice in self.notices)
