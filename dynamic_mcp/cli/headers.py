"""The `--header` option: `Name: value`, as HTTP writes it, or `Name=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynamic_mcp.config import types
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.errors import InvalidArguments

HEADER_HINT = "write `--header 'Authorization: Bearer ${TOKEN}'`, in single quotes"
# A header's name has neither, so the first of them ends it.
_SEPARATOR = re.compile("[:=]")


def parse_headers(words: Iterable[str]) -> dict[str, str]:
    """Return headers by their names. Raises InvalidArguments, whose message has no value: it may be a secret."""
    found: dict[str, str] = {}
    for number, word in enumerate(words, 1):
        name, *rest = (part.strip() for part in _SEPARATOR.split(word, maxsplit=1))
        try:
            types.check_headers({name: ""})
        except FlawError as exc:
            raise InvalidArguments(f"--header number {number}: {exc}", hint=HEADER_HINT) from exc
        if not rest or not rest[0]:
            raise InvalidArguments(f"--header `{name}` has no value", hint=HEADER_HINT)
        found[name] = rest[0]
    return found
