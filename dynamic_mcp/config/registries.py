"""The registries that `registry` and `add` ask: `settings.registries`, with the variables in it, or the official one.

Serving does not need them, so they are no part of a `Config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.section import Private, Section, Value
from dynamic_mcp.config.substitute import Substitution
from dynamic_mcp.config.types import NAME_LENGTH, Headers, Url


class Registry(Section, Private, frozen=True):
    """A registry of servers with the API v0.1 of the official one."""

    shown: ClassVar = ("name", "url")
    name: Annotated[Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)], "What `--registry` calls it."]
    url: Annotated[Url, "Its URL, without `/v0.1`."]
    headers: Annotated[Headers, "HTTP headers for every request. Write `${VARIABLE}`, not a secret itself."] = {}


def _check_registries(registries: Sequence[Registry]) -> tuple[Registry, ...]:
    """Check that no two registries have one name, and that each can be shown."""
    names = [each.name for each in registries]
    if any(not name.isprintable() or not name.strip() for name in names):
        raise FlawError("the name of a registry must consist of printable characters")
    if len(set(names)) < len(names):
        raise FlawError("two registries have the same name")
    return tuple(registries)


Registries = Annotated[tuple[Registry, ...], Value(_check_registries, written=list[Registry])]


OFFICIAL = Registry("official", "https://registry.modelcontextprotocol.io")


def resolve_registries(own: Sequence[Registry] | None, texts: Substitution) -> tuple[Registry, ...]:
    """Return the registries with their variables."""
    return (OFFICIAL,) if own is None else tuple(_resolve(each, number, texts) for number, each in enumerate(own))


def _resolve(own: Registry, number: int, texts: Substitution) -> Registry:
    at: Keys = ("settings", "registries", number)
    url = texts.fill_url((*at, "url"), own.url)
    headers = {name: texts.fill_secret((*at, "headers", name), text) for name, text in own.headers.items()}
    return Registry(own.name, url.rstrip("/").removesuffix("/v0.1"), headers)
