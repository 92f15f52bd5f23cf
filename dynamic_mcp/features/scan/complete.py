"""Reads a program's completions of its commands and flags: cobra's `__complete`, and git's helper."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, ValueFact

_COBRA = b"github.com/spf13/cobra"
_MAX_ENTRIES = 2000
COBRA = "cobra's __complete"
GIT = "git's completion helper"


def is_cobra(file: Path) -> bool:
    """Return whether a program's file contains cobra: other programs may take `__complete` as an argument."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(_COBRA) >= 0
    except (OSError, ValueError):
        return False


def words_for_flags(path: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that list flags. A word that starts with dashes keeps cobra from completing arguments."""
    return ("__complete", *path, "--")


def words_for_commands(path: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that list subcommands. A command without any would complete arguments."""
    return ("__complete", *path, "")


def read_cobra(path: Sequence[str], flags: str, commands: str = "") -> CommandFact:
    """Return the command in cobra's output. Flags without `--help` among them are the required ones."""
    flag_lines = [(name, text) for name, text in _lines(flags) if name.startswith("--")]
    is_required = bool(flag_lines) and all(name.rstrip("=") != "--help" for name, _ in flag_lines)
    return CommandFact(
        source=COBRA,
        path=tuple(path),
        flags=tuple(
            FlagFact(names=(name.rstrip("="),), description=text, required=is_required or None)
            for name, text in flag_lines
        ),
        subcommands=tuple(Subcommand(name, text) for name, text in _lines(commands) if not name.startswith("-")),
    )


def read_git(path: Sequence[str], text: str) -> CommandFact:
    """Return the command in the output of `git COMMAND --git-completion-helper-all`; `=` marks flags with values."""
    names = [word for word in text.split() if word.startswith("--") and len(word) > 2][:_MAX_ENTRIES]
    flags = (
        FlagFact(names=(name.rstrip("="),), value=ValueFact(type=None if name.endswith("=") else "boolean"))
        for name in names
    )
    return CommandFact(source=GIT, path=tuple(path), flags=tuple(flags))


def _lines(text: str) -> list[tuple[str, str]]:
    """Return names and their descriptions, up to the line with the directive."""
    entries: list[tuple[str, str]] = []
    for line in text.splitlines()[:_MAX_ENTRIES]:
        if line.startswith(":"):
            break
        if line.startswith("_activeHelp_"):
            continue
        name, _, description = line.partition("\t")
        if name.strip():
            entries.append((name.strip(), description.strip()))
    return entries
