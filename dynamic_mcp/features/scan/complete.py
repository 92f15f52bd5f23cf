"""What a program lists as completions of its own commands and flags: cobra's `__complete`, and git's helper."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, Subcommand, Value

_COBRA = b"github.com/spf13/cobra"
_MAX_ENTRIES = 2000
COBRA = "cobra's __complete"
GIT = "git's completion helper"


def is_cobra(file: Path) -> bool:
    """Tell whether a program is made with cobra, by its file: others may take `__complete` for a word."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(_COBRA) >= 0
    except (OSError, ValueError):
        return False


def words_for_flags(path: Sequence[str]) -> tuple[str, ...]:
    """Return the words that ask for flags. A word that begins with dashes makes cobra complete no arguments."""
    return ("__complete", *path, "--")


def words_for_commands(path: Sequence[str]) -> tuple[str, ...]:
    """Return the words that ask for commands. Only for a command that has some: else it would complete arguments."""
    return ("__complete", *path, "")


def read_cobra(path: Sequence[str], flags: str, commands: str = "") -> CommandFact:
    """Return what cobra answered. If `--help` is not among the flags, these are the ones that must be given."""
    listed = [(name, text) for name, text in _lines(flags) if name.startswith("--")]
    is_required = bool(listed) and all(name.rstrip("=") != "--help" for name, _ in listed)
    return CommandFact(
        source=COBRA,
        path=tuple(path),
        flags=tuple(
            FlagFact(names=(name.rstrip("="),), description=text, required=is_required or None)
            for name, text in listed
        ),
        subcommands=tuple(Subcommand(name, text) for name, text in _lines(commands) if not name.startswith("-")),
    )


def read_git(path: Sequence[str], text: str) -> CommandFact:
    """Return what `git COMMAND --git-completion-helper-all` printed: flags, with `=` if they take a value."""
    names = [word for word in text.split() if word.startswith("--") and len(word) > 2][:_MAX_ENTRIES]
    flags = (
        FlagFact(names=(name.rstrip("="),), value=Value(type=None if name.endswith("=") else "boolean"))
        for name in names
    )
    return CommandFact(source=GIT, path=tuple(path), flags=tuple(flags))


def _lines(text: str) -> list[tuple[str, str]]:
    """Return names and their texts; the line of the directive, and what follows, is none."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines()[:_MAX_ENTRIES]:
        if line.startswith(":"):
            break
        if line.startswith("_activeHelp_"):
            continue
        name, _, description = line.partition("\t")
        if name.strip():
            found.append((name.strip(), description.strip()))
    return found
