"""Resolves `settings.http.auth`: fills in its defaults and the variables in its secrets."""

from __future__ import annotations

from dynamic_mcp.config import access_form, auth, auth_form, values
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.upstream import Substitution

_AT: Keys = ("settings", "http", "auth")
# Who guesses may try as often as requests are answered; `openssl rand -hex 16` has 32.
_SHORTEST_TOKEN = 24


def resolve_provider(
    own: auth_form.Provider, number: int, texts: Substitution, access: access_form.Access | None
) -> auth.Provider:
    """Return one provider with every default and every variable."""
    at: Keys = (*_AT, number)
    match own:
        case auth_form.Bearer():
            tokens = (_token(each, (*at, "tokens", i), texts) for i, each in enumerate(own.tokens or ()))
            return auth.Bearer(tuple(each for each in tokens if each is not None))
        case auth_form.Jwt():
            return _jwt(own, at, texts)
        case auth_form.Forwarded():
            defaults = auth.Forwarded(())
            for everybody in (each for each in own.trusted if each.endswith("/0")):
                texts.warnings.append(f"{format_path((*at, 'trusted'))}: `{everybody}` lets everybody be anybody")
            return auth.Forwarded(
                trusted=tuple(own.trusted),
                user=defaults.user if own.user is None else own.user.lower().encode(),
                groups=defaults.groups if own.groups is None else own.groups.lower().encode(),
            )
        case auth_form.Login():
            return _login(own, at, texts, _list_scopes(access))


def _token(own: auth_form.NamedToken, at: Keys, texts: Substitution) -> auth.NamedToken | None:
    """Return a token; None, with a warning, for one that is never accepted, since a variable lacks or it is short."""
    known = len(texts.failures)
    token = texts.fill_secret((*at, "token"), own.token)
    if len(texts.failures) == known and len(token) < _SHORTEST_TOKEN:
        texts.fail((*at, "token"), f"has fewer than {_SHORTEST_TOKEN} characters, so it is not accepted")
    return auth.NamedToken(token, own.subject, tuple(own.roles or ())) if len(texts.failures) == known else None


def _jwt(own: auth_form.Jwt, at: Keys, texts: Substitution) -> auth.Jwt:
    claims, issuer = own.claims or auth_form.Claims(), texts.fill_url((*at, "issuer"), own.issuer)
    defaults = auth.Jwt(issuer)
    leeway_s = values.parse_duration(own.leeway)
    return auth.Jwt(
        issuer=issuer,
        audience=tuple(own.audience or ()),
        jwks_url=None if own.jwks_url is None else texts.fill_url((*at, "jwks_url"), own.jwks_url),
        algorithms=defaults.algorithms if own.algorithms is None else tuple(own.algorithms),
        subject_claim=claims.subject or defaults.subject_claim,
        roles_claim=claims.roles,
        scopes_claim=claims.scopes,
        required_scopes=tuple(own.required_scopes or ()),
        leeway_s=defaults.leeway_s if leeway_s is None else leeway_s,
    )


def _login(own: auth_form.Login, at: Keys, texts: Substitution, scopes: tuple[str, ...]) -> auth.Login:
    defaults = auth.Login()
    access_ttl_s, refresh_ttl_s = values.parse_duration(own.access_ttl), values.parse_duration(own.refresh_ttl)
    return auth.Login(
        oidc=None if own.oidc is None else _oidc(own.oidc, (*at, "oidc"), texts),
        scopes=scopes,
        access_ttl_s=defaults.access_ttl_s if access_ttl_s is None else access_ttl_s,
        refresh_ttl_s=defaults.refresh_ttl_s if refresh_ttl_s is None else refresh_ttl_s,
        has_local_documents=bool(own.local_client_documents),
    )


def _list_scopes(access: access_form.Access | None) -> tuple[str, ...]:
    """Return the scopes that a client may be told to ask for."""
    roles = {} if access is None else access.roles or {}
    return tuple(sorted({rule.scope for rules in roles.values() for rule in rules if rule.scope is not None}))


def _oidc(own: auth_form.Oidc, at: Keys, texts: Substitution) -> auth.Oidc:
    return auth.Oidc(
        issuer=texts.fill_url((*at, "issuer"), own.issuer),
        client_id=texts.fill((*at, "client_id"), own.client_id, is_required=True),
        client_secret=None
        if own.client_secret is None
        else texts.fill_secret((*at, "client_secret"), own.client_secret),
        scopes=auth.Oidc("", "").scopes if own.scopes is None else tuple(own.scopes),
        subject_claim=own.subject,
    )
