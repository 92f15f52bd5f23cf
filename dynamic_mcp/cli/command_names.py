"""The names of the commands, known without loading click."""

from __future__ import annotations

import re
from pathlib import Path

# By purpose, as `--help` shows them. Each command is loaded from the file of its name when it is needed.
SECTIONS = {
    "Serve": ["serve", "connect", "daemon"],
    "Set up": [
        "init",
        "import",
        "install",
        "uninstall",
        "undo",
        "add",
        "remove",
        "enable",
        "disable",
        "registry",
        "cli",
    ],
    "Look and try": ["tools", "resources", "prompts", "call", "read", "prompt", "stats"],
    "Approve": ["approve", "pins"],
    "Check and repair": ["check", "doctor", "access", "auth", "token", "status", "logs", "audit", "cache"],
    "For editors and shells": ["schema", "completions"],
}
COMMANDS = [name for names in SECTIONS.values() for name in names]


def looks_like_a_command(word: str) -> bool:
    """Tell whether a word is more likely a misspelled command than a config."""
    return re.fullmatch(r"[a-z]+(-[a-z]+)*", word) is not None and not Path(word).exists()
