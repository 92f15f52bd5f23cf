"""Reads Crush's start script: only its `mcp add` lines, word by word. Never runs anything in it."""

from __future__ import annotations

import re
import shlex

_LISTS = {
    "--args": "args",
    "--arg": "args",
    "--disabled-tools": "disabled_tools",
    "--disabled-tool": "disabled_tools",
    "--enabled-tools": "enabled_tools",
    "--enabled-tool": "enabled_tools",
}
_PAIRS = {"--env": "env", "--header": "headers", "--headers": "headers"}
_SWITCHES = {"--disabled": "disabled", "--oauth": "oauth"}
_SINGLES = {
    "--type": "type",
    "--command": "command",
    "--url": "url",
    "--timeout": "timeout",
    "--oauth-client-id": "oauth_client_id",
    "--oauth-client-secret": "oauth_client_secret",
    "--oauth-callback-port": "oauth_callback_port",
}
_OPTIONS = _LISTS.keys() | _PAIRS.keys() | _SWITCHES.keys() | _SINGLES.keys()
_UNREAD = "is not on a line of its own; scripts are never run, so it is not read"


def loads(text: str) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """Return the servers of a script in the shape of `crush.json`, and remarks about unread lines."""
    servers: dict[str, object] = {}
    unread: list[tuple[str, str]] = []
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        words = _split_words(line)
        if words[:2] == ["mcp", "add"] and len(words) > 2:
            servers[words[2]] = _parse_server(words[3:])
        elif re.search(r"^[^#]*\bmcp\s+add\b", line):
            unread.append(("mcp add", _UNREAD))
    return {"mcp": servers}, tuple(unread)


def _split_words(line: str) -> list[str]:
    if "mcp" not in line:
        return []
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # the quote ends on another line
        return []


def _parse_server(words: list[str]) -> dict[str, object]:
    server: dict[str, object] = {}
    waiting = list(words)
    while waiting:
        option, equals, joined = waiting.pop(0).partition("=")
        inline = [joined] if equals else []
        if option in _LISTS:
            _list_at(server, _LISTS[option]).extend(inline or _take(waiting))
        elif option in _PAIRS:
            name, value = _parse_pair(inline or _take(waiting, most=2))
            _mapping_at(server, _PAIRS[option])[name] = value
        elif option in _SWITCHES and not inline:
            server[_SWITCHES[option]] = True
        else:
            values = inline or _take(waiting, most=1)
            key = _SINGLES.get(option, option.lstrip("-").replace("-", "_"))
            server[key] = _parse_number(values[0]) if values else True
    return server


def _take(waiting: list[str], most: int | None = None) -> list[str]:
    """Remove and return the words up to the next option of Crush, at most `most` of them."""
    taken: list[str] = []
    while waiting and waiting[0] not in _OPTIONS and (most is None or len(taken) < most):
        taken.append(waiting.pop(0))
    return taken


def _parse_number(word: str) -> object:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 16 else word


def _parse_pair(words: list[str]) -> tuple[str, str]:
    if len(words) == 1:
        name, _, value = words[0].partition("=")
        return name, value
    return (words[0], words[1]) if words else ("", "")


def _list_at(server: dict[str, object], key: str) -> list[object]:
    found = server.setdefault(key, [])
    return found if isinstance(found, list) else []


def _mapping_at(server: dict[str, object], key: str) -> dict[str, object]:
    found = server.setdefault(key, {})
    return found if isinstance(found, dict) else {}
