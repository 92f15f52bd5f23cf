"""Recognises the browser in which a login was started, by a cookie."""

from __future__ import annotations

import re
import secrets

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.features.login_server.store import hash_of

_VALUE = re.compile(r"[A-Za-z0-9_\-]{43}", re.ASCII)


class Browsers:
    """Names browsers by a random cookie, of which the server stores a hash. It says nothing about the user."""

    def __init__(self, origin: str, *, is_https: bool) -> None:
        self._origin = origin.encode()
        self._is_https = is_https
        # with this prefix, other hosts of the domain cannot set it (RFC 6265bis, section 4.1.3.2)
        self._name = "__Host-dynamic-mcp-browser" if is_https else "dynamic-mcp-browser"

    def name(self, head: RequestHead) -> str:
        """Return the browser's name, or a new one."""
        return next(iter(self._read(head)), secrets.token_urlsafe(32))

    def cookie(self, name: str) -> tuple[bytes, bytes]:
        """Return the header with which a browser keeps its name until it is closed."""
        secure = "; Secure" if self._is_https else ""
        return b"set-cookie", f"{self._name}={name}; Path=/; HttpOnly; SameSite=Lax{secure}".encode()

    def is_other(self, head: RequestHead, hashed: str) -> bool:
        """Return whether this is certainly another browser than the one with this hash."""
        names = self._read(head)
        return bool(names) and all(hash_of(each) != hashed for each in names)

    def may_decide(self, head: RequestHead, hashed: str) -> bool:
        """Return whether a form comes from our page in this browser.

        A browser embedded in a program may lose cookies. Then `Origin` must show that the form is ours, which no page
        of another site can fake.
        """
        origin = head.headers.get(b"origin")
        if (
            origin not in (None, self._origin)
            or head.headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin"
        ):
            return False
        return not self.is_other(head, hashed) if origin is not None else self._is_named(head, hashed)

    def _is_named(self, head: RequestHead, hashed: str) -> bool:
        return any(hash_of(each) == hashed for each in self._read(head))

    def _read(self, head: RequestHead) -> list[str]:
        pairs = (
            each.strip().partition("=")
            for each in re.split("[;,]", head.headers.get(b"cookie", b"").decode("latin-1"))
        )
        return [value for name, _, value in pairs if name == self._name and _VALUE.fullmatch(value)][:8]
