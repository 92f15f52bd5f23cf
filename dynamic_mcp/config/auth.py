"""The authentication of HTTP clients: `settings.http.auth`, with the variables in its secrets substituted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.access import Access
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.section import Everyday, Private, Section, TaggedUnion, Value
from dynamic_mcp.config.substitute import Substitution
from dynamic_mcp.config.types import Duration, HeaderName, Peers, Text, Url
from dynamic_mcp.features.table import FEATURES

# The field that distinguishes the providers.
KIND = "kind"
KINDS = ("bearer", "jwt", "forwarded", *(each.auth_kind for each in FEATURES if each.auth_kind))
_AT: Keys = ("settings", "http", "auth")
# Guessing is limited only by the speed of the server; `openssl rand -hex 16` prints 32 characters.
_SHORTEST_TOKEN = 24

_Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class NamedToken(Section, Private, frozen=True):
    """A token of the config, and who it belongs to."""

    shown: ClassVar = ("subject", "roles")
    token: Annotated[Text, "The token, 24 characters at least. Write `${VARIABLE}`, not the token itself."]
    subject: Annotated[Text, "Who has it: the name of this person or program in `settings.access.people` and logs."]
    roles: Annotated[tuple[str, ...], "Roles of `settings.access`. Default: those of `people` only."] = ()


class BearerAuth(Section, frozen=True, tag_field=KIND, tag="bearer"):
    """Tokens that `dynamic-mcp token create` has made, or that are in `tokens`."""

    tokens: Annotated[
        tuple[NamedToken, ...], "Further tokens. Default: only those of `dynamic-mcp token create`."
    ] = ()


class Claims(Section, frozen=True):
    """Which claims of a token say what."""

    subject: Annotated[
        Annotated[str, Value(lambda claim: claim or None, written=str)],
        "The claim with the name of the user. Default: sub.",
    ] = "sub"
    roles: Annotated[str | None, "The claim with roles of `settings.access`. Default: none."] = None
    scopes: Annotated[str | None, "The claim with the scopes. Default: `scope`, or `scp`."] = None


class Jwt(Section, frozen=True, tag_field=KIND, tag="jwt"):
    """Signed tokens (JWT) of an authorization server, such as that of your single sign-on."""

    issuer: Annotated[Url, "The issuer of the tokens, as in their `iss`.", Everyday()]
    audience: Annotated[
        tuple[str, ...], "Whom the tokens are for: their `aud` must name one of these. Default: `public_url`."
    ] = ()
    jwks_url: Annotated[Url | None, "The URL of the issuer's public keys. Default: as in its metadata."] = None
    algorithms: Annotated[
        tuple[_Algorithm, ...], "The accepted signature algorithms. Default: RS256, PS256, ES256, EdDSA."
    ] = ("RS256", "PS256", "ES256", "EdDSA")
    claims: Annotated[Claims, "Which claims say what."] = Claims()
    required_scopes: Annotated[tuple[str, ...], "The scopes that each token must have. Default: none."] = ()
    leeway_s: Annotated[Duration, "How far the clocks may differ. Default: 60s."] = field(default=60.0, name="leeway")


class Forwarded(Section, frozen=True, tag_field=KIND, tag="forwarded"):
    """User names that nginx, Caddy or another reverse proxy passes on in a header after it has authenticated them."""

    trusted_proxies: Annotated[
        Peers,
        "The addresses or networks of the reverse proxies that are trusted; `unix` means every process that"
        " connects to the Unix socket. From all others, these headers are ignored.",
        Everyday(),
    ]
    user: Annotated[HeaderName, "The header with the user. Default: X-Forwarded-User."] = b"x-forwarded-user"
    groups: Annotated[HeaderName, "The header with the groups, separated by commas. Default: X-Forwarded-Groups."] = (
        b"x-forwarded-groups"
    )


class Oidc(Section, Private, frozen=True):
    """An OpenID Connect provider, and the client that is registered there."""

    shown: ClassVar = ("issuer", "client_id", "scopes")
    issuer: Annotated[Url, "The URL of the OpenID Connect provider.", Everyday()]
    client_id: Annotated[Text, "The ID of the client that is registered at the provider.", Everyday()]
    client_secret: Annotated[
        str | None, "The client secret. Write `${VARIABLE}`, not the secret itself.", Everyday()
    ] = None
    scopes: Annotated[tuple[str, ...], "The scopes to request. Default: openid, email, profile."] = (
        "openid",
        "email",
        "profile",
    )
    subject_claim: Annotated[
        str | None, "The claim with the name of the user. Default: email if verified, else sub."
    ] = field(default=None, name="subject")


class LoginAuth(Section, frozen=True, tag_field=KIND, tag="login"):
    """Logins in a browser, for which dynamic-mcp is the authorization server that MCP clients look for."""

    oidc: Annotated[
        Oidc | None,
        "The OpenID Connect provider that authenticates users. Default: the reverse proxy of `forwarded`.",
        Everyday(),
    ] = None
    access_ttl_s: Annotated[Duration, "How long an access token is valid. Default: 1h."] = field(
        default=3600.0, name="access_ttl"
    )
    refresh_ttl_s: Annotated[
        Duration,
        "How long an unused login lasts. After three times as long, everyone must log in again. Default: 30d.",
    ] = field(default=30 * 24 * 3600.0, name="refresh_ttl")
    has_local_documents: Annotated[
        bool,
        "If `public_url` is on this machine: fetch the metadata documents of clients from this machine and"
        " private networks too, to try out a client. Default: false.",
    ] = field(default=False, name="local_client_documents")
    # The scopes that the access rules require.
    scopes: tuple[str, ...] = field(default=(), name="x-scopes")


Provider = BearerAuth | Jwt | Forwarded | LoginAuth


def _kind_of(provider: object) -> str | None:
    """Return the kind of a provider of any type, as written in the file."""
    if not isinstance(provider, dict):
        return KINDS[0]  # reading it then fails with "must be an object"
    kind = provider.get(KIND)
    return kind if isinstance(kind, str) and kind in KINDS else None


def _check_providers(providers: Sequence[Provider]) -> tuple[Provider, ...]:
    """Check that the providers in a list can be distinguished."""
    if not providers:
        raise FlawError("must not be empty", hint="leave it out to let everybody in who reaches the address")
    for kind in (BearerAuth, Forwarded, LoginAuth):
        if sum(isinstance(each, kind) for each in providers) > 1:
            raise FlawError(f"must not have `{kind.__struct_config__.tag}` more than once")
    issuers = [each.issuer for each in providers if isinstance(each, Jwt)]
    if len(set(issuers)) < len(issuers):
        raise FlawError("must not have two `jwt` of one issuer")
    return tuple(providers)


_KINDS = TaggedUnion(_kind_of, key=KIND, message=f"must be one of {', '.join(f'`{kind}`' for kind in KINDS)}")
Providers = Annotated[tuple[Provider, ...], Value(_check_providers, written=list[Annotated[Provider, _KINDS]])]


def resolve_provider(provider: Provider, number: int, texts: Substitution, access: Access | None) -> Provider:
    """Return a provider with its variables substituted."""
    at: Keys = (*_AT, number)
    match provider:
        case BearerAuth():
            tokens = (_resolve_token(each, (*at, "tokens", i), texts) for i, each in enumerate(provider.tokens))
            return BearerAuth(tuple(each for each in tokens if each is not None))
        case Jwt():
            jwks_url = None if provider.jwks_url is None else texts.fill_url((*at, "jwks_url"), provider.jwks_url)
            return replace(provider, issuer=texts.fill_url((*at, "issuer"), provider.issuer), jwks_url=jwks_url)
        case Forwarded():
            for network in (each for each in provider.trusted_proxies if each.endswith("/0")):
                place = format_path((*at, "trusted_proxies"))
                texts.warnings.append(f"{place}: `{network}` lets any client be any user")
            return provider
        case LoginAuth():
            oidc = None if provider.oidc is None else _resolve_oidc(provider.oidc, (*at, "oidc"), texts)
            return replace(provider, oidc=oidc, scopes=_list_scopes(access))


def _resolve_token(config: NamedToken, at: Keys, texts: Substitution) -> NamedToken | None:
    """Return a token. Return None, with a warning, if it lacks a variable or is too short to be accepted."""
    failure_count = len(texts.failures)
    token = texts.fill_secret((*at, "token"), config.token)
    if len(texts.failures) == failure_count and len(token) < _SHORTEST_TOKEN:
        texts.fail((*at, "token"), f"has fewer than {_SHORTEST_TOKEN} characters, so it is not accepted")
    return replace(config, token=token) if len(texts.failures) == failure_count else None


def _list_scopes(access: Access | None) -> tuple[str, ...]:
    """Return the scopes that the access rules ask for."""
    roles = {} if access is None else access.roles
    return tuple(sorted({rule.scope for rules in roles.values() for rule in rules if rule.scope is not None}))


def _resolve_oidc(oidc: Oidc, at: Keys, texts: Substitution) -> Oidc:
    secret = oidc.client_secret
    return replace(
        oidc,
        issuer=texts.fill_url((*at, "issuer"), oidc.issuer),
        client_id=texts.fill((*at, "client_id"), oidc.client_id, is_required=True),
        client_secret=None if secret is None else texts.fill_secret((*at, "client_secret"), secret),
    )
