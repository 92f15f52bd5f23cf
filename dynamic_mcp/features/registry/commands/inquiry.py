"""Queries the registries of a config for a command."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.errors import ConfigError, NotFound
from dynamic_mcp.features.registry.cache import AnswerCache
from dynamic_mcp.features.registry.client import LATEST, MAX_BYTES
from dynamic_mcp.features.registry.config import read_registries
from dynamic_mcp.features.registry.lookup import Hit, Lookup
from dynamic_mcp.system import paths

T = TypeVar("T")


class Inquiry:
    """Queries the registries of a config for a command. Each note about the answers is shown once."""

    def __init__(self, context: Invocation, file: Path) -> None:
        self._this = context
        self._file = file
        self._shown: set[str] = set()

    def lookup(self, only: str | None = None) -> Lookup:
        """Return a lookup in the registries, or in one of them. Raises ConfigError and NotFound."""
        registries = read_registries(self._file, os.environ)
        if not registries:
            raise ConfigError(str(self._file), "settings.registries", "is empty, so there is no registry to ask")
        if only is not None:
            names = [each.name for each in registries]
            if only not in names:
                raise NotFound("registry", only, names, hint=f"there are {', '.join(f'`{name}`' for name in names)}")
            registries = tuple(each for each in registries if each.name == only)
        return Lookup(registries, AnswerCache(paths.cache_dir() / "registry", most_bytes=MAX_BYTES))

    def ask(self, lookup: Lookup, work: Coroutine[object, object, T]) -> T:
        """Wait for an answer. Raises what `work` raises."""
        try:
            with self._this.out.progress("asking the registry"):
                return run(work)
        finally:
            for note in dict.fromkeys(lookup.notes):
                if note not in self._shown:
                    self._this.out.say(f"warning: {note}")
            self._shown.update(lookup.notes)
            lookup.notes.clear()

    def find(self, reference: str, only: str | None = None) -> Hit:
        """Return the server of `NAME` or `NAME@VERSION`. Raises NotFound, ConfigError and RegistryError."""
        lookup = self.lookup(only)
        return self.ask(lookup, lookup.find(*split_version(reference)))


def split_version(reference: str) -> tuple[str, str]:
    """Return the name and the version of `NAME` or `NAME@VERSION`."""
    name, _, version = reference.partition("@")
    return name, version or LATEST
