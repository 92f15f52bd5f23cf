"""Checks how replicas are run: their keys, clocks, versions and configs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from dynamic_mcp import __version__
from dynamic_mcp.config.common_part import digest_of_replicas
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.peers import ReplicaFacts
from dynamic_mcp.features.cluster.service import ClusterService

_KEYS, _PEERS = "settings.cluster.keys", "settings.cluster.peers"
# Random keys of 32 characters have more different ones: with 16 digits, fewer than 9 in one of a million.
_FEWEST_CHARACTERS = 9
_WORDS = ("example", "secret", "change", "password", "key-for", "0123456789", "abcdef0123")
# Requests of peers are refused beyond two minutes.
_CLOCKS_DIFFER_S = 5.0


async def examine(config: Config) -> list[Finding]:
    """Ask the other replicas how they are run, and compare them."""
    settings = config.settings_of("cluster", Cluster)
    if settings is None:
        return []
    service = ClusterService(settings, config.max_message_bytes)
    began = time.time()
    try:
        facts = await service.ask_facts()
    finally:
        await service.close()
    ended = time.time()
    return [*check_keys(settings.keys), *check_replicas(facts, digest_of_replicas(config.file), began, ended)]


def check_keys(keys: Sequence[str]) -> Iterator[Finding]:
    """Return the findings about the keys, which no message shows."""
    hint = "`openssl rand -hex 32` makes one"
    for number, key in enumerate(keys):
        where = f"{_KEYS}[{number}]"
        if len(set(key)) < _FEWEST_CHARACTERS or any(word in key.lower() for word in _WORDS):
            yield warning(where, "looks like an example, and not random: who guesses it can act for everybody", hint)
        if key in keys[:number]:
            yield warning(where, "is there twice", hint)
    if len(keys) == 1:
        what = (
            "is one key. To change it later without refusing anybody, put the new one first and keep this one behind"
        )
        yield Finding(Level.NOTE, _KEYS, what)


def check_replicas(
    facts: Mapping[str, ReplicaFacts | str], own_config: str, began: float, ended: float
) -> Iterator[Finding]:
    """Return what replicas, by their addresses, differ in from this machine; they were asked in this time."""
    for address, said in facts.items():
        if isinstance(said, str):
            yield warning(_PEERS, f"{address}: {said}", "do all replicas run, with the same `keys`?")
            continue
        where = f"replica {said.name}"
        problems = [
            *_check_version(where, said),
            *_check_config(where, said, own_config),
            *_check_clock(where, said.now, began, ended),
        ]
        yield from problems or [Finding(Level.OK, where, "has the version, the config and the time of this machine")]


def _check_version(where: str, said: ReplicaFacts) -> Iterator[Finding]:
    if said.version != __version__:
        what = f"runs version {said.version}, and {__version__} is installed here"
        yield warning(where, what, "two versions work side by side, for the time of an upgrade")


def _check_config(where: str, said: ReplicaFacts, own_config: str) -> Iterator[Finding]:
    if said.config != own_config:
        hint = "all replicas need the same, but for `settings.cluster.name` and `peers`"
        yield warning(where, "has another config than this machine", hint)


def _check_clock(where: str, now: float, began: float, ended: float) -> Iterator[Finding]:
    off_s = max(began - now, now - ended)
    if off_s > _CLOCKS_DIFFER_S:
        hint = "synchronize it (`timedatectl set-ntp true`): peers refuse requests that are two minutes off"
        yield warning(where, f"its clock differs by {off_s:.0f} s from that of this machine", hint)
