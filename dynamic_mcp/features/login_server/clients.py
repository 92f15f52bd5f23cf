"""Clients: their metadata from a registration or a document, and the parts that are stored."""

from __future__ import annotations

import unicodedata

import msgspec
from msgspec import Struct

from dynamic_mcp.features.login_server.redirects import ForbiddenRedirect, check_redirect, is_loopback
from dynamic_mcp.system.decoding import decode_as

# Limits of stored metadata.
_MAX_REDIRECTS, _MAX_REDIRECT_CHARS = 50, 4096
_MAX_NAME_CHARS = 80
REFRESH = "refresh_token"
CODE = "authorization_code"
# The scope that requests a refresh token; all other scopes are those of access rules.
OFFLINE = "offline_access"


class ForbiddenClient(Exception):
    """A client that is refused, with an error code of RFC 7591, section 3.2.2."""

    def __init__(self, error: str, why: str) -> None:
        super().__init__(why)
        self.error = error
        self.why = why


class ClientMetadata(Struct, frozen=True, omit_defaults=True):
    """The used part of a client's metadata (RFC 7591, section 2)."""

    redirect_uris: tuple[str, ...] = ()
    client_id: str | None = None
    client_name: str | None = None
    client_secret: str | None = None
    grant_types: tuple[str, ...] | None = None
    response_types: tuple[str, ...] | None = None


class OAuthClient(Struct, frozen=True, omit_defaults=True):
    """A client; `id` is the URL of its document if `has_document`, else one that we assigned."""

    id: str
    redirect_uris: tuple[str, ...]
    name: str | None = None
    may_refresh: bool = True
    has_document: bool = False

    @property
    def is_local(self) -> bool:
        """True if any program on the user's computer could pose as this client."""
        return all(is_loopback(each) for each in self.redirect_uris)


def read_metadata(body: bytes) -> ClientMetadata:
    """Parse the metadata of a client. Raises ForbiddenClient."""
    try:
        return decode_as(body, ClientMetadata)
    except (ValueError, RecursionError) as exc:
        why = str(exc) if isinstance(exc, msgspec.ValidationError) else "the metadata is not JSON"
        raise ForbiddenClient("invalid_client_metadata", why) from None


def make_client(id: str, metadata: ClientMetadata, *, has_document: bool) -> OAuthClient:
    """Return the client with this metadata. Raises ForbiddenClient if it is not supported."""
    _check_redirects(metadata.redirect_uris)
    grants = metadata.grant_types
    if grants is not None and CODE not in grants:
        raise ForbiddenClient("invalid_client_metadata", f"`grant_types` must have `{CODE}`")
    if metadata.response_types is not None and "code" not in metadata.response_types:
        raise ForbiddenClient("invalid_client_metadata", "`response_types` must have `code`")
    return OAuthClient(
        id=id,
        redirect_uris=metadata.redirect_uris,
        name=clean_name(metadata.client_name or "") or None,
        # by RFC 7591, clients without `grant_types` get no refresh token, but most want one
        may_refresh=grants is None or REFRESH in grants,
        has_document=has_document,
    )


def _check_redirects(uris: tuple[str, ...]) -> None:
    if not 1 <= len(uris) <= _MAX_REDIRECTS:
        raise ForbiddenClient("invalid_redirect_uri", f"`redirect_uris` must have 1 to {_MAX_REDIRECTS} entries")
    if sum(map(len, uris)) > _MAX_REDIRECT_CHARS:
        why = f"`redirect_uris` may have at most {_MAX_REDIRECT_CHARS} characters in total"
        raise ForbiddenClient("invalid_redirect_uri", why)
    for uri in uris:
        try:
            check_redirect(uri)
        except ForbiddenRedirect as exc:
            raise ForbiddenClient("invalid_redirect_uri", str(exc)) from None


def clean_name(name: str) -> str:
    """Return a name on one line, without control characters or characters that change the text direction."""
    spaced = "".join(" " if each.isspace() else each for each in name[: 4 * _MAX_NAME_CHARS])
    visible = "".join(each for each in spaced if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    text = " ".join(visible.split())
    return text if len(text) <= _MAX_NAME_CHARS else text[: _MAX_NAME_CHARS - 1] + "…"
