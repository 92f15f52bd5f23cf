"""The shared values of the importer: the places to search for tools, and the servers found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from dynamic_mcp.config.types import Inherit

Entry = Mapping[str, object]  # an entry of our config, under `mcpServers`


class ToolScope(StrEnum):
    """The owner of a file's settings; LOCAL is the part for one project in the user's file."""

    USER = "user"
    PROJECT = "project"
    LOCAL = "local"


@dataclass(frozen=True)
class Machine:
    """The directories, environment and system to search, which may be those of another machine."""

    home: Path
    project: Path
    environment: Mapping[str, str]
    platform: Literal["linux", "darwin", "win32"]


@dataclass(frozen=True)
class SettingsSource:
    """One file of one tool, in one of its scopes; `tool` is `file` for a file that the user named."""

    tool: str
    title: str
    scope: ToolScope
    file: Path


@dataclass(frozen=True)
class Notice:
    """A loss, an approximation, or a task for the user; `where` is `tool/scope/server.field`.

    If it `is_about_us`, the tool starts dynamic-mcp. One `about_environment` tells which variables a server gets.
    """

    where: str
    reason: str
    is_about_us: bool = False
    is_about_environment: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True)
class ForeignServer:
    """One server of a tool in the form of our config; `entry` is the object under `mcpServers`.

    `exports` are the variables that the entry refers to and that the tool used to prompt for. `inherits` is the
    part of the tool's environment that it passes on, None for a remote server. The tool ignores a server that
    `is_refused`.
    """

    name: str
    entry: Entry
    source: SettingsSource
    notices: tuple[Notice, ...] = ()
    exports: tuple[str, ...] = ()
    inherits: Inherit | None = None
    is_refused: bool = False

    def with_fields(self, fields: Mapping[str, object]) -> ForeignServer:
        return replace(self, entry={**self.entry, **fields})

    @property
    def is_off(self) -> bool:
        return self.entry.get("enabled") is False

    def without_field(self, name: str) -> ForeignServer:
        return replace(self, entry={key: value for key, value in self.entry.items() if key != name})


@dataclass(frozen=True)
class Reading:
    """The result of reading one file; `error` is the reason of a failure, with line and column of a syntax error.

    `is_borrowed` marks a file of another owner, such as a plugin, whose servers are added to those of the tool.
    `omitted_count` is the number of servers that were left out because their scope was not requested.
    """

    source: SettingsSource
    servers: tuple[ForeignServer, ...] = ()
    notices: tuple[Notice, ...] = ()
    error: str = ""
    is_borrowed: bool = False
    omitted_count: int = 0

    @property
    def has_own_entry(self) -> bool:
        """Return whether dynamic-mcp is among the servers of the file."""
        return any(notice.is_about_us for notice in self.notices)
