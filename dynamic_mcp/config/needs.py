"""Finds the variables that a config takes from the environment, for clients that pass on only a few of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from dynamic_mcp.config import form
from dynamic_mcp.config.environment import inherit_variables, minimal_variables
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.substitute import Surroundings, references
from dynamic_mcp.config.upstream import read_variables, variables_files

# The fields of a server and of the settings in which variables are substituted.
_TEXTS = (
    "command",
    "args",
    "env",
    "env_file",
    "cwd",
    "url",
    "headers",
    "oauth",
    "query",
    "cli",
    "openapi",
    "skills",
)


class RequiredVariables(Struct, frozen=True):
    """The sorted names of the variables, and the servers that inherit all variables, each with its exclusions."""

    names: tuple[str, ...]
    wants_all: Mapping[str, frozenset[str]]


def find_required_variables(file: Path, environment: Mapping[str, str]) -> RequiredVariables:
    """Return the variables that the enabled servers of a valid config take from the environment. Raises ConfigError.

    This includes each variable that the config refers to, unless it has a default and is not set now, and those set
    now that `inherit_env` names. It excludes variables that a `variables_file` defines.
    """
    root = parse(file).root
    settings, defaults = root.settings, root.settings.defaults
    surroundings = Surroundings(environment, sys.platform, file.absolute().parent)
    servers = {name: each for name, each in root.servers.items() if _is_enabled(each, defaults)}
    file_variables, _ = read_variables(variables_files(settings, surroundings))  # an unreadable file defines none
    variables = {**environment, **file_variables}
    names = {
        name
        for section in (defaults, *servers.values())
        for text in _texts(section)
        for name in references(text, variables)
        if name not in file_variables
    }
    names |= {name for text in _strings(settings.variables_file) for name in references(text, environment)}
    if settings.search.embeddings is not None:
        names |= {name for text in _strings(settings.search.embeddings) for name in references(text, environment)}
    names |= {name for each in servers.values() for name in _names_of_command_line(each, variables)}
    wants_all: dict[str, frozenset[str]] = {}
    for name, server in servers.items():
        if isinstance(server, form.ProgramEntry):
            choice = defaults.inherit_env if server.inherit_env is None else server.inherit_env
            if choice == "all" or (isinstance(choice, tuple) and "*" in choice):
                wants_all[name] = frozenset(each for each in choice if each.startswith("!"))
            elif isinstance(choice, tuple):
                names |= _inherited_names(choice, server, defaults, environment)
    return RequiredVariables(tuple(sorted(names)), wants_all)


def _is_enabled(server: form.Server, defaults: form.Defaults) -> bool:
    enabled = defaults.enabled if server.enabled is None else server.enabled
    return enabled is not False


def _names_of_command_line(server: form.Server, environment: Mapping[str, str]) -> set[str]:
    """Return the variables that the config or the pack of a command line program passes to it by name."""
    if not isinstance(server, form.CommandLineEntry):
        return set()
    globs = [*server.cli.env, *_names_of_pack(server.cli.use)]
    safe = inherit_variables(environment, "safe", platform=sys.platform)
    return minimal_variables(environment, globs, platform=sys.platform).keys() - safe.keys()


def _names_of_pack(use: str) -> list[str]:
    """Return the variables that a shipped pack passes on. A pack in a file is skipped: anyone may have written it."""
    from dynamic_mcp.packs import library  # with the first of them

    return library.read_shipped(use).inherit if use in library.shipped_names() else []


def _inherited_names(
    choice: tuple[str, ...], server: form.ProgramEntry, defaults: form.Defaults, environment: Mapping[str, str]
) -> set[str]:
    """Return the variables that are inherited by name and not set by the config itself."""
    passed = inherit_variables(environment, choice, platform=sys.platform)
    safe = inherit_variables(environment, "safe", platform=sys.platform)
    return passed.keys() - safe.keys() - server.env.keys() - defaults.env.keys()


def _texts(section: Struct) -> Iterator[str]:
    for name in _TEXTS:
        yield from _strings(getattr(section, name, None))


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Struct():
            for inner in asdict(value).values():
                yield from _strings(inner)
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _strings(inner)
