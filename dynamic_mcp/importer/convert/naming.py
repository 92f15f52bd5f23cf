"""Names of servers: validity in our config, and detection of dynamic-mcp itself."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from urllib.parse import urlsplit

from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.system.text import replace_unprintable

_WORD = re.compile(r"[A-Za-z_-]{1,20}")
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


def legalize(name: str, taken: Container[str]) -> tuple[str, str]:
    """Return a valid name that is not taken, and a remark if it is unusual or differs from the original."""
    valid_name = replace_unprintable(name, " ")
    valid_name = valid_name.strip() if valid_name != name else valid_name
    if not valid_name.strip():
        valid_name = "server"
    if len(valid_name) > NAME_LENGTH:
        valid_name = valid_name[:NAME_LENGTH].rstrip()
    valid_name = make_unique(valid_name, taken)
    if valid_name != name:
        return valid_name, f"the name is not valid here and becomes `{valid_name}`"
    if not _PLAIN.fullmatch(name):
        return valid_name, "the name has characters that some clients reject; it is kept"
    return valid_name, ""


def derive_names(urls: Sequence[str]) -> list[str]:
    """Return a name for each URL: its host, and for several of one host the words of their paths too."""
    hosts = [_host(url) for url in urls]
    names: list[str] = []
    for url, host in zip(urls, hosts, strict=True):
        words = _path_words(url) if hosts.count(host) > 1 else []
        names.append(make_unique("-".join([host, *words])[:NAME_LENGTH], names))
    return names


def make_unique(name: str, taken: Container[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    number, unique_name = 2, name
    while unique_name in taken:
        suffix = f"-{number}"
        unique_name, number = name[: NAME_LENGTH - len(suffix)] + suffix, number + 1
    return unique_name


def is_ours(name: str, command: str | None, args: Sequence[str], url: str | None) -> bool:
    """Return whether a server is dynamic-mcp, by its name or by the program that it or its launcher starts."""
    if name.strip().lower() in _OURS:
        return True
    return url is None and command is not None and _starts_dynamic_mcp([command, *args])


def _host(url: str) -> str:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", host).strip("-") or "server"


def _path_words(url: str) -> list[str]:
    """Return the words of a URL's path, without parts that may be keys: names are shown everywhere."""
    try:
        parts = urlsplit(url).path.split("/")
    except ValueError:
        return []
    return [part for part in parts if _WORD.fullmatch(part)]


def _starts_dynamic_mcp(words: Sequence[str]) -> bool:
    while words:
        program = _program_name(words[0])
        if program in _OURS:
            return True
        if not _LAUNCHER.fullmatch(program):
            return False
        named, words = _parse_launcher(words[1:])
        if named in _OURS:
            return True
    return False


def _parse_launcher(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the package that the options name, and the words from the program on."""
    i = 0
    while i < len(words):
        word = words[i]
        option, _, value = word.partition("=")
        if option == "-c":  # a command line for a shell
            return "", words[i + 1].split() if i + 1 < len(words) else ()
        if option in _NAMING_OPTIONS and word.startswith("-"):
            i += 0 if value else 1
            named = _program_name(value or (words[i] if i < len(words) else ""))
            if named in _OURS:
                return named, ()
        elif option in _OTHER_OPTIONS:
            i += 0 if value else 1
        elif not (word.startswith("-") or word in _WORDS or re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL)):
            return "", words[i:]
        i += 1
    return "", ()


def _program_name(word: str) -> str:
    if word.startswith("@"):  # another publisher's package of that name
        return ""
    match = _PROGRAM.fullmatch(re.split(r"[/\\]", word.strip())[-1])
    return match["name"].lower() if match else ""
