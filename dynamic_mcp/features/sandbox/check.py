"""Checks sandboxes: places that do not exist, and hosts that a known program needs and does not reach."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, warning
from dynamic_mcp.features.sandbox.confinement import SandboxConfinement
from dynamic_mcp.features.sandbox.hosts import parse_host
from dynamic_mcp.features.sandbox.profiles import find_profiles

_HTTPS = 443


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the sandboxes of a config."""
    for group in config.groups:
        words = group.confinement
        if isinstance(words, SandboxConfinement):
            at: Keys = ("mcpServers", group.name, "sandbox")
            yield from _check_places(at, words)
            if isinstance(group.upstream, Program):
                yield from _check_hosts(at, words, group.upstream)


def _check_places(at: Keys, words: SandboxConfinement) -> Iterator[Finding]:
    for name, places in (("read", words.read or ()), ("write", words.write)):
        for each in places:
            if not os.path.lexists(each):
                yield warning((*at, name), f"`{each}` does not exist", "create it, or take it out")


def _check_hosts(at: Keys, words: SandboxConfinement, program: Program) -> Iterator[Finding]:
    if words.hosts is None or words.container is not None:
        return
    rules = [parse_host(each) for each in words.hosts]
    for profile in find_profiles(program):
        missing = [each for each in profile.hosts if not any(rule.matches(each, _HTTPS) for rule in rules)]
        if missing:
            hosts = ", ".join(f"`{each}`" for each in missing)
            yield warning(
                (*at, "hosts"),
                f"`{profile.name}` installs from {hosts}, which it does not reach",
                "add them to `hosts`, or install the server and start it without",
            )
