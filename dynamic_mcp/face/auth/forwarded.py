"""Accepts the user that a reverse proxy names in headers. Only the peers listed in the config are trusted."""

from __future__ import annotations

from asyncio import Future

from dynamic_mcp.config.auth import Forwarded
from dynamic_mcp.config.issuers import FORWARDED
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial, Provider
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.trusted_peers import TrustedPeers
from dynamic_mcp.identity import Authentication, Principal

GROUPS_CLAIM = "groups"
_MAX_USER = 500
_MAX_GROUPS = 200


class ForwardedProvider(Provider):
    """Reads the user and the groups from the headers of trusted peers."""

    name = "forwarded"

    def __init__(self, config: Forwarded) -> None:
        self._config = config
        self._trusted = TrustedPeers(config.trusted_proxies)

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        return bool(head.headers.get(self._config.user, b"").strip()) and head.peer in self._trusted

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        for name in (self._config.user, self._config.groups):
            if name in head.repeated:
                return CredentialDenial("invalid_request", f"duplicate header `{name.decode()}`")
        try:
            user = head.headers[self._config.user].strip().decode()
            groups = _split(head.headers.get(self._config.groups, b"").decode())
        except UnicodeDecodeError:
            return CredentialDenial("invalid_request", "a header from the reverse proxy is not UTF-8")
        if len(user) > _MAX_USER or len(groups) > _MAX_GROUPS:
            return CredentialDenial("invalid_request", "a header from the reverse proxy is too long")
        claims = ((GROUPS_CLAIM, groups),) if groups else ()
        return Authentication(Principal(FORWARDED, user), "forwarded", claims=claims)

    def identify(self, head: RequestHead) -> Authentication | None:
        """Return the user for a page; None if no trusted peer names one."""
        result = self.authenticate(head, None) if self.recognises(head, None) else None
        return result if isinstance(result, Authentication) else None

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether this provider named the user: each request names it again, so it never expires."""
        return authentication.provider == "forwarded"


def _split(groups: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (each.strip() for each in groups.split(",")))))
