"""All providers of a config as one: the first that recognises a credential decides, and nobody else is asked.

What is refused says why as RFC 6750 has it, and never repeats any of the credential.
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
from dynamic_mcp.face.auth.provider import Denial, Provider
from dynamic_mcp.face.http.authenticator import AuthRejection, Outcome, Page
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, refusal
from dynamic_mcp.identity import Authentication

log = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 16 << 10
_TOKEN = re.compile(rb"[!-~]+")  # more than RFC 6750 has, section 2.1: tokens of a config are what somebody wrote
_STATUS_BY_ERROR = {"invalid_request": 400, "invalid_token": 401, "insufficient_scope": 403}
_RETRY: Headers = ((b"retry-after", b"5"),)

_DOUBLED = Denial("invalid_request", "the header `Authorization` is there twice")
_TOO_LONG = Denial("invalid_token", f"the token is longer than {_MAX_TOKEN_BYTES} bytes")
_MALFORMED = Denial("invalid_token", "the token is empty, or has characters that a token cannot have")
_GUESSED = "too many wrong tokens came from this address: try again in a few seconds"
_RETRY_SOON: Headers = ((b"retry-after", b"2"),)
_NO_CREDENTIAL = "there is no credential"
_UNKNOWN = Denial("invalid_token", "the token is not one that is known here")


class AuthChain:
    """An `Authenticator`. Without `metadata`, nobody is told where to log in; every token needs the `scopes`.

    `guesses` are the wrong tokens of before; they outlive a reload.
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
        """Tell who sent a request; a future where that takes a question to somebody else."""
        token = _read_token(head)
        if isinstance(token, Denial):
            return self._refuse(token, head)
        if token is not None and self._guesses.must_wait(head):
            return AuthRejection.of(refusal(429, _GUESSED, _RETRY_SOON), _GUESSED)
        for provider in self._providers:
            if provider.recognises(head, token):
                found = provider.authenticate(head, token)
                if isinstance(found, Future):
                    return self._convert_later(found, head, provider)
                return self._convert(found, head, provider)
        return self._refuse(None, head) if token is None else self._convert(_UNKNOWN, head)

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether what was shown at the start of a stream still counts."""
        return any(each.is_valid(authentication) for each in self._providers)

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return what answers a path that is not one of MCP: the metadata, or a page of a provider."""
        own = None if self._metadata is None else self._metadata.find_page(method, path)
        pages = (each.find_page(method, path) for each in self._providers)
        return own or next((page for page in pages if page is not None), None)

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes (RFC 6750, section 3.1)."""
        return self._refuse(Denial("insufficient_scope", "the token lacks a scope that this needs", scopes), None)

    # --- answers ---------------------------------------------------------------------------------------

    def _convert(
        self, found: Authentication | Denial, head: RequestHead, provider: Provider | None = None
    ) -> Outcome:
        if isinstance(found, Authentication):
            if b"authorization" in head.headers:
                self._guesses.note_right(head)
            return found
        if found.error == "invalid_token":
            self._guesses.note_wrong(head)
        return self._refuse(found, head, "" if provider is None else provider.name)

    def _convert_later(
        self, found: Future[Authentication | Denial], head: RequestHead, provider: Provider
    ) -> Future[Outcome]:
        outcome: Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(done: Future[Authentication | Denial]) -> None:
            if outcome.done():
                return
            error = None if done.cancelled() else done.exception()
            if error is not None:
                log.error("a bug: a client could not be authenticated", exc_info=error)
            is_known = error is None and not done.cancelled()
            outcome.set_result(self._convert(done.result(), head, provider) if is_known else _failure())

        found.add_done_callback(settle)
        return outcome

    def _refuse(self, denial: Denial | None, head: RequestHead | None, provider: str = "") -> AuthRejection:
        """Return the refusal of a credential, or of its absence."""
        if denial is None:
            status, why = 401, "this server needs a credential: the header `Authorization: Bearer …`"
        elif denial.error == "temporarily_unavailable":  # a new login would be of no use
            return AuthRejection.of(refusal(503, denial.why, _RETRY), denial.why, provider)
        else:
            status, why = _STATUS_BY_ERROR[denial.error], denial.why
            log.debug("refused a client at %s: %s", (head and head.peer) or "a Unix socket", why)
        response = refusal(status, why, ((b"www-authenticate", self._challenge(denial, head)),))
        return AuthRejection.of(response, _NO_CREDENTIAL if denial is None else why, provider)

    def _challenge(self, denial: Denial | None, head: RequestHead | None) -> bytes:
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


def _read_token(head: RequestHead) -> str | Denial | None:
    """Return the bearer token of a request; None if it has none."""
    value = head.headers.get(b"authorization")
    if value is None:
        return None
    if b"authorization" in head.repeated:
        return _DOUBLED
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() != b"bearer":  # a reverse proxy may have asked for a password
        return None
    token = rest.strip()
    if len(token) > _MAX_TOKEN_BYTES:
        return _TOO_LONG
    return token.decode() if _TOKEN.fullmatch(token) else _MALFORMED


def _quotable(text: str) -> bytes:
    """Return a text as a quoted string may have it (RFC 6750, section 3)."""
    return text.replace('"', "'").replace("\\", "/").encode("ascii", "replace")


def _failure() -> Response:
    return refusal(503, "it could not be found out who sent this request; try again")
