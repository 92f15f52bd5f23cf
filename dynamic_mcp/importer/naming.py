"""Names of servers: what is legal in our config, and whether a server is dynamic-mcp itself."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from dynamic_mcp.config.values import NAME_LENGTH
from dynamic_mcp.system.text import replace_unprintable

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OURS = frozenset(("dynamic-mcp", "dynamic_mcp", "dmcp", "dynamic-mcp-proxy"))
_PROGRAM = re.compile(r"(?P<name>[^@=<>~!\[]+?)(?:\.(?:exe|cmd|bat|ps1|py))?(?:[@=<>~!\[].*)?", re.IGNORECASE)
_LAUNCHER = re.compile(
    r"(?:uvx?|pipx|npx|npm|pnpm|pnpx|yarn|bunx?|deno|python[0-9.]*|pythonw|py|cmd|sh|bash|zsh|env|nohup|wsl|mise|poetry|rye|hatch)"
)
_WORDS = frozenset(("run", "x", "dlx", "exec", "tool", "/c", "/k", "--"))
_NAMING_OPTIONS = frozenset(("--from", "-m", "--package", "-p", "--spec"))
_OTHER_OPTIONS = frozenset(
    ("--directory", "--project", "--python", "--with", "--index-url", "--env-file", "-C", "-d")
)


def legal(name: str, taken: Container[str]) -> tuple[str, str]:
    """A name that our config takes and that is not taken, and what is to be said where it is odd or not the given."""
    made = replace_unprintable(name, " ")
    made = made.strip() if made != name else made
    if not made.strip():
        made = "server"
    if len(made) > NAME_LENGTH:
        made = made[:NAME_LENGTH].rstrip()
    made = _free(made, taken)
    if made != name:
        return made, f"the name cannot be used here and becomes `{made}`"
    if not _PLAIN.fullmatch(name):
        return made, "the name has characters that some clients do not take; it is kept"
    return made, ""


def is_ours(name: str, command: str | None, args: Sequence[str], url: str | None) -> bool:
    """Whether a server is dynamic-mcp: by its name, or by the program that is started, directly or by a launcher."""
    if name.strip().lower() in _OURS:
        return True
    return url is None and command is not None and _starts_us([command, *args])


def _free(name: str, taken: Container[str]) -> str:
    number, made = 2, name
    while made in taken:
        suffix = f"-{number}"
        made, number = name[: NAME_LENGTH - len(suffix)] + suffix, number + 1
    return made


def _starts_us(words: Sequence[str]) -> bool:
    while words:
        program = _program(words[0])
        if program in _OURS:
            return True
        if not _LAUNCHER.fullmatch(program):
            return False
        named, words = _launched(words[1:])
        if named in _OURS:
            return True
    return False


def _launched(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The package that options name, and the words from the program on."""
    i = 0
    while i < len(words):
        word = words[i]
        option, _, value = word.partition("=")
        if option == "-c":  # a line for a shell
            return "", words[i + 1].split() if i + 1 < len(words) else ()
        if option in _NAMING_OPTIONS and word.startswith("-"):
            i += 0 if value else 1
            named = _program(value or (words[i] if i < len(words) else ""))
            if named in _OURS:
                return named, ()
        elif option in _OTHER_OPTIONS:
            i += 0 if value else 1
        elif not (word.startswith("-") or word in _WORDS or re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL)):
            return "", words[i:]
        i += 1
    return "", ()


def _program(word: str) -> str:
    if word.startswith("@"):  # somebody else's package of that name
        return ""
    match = _PROGRAM.fullmatch(re.split(r"[/\\]", word.strip())[-1])
    return match["name"].lower() if match else ""
