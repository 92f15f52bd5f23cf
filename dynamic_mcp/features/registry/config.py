"""Configures the registries of `registry` and `add`: `settings.registries`, with its variables, or the official one.

Serving does not need them, so they are not part of a `Config`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, cast

from msgspec import Meta

from dynamic_mcp.config import form
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.section import Private, Section, Value
from dynamic_mcp.config.substitute import Substitution, Surroundings
from dynamic_mcp.config.types import NAME_LENGTH, Headers, Url
from dynamic_mcp.config.upstream import read_variables, variables_files
from dynamic_mcp.errors import ConfigError


class Registry(Section, Private, frozen=True):
    """A registry of servers with the API v0.1 of the official one."""

    shown: ClassVar = ("name", "url")
    name: Annotated[Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)], "The name for `--registry`."]
    url: Annotated[Url, "The URL of the registry, without `/v0.1`."]
    headers: Annotated[Headers, "HTTP headers for every request. Write `${VARIABLE}` for a secret."] = {}


def _check_registries(registries: Sequence[Registry]) -> tuple[Registry, ...]:
    """Check that registries have unique names that can be shown."""
    names = [each.name for each in registries]
    if any(not name.isprintable() or not name.strip() for name in names):
        raise FlawError("the name of a registry must consist of printable characters")
    if len(set(names)) < len(names):
        raise FlawError("two registries have the same name")
    return tuple(registries)


Registries = Annotated[tuple[Registry, ...], Value(_check_registries, written=list[Registry])]


OFFICIAL = Registry("official", "https://registry.modelcontextprotocol.io")


def read_registries(file: Path, environment: Mapping[str, str]) -> tuple[Registry, ...]:
    """Return the registries of a config, which need not exist yet. Raises ConfigError, also for an unset variable."""
    settings = parse(file).root.settings if file.exists() else form.Settings()
    if settings.registries is None:
        return (OFFICIAL,)
    surroundings = Surroundings(environment, sys.platform, file.absolute().parent)
    variables, _ = read_variables(variables_files(settings, surroundings))  # an unset variable is reported
    texts = Substitution({**environment, **variables})
    written = cast("tuple[Registry, ...]", settings.registries)
    registries = tuple(_resolve(each, number, texts) for number, each in enumerate(written))
    if texts.failures:
        where, _, message = texts.failures[0].partition(": ")
        raise ConfigError(str(file), where, message)
    return registries


def _resolve(registry: Registry, number: int, texts: Substitution) -> Registry:
    at: Keys = ("settings", "registries", number)
    url = texts.fill_url((*at, "url"), registry.url)
    headers = {name: texts.fill_secret((*at, "headers", name), text) for name, text in registry.headers.items()}
    return Registry(registry.name, url.rstrip("/").removesuffix("/v0.1"), headers)
