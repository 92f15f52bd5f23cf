"""The names of the commands, known without loading click. Features add theirs through the feature table."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

# By purpose, as `--help` shows them. Each command is loaded from the file of its name when it is used.
_SECTIONS = {
    "Serve": ["serve", "connect", "daemon"],
    "Set up": ["init", "import", "install", "uninstall", "undo", "add", "remove", "enable", "disable"],
    "Look and try": ["tools", "resources", "prompts", "call", "read", "prompt", "stats", "ui"],
    "Approve": [],
    "Check and repair": ["check", "doctor", "ready", "access", "auth", "token", "status", "health", "logs"],
    "For editors and shells": ["schema", "completions"],
}
_WORDS = re.compile(r"[a-z]+(-[a-z]+)*")


@functools.cache
def sections() -> Mapping[str, list[str]]:
    """Return the names by purpose, including those of features."""
    from dynamic_mcp.features import table

    found = {title: list(names) for title, names in _SECTIONS.items()}
    for _, command in table.commands():
        names = found[command.section]
        place = names.index(command.after) + 1 if command.after in names else len(names)
        names.insert(place if command.after else 0, command.name)
    return {title: names for title, names in found.items() if names}


@functools.cache
def command_names() -> list[str]:
    """Return all names, in the order of the help."""
    return [name for names in sections().values() for name in names]


def is_command(word: str) -> bool:
    """Return whether a word is a command; a path never is."""
    return _WORDS.fullmatch(word) is not None and word in command_names()


def looks_like_a_command(word: str) -> bool:
    """Return whether a word is more likely a misspelled command than a config."""
    return _WORDS.fullmatch(word) is not None and not Path(word).exists()
