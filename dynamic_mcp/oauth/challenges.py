"""The `Bearer` challenge in a `WWW-Authenticate` header (RFC 9110, section 11.6.1; RFC 6750, section 3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

_PARAM = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9_-]*)(?=\s+[A-Za-z0-9_-]+\s*=|\s*(?:,|$))")
LONGEST = 8192


@dataclass(frozen=True)
class BearerChallenge:
    """The members of a challenge: the URL of the metadata, the scope and the error code; all may be missing."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def parse_challenge(headers: Iterable[str]) -> BearerChallenge:
    """Return the `Bearer` challenge in these headers; an empty one if there is none."""
    params = _bearer_params(", ".join(headers)[:LONGEST])
    return BearerChallenge(params.get("resource_metadata"), params.get("scope"), params.get("error"))


def _bearer_params(text: str) -> Mapping[str, str]:
    blank = re.sub(r'"(?:[^"\\]|\\.)*"', lambda quoted: "_" * len(quoted[0]), text)
    for scheme, following in pairwise([*_SCHEME.finditer(blank), None]):
        if scheme is not None and scheme[1].lower() == "bearer":
            part = text[scheme.end() : following.start() if following else len(text)]
            return {m[1].lower(): _parse_value(m) for m in _PARAM.finditer(part)}
    return {}


def _parse_value(match: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else str(match[3])
