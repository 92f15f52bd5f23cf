"""The registries of a config, asked by a command."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.registries import read_registries
from dynamic_mcp.errors import ConfigError, NotFound
from dynamic_mcp.registry.cache import AnswerCache
from dynamic_mcp.registry.client import LATEST, MAX_BYTES
from dynamic_mcp.registry.lookup import Lookup
from dynamic_mcp.system import paths

T = TypeVar("T")


def open_lookup(this: Invocation, file: Path, only: str | None = None) -> Lookup:
    """Return what asks the registries of a config, or one of them. Raises ConfigError and NotFound."""
    registries = read_registries(file, os.environ)
    if not registries:
        raise ConfigError(str(file), "settings.registries", "is empty, so there is no registry to ask")
    if only is not None:
        names = [each.name for each in registries]
        if only not in names:
            raise NotFound("registry", only, names, hint=f"there are {', '.join(f'`{name}`' for name in names)}")
        registries = tuple(each for each in registries if each.name == only)
    return Lookup(registries, AnswerCache(paths.cache_dir() / "registry", most_bytes=MAX_BYTES))


def ask(this: Invocation, lookup: Lookup, work: Coroutine[object, object, T]) -> T:
    """Wait for registries, and say what a person should know about their answers."""
    try:
        with this.out.progress("asking the registry"):
            return run(work)
    finally:
        for note in dict.fromkeys(lookup.notes):
            this.out.say(f"warning: {note}")
        lookup.notes.clear()


def split_version(reference: str) -> tuple[str, str]:
    """Return the name and the version of `NAME` or `NAME@VERSION`."""
    name, _, version = reference.partition("@")
    return name, version or LATEST
