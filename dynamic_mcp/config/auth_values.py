"""Checks single values of `settings.http.auth`; each function returns the value or raises `FlawError`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynamic_mcp.config.values import HEADER_NAME, FlawError

KINDS = ("bearer", "jwt", "forwarded", "login")
# Headers that say something else, whoever sends them.
_TAKEN = frozenset({"authorization", "host", "origin", "cookie", "content-type", "content-length", "accept"})


def check_header_name(text: str) -> str:
    """Check the name of a header (RFC 9110, section 5.1)."""
    if re.fullmatch(HEADER_NAME, text) is None:
        raise FlawError("must be the name of a header, such as `X-Forwarded-User`")
    if text.lower() in _TAKEN:
        raise FlawError(f"must not be `{text}`, which says something else")
    return text


def kind_of_provider(provider: object) -> str | None:
    """Return the kind of a provider as the file has it, whatever its type may be."""
    if not isinstance(provider, dict):
        return KINDS[0]  # which then says that it must be an object
    kind = provider.get("kind")
    return kind if isinstance(kind, str) and kind in KINDS else None


def check_providers(providers: Sequence[object]) -> Sequence[object]:
    """Check that a list of providers can be told apart."""
    if not providers:
        raise FlawError("must not be empty", hint="leave it out to let everybody in who reaches the address")
    kinds = [kind_of(each) for each in providers]
    for kind in ("bearer", "forwarded", "login"):
        if kinds.count(kind) > 1:
            raise FlawError(f"must not have `{kind}` more than once")
    issuers = [getattr(each, "issuer") for each in providers if kind_of(each) == "jwt"]  # noqa: B009 - one of two models
    if len(set(issuers)) < len(issuers):
        raise FlawError("must not have two `jwt` of one issuer")
    return providers


def kind_of(provider: object) -> str:
    """Return the kind of a provider that is a section of the form, or a model of one."""
    name = type(provider).__name__.lower()
    return name if name in KINDS else ""
