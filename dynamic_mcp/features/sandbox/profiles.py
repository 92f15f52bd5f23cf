"""What known programs need besides, from `profiles.json`: caches of their own, folders in their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from msgspec import Struct

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.decoding import decode_as

# A version or a tag after the name of a package; the `@` of a scope comes first and is kept.
_VERSION = re.compile(r"(?<=.)(?:@|==|\[)[^/\\]*$")


class KnownProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """What the programs of these names, or with one of these packages among their arguments, need.

    `env` and `read` may have `{state}`, the folder for the server's state, and `{home}`. `hosts` is for `check`,
    which names those that a config lacks. `writes_arguments` lets it write what its arguments name. One that
    `is_browser` has a sandbox of its own, for which it makes namespaces, and sockets.
    """

    name: str
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    read: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    writes_arguments: bool = False
    is_browser: bool = False


def find_profiles(program: Program) -> list[KnownProgram]:
    """Return the profiles that are for a program."""
    name = PurePath(program.command).name
    words = {*_package_names(program.args)}
    return [each for each in _read_profiles() if name in each.programs or words & {*each.packages}]


def _package_names(words: Iterable[str]) -> Iterable[str]:
    """Yield the packages that words may name: without a version, and for a path, its last part."""
    for word in words:
        package = _VERSION.sub("", word)
        yield package
        yield PurePath(package).name


@cache
def _read_profiles() -> tuple[KnownProgram, ...]:
    data = files(__package__).joinpath("profiles.json").read_bytes()
    return decode_as(data, tuple[KnownProgram, ...])
