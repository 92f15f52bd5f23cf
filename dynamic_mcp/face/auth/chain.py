"""All providers of a config as one authenticator: the first that recognises a credential decides about it.

A refusal has its reason as RFC 6750 defines it, and never repeats any part of the credential.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from asyncio import Future
from collections.abc import Sequence

from dynamic_mcp.face.auth.guesses import TokenGuesses
from dynamic_mcp.face.auth.metadata import ResourceMetadata
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial, Provider
from dynamic_mcp.face.http.authenticator import AuthRejection, Outcome, Page
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, refusal
from dynamic_mcp.identity import Authentication

log = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 16 << 10
_TOKEN = re.compile(rb"[!-~]+")  # more than RFC 6750 allows, section 2.1, for tokens of a config
_STATUS_BY_ERROR = {"invalid_request": 400, "invalid_token": 401, "insufficient_scope": 403}
_RETRY: Headers = ((b"retry-after", b"5"),)

_DUPLICATE = CredentialDenial("invalid_request", "duplicate header `Authorization`")
_TOO_LONG = CredentialDenial("invalid_token", f"the token is longer than {_MAX_TOKEN_BYTES} bytes")
_MALFORMED = CredentialDenial("invalid_token", "the token is empty or has invalid characters")
_TOO_MANY_GUESSES = "too many wrong tokens from this address; retry in a few seconds"
_RETRY_SOON: Headers = ((b"retry-after", b"2"),)
_NO_CREDENTIAL = "no credential"
_UNAVAILABLE = refusal(503, "authentication is temporarily unavailable; retry")
_UNKNOWN = CredentialDenial("invalid_token", "unknown token")


class AuthChain:
    """The `Authenticator` of a config with providers.

    `metadata` says where to log in, if that is known; `scopes` are required of every token. `guesses` outlives a
    reload.
    """

    is_open = False

    def __init__(
        self,
        providers: Sequence[Provider],
        metadata: ResourceMetadata | None = None,
        *,
        scopes: tuple[str, ...] = (),
        guesses: TokenGuesses | None = None,
    ) -> None:
        self._providers = tuple(providers)
        self._metadata = metadata
        self._scopes = scopes
        self._guesses = guesses or TokenGuesses(time.monotonic)

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        token = _read_token(head)
        if isinstance(token, CredentialDenial):
            return self._refuse(token, head)
        if token is not None and self._guesses.must_wait(head):
            return AuthRejection.of(refusal(429, _TOO_MANY_GUESSES, _RETRY_SOON), _TOO_MANY_GUESSES)
        for provider in self._providers:
            if provider.recognises(head, token):
                result = provider.authenticate(head, token)
                if isinstance(result, Future):
                    return self._convert_later(result, head, provider)
                return self._convert(result, head, provider)
        return self._refuse(None, head) if token is None else self._convert(_UNKNOWN, head)

    def is_valid(self, authentication: Authentication) -> bool:
        return any(each.is_valid(authentication) for each in self._providers)

    def find_page(self, method: str, path: bytes) -> Page | None:
        metadata = None if self._metadata is None else self._metadata.find_page(method, path)
        pages = (each.find_page(method, path) for each in self._providers)
        return metadata or next((page for page in pages if page is not None), None)

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        return self._refuse(CredentialDenial("insufficient_scope", "the token lacks a required scope", scopes), None)

    # --- answers ---------------------------------------------------------------------------------------

    def _convert(self, result: AuthResult, head: RequestHead, provider: Provider | None = None) -> Outcome:
        if isinstance(result, Authentication):
            if b"authorization" in head.headers:
                self._guesses.record_right(head)
            return result
        if result.error == "invalid_token":
            self._guesses.record_wrong(head)
        return self._refuse(result, head, "" if provider is None else provider.name)

    def _convert_later(self, pending: Future[AuthResult], head: RequestHead, provider: Provider) -> Future[Outcome]:
        outcome: Future[Outcome] = asyncio.get_running_loop().create_future()

        def set_outcome(done: Future[AuthResult]) -> None:
            if outcome.done():
                return
            error = None if done.cancelled() else done.exception()
            if error is not None:
                log.error("a bug: authenticating a client failed", exc_info=error)
            has_failed = error is not None or done.cancelled()
            outcome.set_result(_UNAVAILABLE if has_failed else self._convert(done.result(), head, provider))

        pending.add_done_callback(set_outcome)
        return outcome

    def _refuse(self, denial: CredentialDenial | None, head: RequestHead | None, provider: str = "") -> AuthRejection:
        """Return the refusal of a credential; `denial` is None if the request has none."""
        if denial is None:
            status, why = 401, "authentication required: send the header `Authorization: Bearer …`"
        elif denial.error == "temporarily_unavailable":  # a new login would not help
            return AuthRejection.of(refusal(503, denial.why, _RETRY), denial.why, provider)
        else:
            status, why = _STATUS_BY_ERROR[denial.error], denial.why
            log.debug("refused a client at %s: %s", (head and head.peer) or "a Unix socket", why)
        response = refusal(status, why, ((b"www-authenticate", self._challenge(denial, head)),))
        return AuthRejection.of(response, _NO_CREDENTIAL if denial is None else why, provider)

    def _challenge(self, denial: CredentialDenial | None, head: RequestHead | None) -> bytes:
        members: list[tuple[str, str]] = []
        if denial is not None:
            members += [("error", denial.error), ("error_description", denial.why)]
        scopes = self._scopes if denial is None or not denial.scopes else denial.scopes
        if scopes:
            members.append(("scope", " ".join(scopes)))
        if self._metadata is not None:
            url = self._metadata.url if head is None else self._metadata.url_for(head)
            members.append(("resource_metadata", url))
        members = members or [("realm", "dynamic-mcp")]
        return b"Bearer " + b", ".join(b'%s="%s"' % (name.encode(), _quotable(value)) for name, value in members)


def _read_token(head: RequestHead) -> str | CredentialDenial | None:
    value = head.headers.get(b"authorization")
    if value is None:
        return None
    if b"authorization" in head.repeated:
        return _DUPLICATE
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() != b"bearer":  # it may be for a reverse proxy that requires a password
        return None
    token = rest.strip()
    if len(token) > _MAX_TOKEN_BYTES:
        return _TOO_LONG
    return token.decode() if _TOKEN.fullmatch(token) else _MALFORMED


def _quotable(text: str) -> bytes:
    """Return a text with only the characters that a quoted string may have (RFC 6750, section 3)."""
    return text.replace('"', "'").replace("\\", "/").encode("ascii", "replace")
