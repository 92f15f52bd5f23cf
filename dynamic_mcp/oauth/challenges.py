"""What a server says in `WWW-Authenticate` when it refuses (RFC 9110, section 11.6.1; RFC 6750, section 3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

_PARAM = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9_-]*)(?=\s+[A-Za-z0-9_-]+\s*=|\s*(?:,|$))")
LONGEST = 8192


@dataclass(frozen=True)
class Demand:
    """What a server wants: the place of its metadata, the scope, and the kind of error, where it says so."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def demand(headers: Iterable[str]) -> Demand:
    """Return what the `Bearer` challenge among these headers says."""
    params = _bearer_params(", ".join(headers)[:LONGEST])
    return Demand(params.get("resource_metadata"), params.get("scope"), params.get("error"))


def _bearer_params(text: str) -> Mapping[str, str]:
    blank = re.sub(r'"(?:[^"\\]|\\.)*"', lambda quoted: "_" * len(quoted[0]), text)
    for found, following in pairwise([*_SCHEME.finditer(blank), None]):
        if found is not None and found[1].lower() == "bearer":
            part = text[found.end() : following.start() if following else len(text)]
            return {m[1].lower(): _unquoted(m) for m in _PARAM.finditer(part)}
    return {}


def _unquoted(match: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else str(match[3])
