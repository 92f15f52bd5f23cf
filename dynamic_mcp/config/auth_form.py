"""The form of `settings.http.auth`, as `form` has it for the rest of the file."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config import auth_values, http_values, values
from dynamic_mcp.config.section import Duration, Section

# What tells the providers apart.
KIND = "kind"

Url = Annotated[str, values.check_literal_url]
Secret = Annotated[str, Meta(min_length=1)]
HeaderName = Annotated[str, auth_values.check_header_name]
Peers = Annotated[list[str], http_values.check_proxies]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class NamedToken(Section, frozen=True, kw_only=True):
    """A token of the config, and who it belongs to."""

    token: Annotated[Secret, "The token, 24 characters at least. Write `${VARIABLE}`, not the token itself."]
    subject: Annotated[Secret, "Who has it: the name by which `settings.access.people` and logs know it."]
    roles: Annotated[list[str] | None, "Roles of `settings.access`. Default: those of `people` only."] = None


class Bearer(Section, frozen=True, tag_field=KIND, tag="bearer"):
    """Tokens that `dynamic-mcp token create` has made, and those that stand here."""

    tokens: Annotated[list[NamedToken] | None, "Further tokens. Default: only those that commands have made."] = None


class Claims(Section, frozen=True):
    """Which claims of a token say what."""

    subject: Annotated[str | None, "Who it is about. Default: sub."] = None
    roles: Annotated[str | None, "Roles of `settings.access`. Default: no claim."] = None
    scopes: Annotated[str | None, "The scopes. Default: `scope`, or `scp`."] = None


class Jwt(Section, frozen=True, kw_only=True, tag_field=KIND, tag="jwt"):
    """Signed tokens of an authorization server."""

    issuer: Annotated[Url, "The issuer of the tokens, as their `iss` has it."]
    audience: Annotated[
        list[str] | None, "Who the tokens are for, one of which their `aud` names. Default: `public_url`."
    ] = None
    jwks_url: Annotated[Url | None, "Where its public keys are. Default: as its metadata says."] = None
    algorithms: Annotated[
        list[Algorithm] | None, "The algorithms that are accepted. Default: RS256, PS256, ES256, EdDSA."
    ] = None
    claims: Annotated[Claims | None, "Which claims say what."] = None
    required_scopes: Annotated[list[str] | None, "The scopes that each token must have. Default: none."] = None
    leeway: Annotated[Duration, "How far the clocks may differ. Default: 60s."] = None


class Forwarded(Section, frozen=True, kw_only=True, tag_field=KIND, tag="forwarded"):
    """Names that a reverse proxy puts into headers after it has asked who somebody is."""

    user: Annotated[HeaderName | None, "The header with the user. Default: X-Forwarded-User."] = None
    groups: Annotated[
        HeaderName | None, "The header with the groups, separated by commas. Default: X-Forwarded-Groups."
    ] = None
    trusted: Annotated[
        Peers,
        "The addresses or networks of the reverse proxies that are believed; `unix` means all peers on the Unix"
        " socket. From all others, these headers are ignored.",
    ]


class Oidc(Section, frozen=True, kw_only=True):
    """An OpenID Connect provider, and the client that is registered there."""

    issuer: Annotated[Url, "The URL of the provider."]
    client_id: Annotated[Secret, "The client ID."]
    client_secret: Annotated[str | None, "The client secret. Write `${VARIABLE}`, not the secret itself."] = None
    scopes: Annotated[list[str] | None, "The scopes to ask for. Default: openid, email, profile."] = None
    subject: Annotated[str | None, "The claim that names the user. Default: email if verified, else sub."] = None


class Login(Section, frozen=True, kw_only=True, tag_field=KIND, tag="login"):
    """A small authorization server of our own, for clients that log in with OAuth as MCP has it."""

    oidc: Annotated[
        Oidc | None, "The provider that asks who somebody is. Default: the reverse proxy of `forwarded`."
    ] = None
    access_ttl: Annotated[Duration, "How long an access token is valid. Default: 1h."] = None
    refresh_ttl: Annotated[
        Duration,
        "How long a login lasts that nobody uses. After three times as long, everybody logs in again. Default: 30"
        " days (720h).",
    ] = None
    local_client_documents: Annotated[
        bool | None,
        "Where `public_url` is on this machine: fetch the metadata documents of clients from this machine and private"
        " networks too, to try a client out. Default: false.",
    ] = None


Provider = Bearer | Jwt | Forwarded | Login
Providers = Annotated[list[Provider], auth_values.check_providers]
