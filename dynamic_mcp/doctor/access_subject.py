"""Finds who a name is, as `settings.access.people` writes names, and what roles their tokens have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynamic_mcp.config.access import LOCAL_NAME
from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.issuers import FORWARDED, TOKEN, issuers_of
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal

# The kind of credential by the issuer of its principal; all other issuers sign tokens.
_PROVIDERS = {TOKEN: "bearer", FORWARDED: "forwarded"}


def authenticate_subject(
    config: Config, name: str, tokens: Iterable[tuple[str, tuple[str, ...]]], roles: tuple[str, ...] = ()
) -> Authentication:
    """Return somebody with these roles, and with those of all of their tokens, in the config and among `tokens`.

    Those are pairs of a subject and roles. Raises InvalidArguments if the name can be several people.
    """
    if name == LOCAL_NAME:
        return LOCAL_USER
    principal = find_principal(config, name)
    of_tokens: list[str] = []
    if principal.issuer == TOKEN:
        every = (*configured_tokens(config), *tokens)
        of_tokens = [role for subject, given in every if subject == principal.subject for role in given]
    return Authentication(
        principal, _PROVIDERS.get(principal.issuer, "jwt"), tuple(dict.fromkeys([*roles, *of_tokens]))
    )


def find_principal(config: Config, name: str) -> Principal:
    """Return the principal for `SUBJECT` or `ISSUER:SUBJECT`. Raises InvalidArguments if it is ambiguous."""
    issuers = issuers_of(config.http)
    found = issuers.find(name)
    if found:
        return found[0]
    if issuers.are_several:
        raise InvalidArguments(f"`{name}` can be several people", hint=f"write {issuers.spellings(name)}")
    return Principal(issuers.groups[0][0] if issuers.groups else TOKEN, name)


def configured_tokens(config: Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield whose the tokens in the config are, and their roles."""
    for provider in config.http.auth if config.http is not None else ():
        for token in provider.tokens if isinstance(provider, BearerAuth) else ():
            yield token.subject, token.roles
