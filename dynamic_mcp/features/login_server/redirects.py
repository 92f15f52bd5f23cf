"""Checks redirect URIs (OAuth 2.1, section 2.3; RFC 8252, section 7).

They are compared character by character, except for the port of a program on the user's own computer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

_MAX_CHARS = 2000
# Without spaces, control characters, and characters that browsers rewrite.
_CHARACTERS = re.compile(r"[!$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*", re.ASCII)
_LOOPBACK = re.compile(r"(http://(?:localhost|127\.0\.0\.1|\[::1\]))(:\d{1,5})?((?:[/?].*)?)", re.ASCII)
# Schemes of applications that are not named after a domain, although RFC 8252 requires that. Other schemes without a
# dot, such as `javascript`, `data` and `file`, have a meaning in browsers.
_KNOWN_SCHEMES = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed", "claude", "raycast", "goose"})


class ForbiddenRedirect(ValueError):
    """A redirect URI that is never allowed; the message has the reason, and does not repeat it."""


def check_redirect(uri: str) -> None:
    """Check a redirect URI of a client. Raises ForbiddenRedirect."""
    if len(uri) > _MAX_CHARS or _CHARACTERS.fullmatch(uri) is None:
        raise ForbiddenRedirect(
            "a redirect URI must be an absolute URL without fragment, spaces or special characters"
        )
    parts = _split(uri)
    scheme = uri.partition(":")[0]
    if _SCHEME.fullmatch(scheme) is None:
        raise ForbiddenRedirect("the scheme of a redirect URI must be lower case")
    if scheme in ("http", "https"):
        _check_web(parts)
    elif "." not in scheme and scheme not in _KNOWN_SCHEMES:
        raise ForbiddenRedirect(f"redirect URIs with the scheme `{scheme[:20]}` are not accepted")


def _check_web(parts: SplitResult) -> None:
    if not parts.hostname or "@" in parts.netloc or not parts.geturl().startswith(f"{parts.scheme}://"):
        raise ForbiddenRedirect("a redirect URI must have a host, and no user")
    if parts.scheme == "http" and not is_loopback(parts.geturl()):
        raise ForbiddenRedirect("a redirect URI with `http` must lead to the user's own computer: use `https`")


def find_redirect(registered: Iterable[str], requested: str | None) -> str | None:
    """Return the redirect URI to use: the requested one if it is registered, or else the only one."""
    uris = tuple(registered)
    if requested is None:
        return uris[0] if len(uris) == 1 else None
    return requested if any(_matches(each, requested) for each in uris) else None


def _matches(registered: str, requested: str) -> bool:
    if registered == requested:
        return True
    ours, theirs = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(requested)
    if ours is None or theirs is None or theirs[2] is None:
        return False
    try:
        check_redirect(requested)
    except ForbiddenRedirect:
        return False
    # an application may listen on any port (RFC 8252, section 7.3)
    return (ours[1], ours[3]) == (theirs[1], theirs[3])


def is_loopback(uri: str) -> bool:
    """Return whether a checked redirect URI leads to a program on the user's own computer."""
    return _LOOPBACK.fullmatch(uri) is not None


def describe_target(uri: str) -> str:
    """Return where a checked redirect URI leads, for the user: a host, or a program's scheme."""
    parts = _split(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        raise ForbiddenRedirect("a redirect URI must be a URL") from None
    if not parts.scheme:
        raise ForbiddenRedirect("a redirect URI must be an absolute URL")
    return parts
