"""The words of a command line, for those who must know them without loading click."""

from __future__ import annotations

import re
from pathlib import Path

# By what they are for, as `--help` shows them. Each is loaded when it is named, from the file called after it.
SECTIONS = {
    "Serve": ["serve"],
    "Set up": ["init", "import", "install", "uninstall", "undo", "add", "remove", "enable", "disable"],
    "Look and try": ["tools", "resources", "prompts", "call", "read", "prompt", "stats"],
    "Check and repair": ["check", "doctor", "auth", "status", "logs"],
    "For editors and shells": ["schema", "completions"],
}
COMMANDS = [name for names in SECTIONS.values() for name in names]


def looks_like_a_command(word: str) -> bool:
    """Tell whether a word is more likely a misspelt command than a config."""
    return re.fullmatch(r"[a-z]+(-[a-z]+)*", word) is not None and not Path(word).exists()
