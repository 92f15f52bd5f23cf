"""Which settings of a login belong to which grant. Each grant has what it needs, and none of what it would ignore."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import OAuth

_WITH_ASSERTION = ("jwt_bearer", "cross_app")


def find_flaws(oauth: OAuth) -> Iterator[tuple[str, str]]:
    """Yield the settings that are missing or out of place: the field to name, and what is wrong with it."""
    yield from _find_missing(oauth)
    if oauth.grant not in _WITH_ASSERTION:
        for name in ("assertion", "assertion_file"):
            if getattr(oauth, name) is not None:
                yield name, "is only for the grants `jwt_bearer` and `cross_app`"
    elif oauth.assertion is not None and oauth.assertion_file is not None:
        yield "assertion_file", "is one source too many: there is an `assertion` already"
    if oauth.identity_provider is not None and oauth.grant != "cross_app":
        yield "identity_provider", "is only for the grant `cross_app`"


def _find_missing(oauth: OAuth) -> Iterator[tuple[str, str]]:
    has_assertion = oauth.assertion is not None or oauth.assertion_file is not None
    match oauth.grant:
        case "client_credentials":
            if not (oauth.client_id and (oauth.client_secret or oauth.private_key_file)):
                yield "grant", "`client_credentials` needs `client_id`, and `client_secret` or `private_key_file`"
        case "jwt_bearer":
            if not (oauth.client_id and has_assertion):
                yield "grant", "`jwt_bearer` needs `client_id`, and `assertion` or `assertion_file`"
        case "cross_app":
            if not (oauth.client_id and has_assertion and oauth.identity_provider):
                needs = "`client_id`, `identity_provider`, and `assertion` or `assertion_file`"
                yield "grant", f"`cross_app` needs {needs}"
