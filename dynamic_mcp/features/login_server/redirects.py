"""Where a browser may be sent with an authorization code (OAuth 2.1, section 2.3; RFC 8252, section 7).

A redirect URI is compared character by character, except for the port of a program on the person's own computer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

_MAX_CHARS = 2000
# Neither spaces nor control characters, and none of those that browsers rewrite before they go there.
_CHARACTERS = re.compile(r"[!$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*", re.ASCII)
_LOOPBACK = re.compile(r"(http://(?:localhost|127\.0\.0\.1|\[::1\]))(:\d{1,5})?((?:[/?].*)?)", re.ASCII)
# Schemes of programs whose owners did not name them after a domain, as RFC 8252 asks. All others without a dot, such
# as `javascript`, `data` and `file`, mean something to browsers.
_KNOWN_SCHEMES = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed", "claude", "raycast", "goose"})


class ForbiddenRedirect(ValueError):
    """A redirect URI that nobody may have; the message says why, without repeating it."""


def check_redirect(uri: str) -> None:
    """Check a redirect URI that a client wants. Raises ForbiddenRedirect."""
    if len(uri) > _MAX_CHARS or _CHARACTERS.fullmatch(uri) is None:
        raise ForbiddenRedirect("a redirect URI is an absolute URL without a fragment, spaces or special characters")
    parts = _split(uri)
    scheme = uri.partition(":")[0]
    if _SCHEME.fullmatch(scheme) is None:
        raise ForbiddenRedirect("the scheme of a redirect URI is written in lower case")
    if scheme in ("http", "https"):
        _check_web(parts)
    elif "." not in scheme and scheme not in _KNOWN_SCHEMES:
        raise ForbiddenRedirect(f"redirect URIs with the scheme `{scheme[:20]}` are not accepted")


def _check_web(parts: SplitResult) -> None:
    if not parts.hostname or "@" in parts.netloc or not parts.geturl().startswith(f"{parts.scheme}://"):
        raise ForbiddenRedirect("a redirect URI has a host, and no user")
    if parts.scheme == "http" and not is_loopback(parts.geturl()):
        raise ForbiddenRedirect(
            "a redirect URI with `http` is for programs on the person's own computer: use `https`"
        )


def find_redirect(registered: Iterable[str], asked: str | None) -> str | None:
    """Return the redirect URI to use, if it is registered; one that is not asked for is the only one."""
    known = tuple(registered)
    if asked is None:
        return known[0] if len(known) == 1 else None
    return asked if any(_matches(each, asked) for each in known) else None


def _matches(registered: str, asked: str) -> bool:
    if registered == asked:
        return True
    known, wanted = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(asked)
    if known is None or wanted is None or wanted[2] is None:
        return False
    try:
        check_redirect(asked)
    except ForbiddenRedirect:
        return False
    # a program listens at the port that it gets (RFC 8252, section 7.3)
    return (known[1], known[3]) == (wanted[1], wanted[3])


def is_loopback(uri: str) -> bool:
    """Tell whether a checked redirect URI leads to any program that listens on the person's own computer."""
    return _LOOPBACK.fullmatch(uri) is not None


def describe_target(uri: str) -> str:
    """Return where a checked redirect URI leads, as a person should see it: a host, or a program's scheme."""
    parts = _split(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # raises for what is no number
    except ValueError:
        raise ForbiddenRedirect("a redirect URI is a URL") from None
    if not parts.scheme:
        raise ForbiddenRedirect("a redirect URI is an absolute URL")
    return parts
