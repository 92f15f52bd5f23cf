"""Globs of URIs, which can be written in many ways: a rule must not be avoided by another way to write the same.

Servers differ in what they decode and resolve. So a rule that allows must match each way to read a URI, and any other
rule one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from dynamic_mcp.policy.arguments import ConditionError
from dynamic_mcp.policy.globs import Globs

MAX_URI = 65_536
_DECODINGS = 2
# A scheme and an authority (RFC 3986, section 3); in a glob, `?` is a wildcard and starts no query
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)(//[^/?#]*)?")
_GLOB_ORIGIN = re.compile(r"([A-Za-z*?][A-Za-z0-9+.*?-]*:)(//[^/#]*)?")
# What may be read in more than one way: escapes, backslashes, empty segments and dot segments
_DOUBTFUL = re.compile(r"%|\\|(?<!:)//|[/:]\.\.?(?:[/?#]|$)")
_SLASHES = re.compile(r"/{2,}")
_PATH_SLASHES = re.compile(r"(?<!:)/{2,}")
_DOTS = re.compile(r"(?:^|/)\.\.?(?:/|$)")
_QUERY = re.compile(r"[?#]")
_ESCAPED_WILDCARD = re.compile(r"%(?=2[aA]|3[fF])")
_KEPT_IN_GLOBS = "*?:/#[]@!$&'()+,;=%~"


class UriGlobs:
    """Globs of URIs, any of which may match."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._globs = Globs(variant for pattern in patterns for variant in _pattern_variants(pattern))

    def match_all(self, uri: str) -> bool:
        """Tell whether the URI matches however it is read, as it must for a rule that allows."""
        try:
            return all(self._globs.matches(variant) for variant in variants(uri))
        except ConditionError:
            return False

    def match_any(self, uri: str) -> bool:
        """Tell whether the URI matches in one way to read it, which is enough for a rule that asks or denies."""
        try:
            return any(self._globs.matches(variant) for variant in variants(uri))
        except ConditionError:
            return True

    def may_match(self, template: str) -> bool:
        """Tell whether an expansion of a URI template may match."""
        return self._globs.may_match(template) or self._globs.may_match(_normalize_origin(template))

    def covers(self, template: str) -> bool:
        """Tell whether every expansion of a URI template matches in one way to read it. It may say no too often."""
        return self._globs.covers(template) or self._globs.covers(_normalize_origin(template))


def variants(uri: str) -> tuple[str, ...]:
    """Return the ways in which servers may read a URI: as written first, then with its escapes and dots resolved.

    Raises ConditionError if it is too long.
    """
    if len(uri) > MAX_URI:
        raise ConditionError(f"the URI is longer than {MAX_URI} characters")
    normal = _normalize_origin(uri)
    found = [uri, normal]
    origin = _ORIGIN.match(normal)
    start = origin.end() if origin else 0
    if _DOUBTFUL.search(normal, start):
        found += _read(origin[1] if origin else "", (origin[2] if origin else None) or "", normal[start:])
    return tuple(dict.fromkeys(found))


def _read(scheme: str, authority: str, rest: str) -> list[str]:
    """Return the ways to read a URI: decoded up to twice, by the RFC or as a path of files."""
    found: list[str] = []
    at = _QUERY.search(rest)
    path, query = (rest, "") if at is None else (rest[: at.start()], rest[at.start() :])
    for _ in range(_DECODINGS + 1):
        found.append(scheme + authority + _remove_dots(path) + query)
        found += [scheme + reading for reading in _read_as_file(authority, rest)]
        authority, path, query, rest = (unquote(part, errors="replace") for part in (authority, path, query, rest))
        authority = authority.lower()
    return found


def _read_as_file(authority: str, rest: str) -> list[str]:
    """Read as a server of files: a query has no meaning, a backslash is a slash, and a host may be a directory."""
    path = rest.replace("\\", "/")
    if not _DOTS.search(path):
        sign = ":" if authority.endswith(":") else "-"  # a URI within it stays as it is
        return [authority + _PATH_SLASHES.sub("/", sign + path)[1:]]
    path = _SLASHES.sub("/", path)
    return [authority + _remove_dots(path), authority[:2] + _remove_dots(authority[2:] + path)]


def _remove_dots(path: str) -> str:
    """Remove dot segments (RFC 3986, section 5.2.4)."""
    if not _DOTS.search(path):
        return path
    segments = path.split("/")
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept != [""]:
                del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


def _normalize_origin(uri: str, form: re.Pattern[str] = _ORIGIN) -> str:
    """Write scheme and host in lower case, and a local file in its longest form (RFC 8089, appendix B)."""
    origin = form.match(uri)
    if origin is None:
        return uri
    lowered, rest = origin[0].lower(), uri[origin.end() :]
    if lowered == "file://localhost" or (lowered == "file:" and rest.startswith("/")):
        lowered = "file://"
    return lowered + rest


def _pattern_variants(pattern: str) -> tuple[str, ...]:
    """Return the ways to write a glob that match the ways to read what it means."""
    normal = _normalize_origin(pattern, _GLOB_ORIGIN)
    found = [pattern, normal, quote(normal, safe=_KEPT_IN_GLOBS)]
    for _ in range(_DECODINGS):
        normal = unquote(_ESCAPED_WILDCARD.sub("%25", normal), errors="replace")
        found.append(normal)
    return tuple(dict.fromkeys(found))
