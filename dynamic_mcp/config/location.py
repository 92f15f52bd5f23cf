"""Locates the config and its profile. One rule for serving, for every command, and for a bare window.

Imports only builtins, because a window starts with this.
"""

from __future__ import annotations

import os
import sys

# As in `typing`, which takes longer to load than this whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FILE_NAME = "dynamic-mcp.json"
VARIABLE = "DYNAMIC_MCP_CONFIG"
PROFILE_VARIABLE = "DYNAMIC_MCP_PROFILE"
_PROFILE_OPTION = "--profile"


def locate(
    argument: str | None, environment: Mapping[str, str], *, directory: str, user_dir: Callable[[], str]
) -> str | None:
    """Return the path of the config: the argument, else DYNAMIC_MCP_CONFIG, else in `directory`, else in `user_dir`.

    A path that is given need not exist. Returns None if none is given and none exists.
    """
    explicit = argument or environment.get(VARIABLE)
    if explicit:
        return os.path.join(directory, resolve_home(explicit, environment))  # noqa: PTH118 - pathlib is slow to load
    here = os.path.join(directory, FILE_NAME)  # noqa: PTH118
    if _is_file(here):
        return here
    everywhere = os.path.join(user_dir(), FILE_NAME)  # noqa: PTH118
    return everywhere if _is_file(everywhere) else None


def choose_profile(option: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the chosen profile: `--profile`, else DYNAMIC_MCP_PROFILE, else None."""
    return option if option is not None else environment.get(PROFILE_VARIABLE) or None


def split_profile(arguments: list[str]) -> tuple[list[str], str | None]:
    """Return a command line without `--profile`, and its value; unchanged if the option is missing or repeated."""
    at = [place for place, word in enumerate(arguments) if word.partition("=")[0] == _PROFILE_OPTION]
    if len(at) != 1:
        return arguments, None
    first = at[0]
    _, has_value, value = arguments[first].partition("=")
    if has_value:
        return [*arguments[:first], *arguments[first + 1 :]], value
    if first + 1 == len(arguments):
        return arguments, None
    return [*arguments[:first], *arguments[first + 2 :]], arguments[first + 1]


def identify(config: str | os.PathLike[str]) -> str:
    """Return the absolute path of a config. Links are not resolved, since its own paths are relative to them."""
    return _with_large_drive(os.path.abspath(config))  # noqa: PTH100


def config_key(config: str | os.PathLike[str]) -> str:
    """Return the name of a config for its daemon and its files: on Windows, the same for every case of its path."""
    return os.path.normcase(identify(config))


def working_directory() -> str:
    """Return the current directory, or the root if it has been removed."""
    try:
        return _with_large_drive(os.getcwd())  # noqa: PTH109
    except OSError:
        return "/"


def encoded_environment() -> dict[bytes, bytes]:
    """Return the environment as bytes."""
    if sys.platform == "win32":
        return {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    return dict(os.environb)


def resolve_home(text: str, environment: Mapping[str, str]) -> str:
    """Return a path that a user wrote, with `~` as their home."""
    head, tail = text[:1], text[1:]
    home = environment.get("HOME") or environment.get("USERPROFILE")
    if head == "~" and home and (not tail or tail[0] in "/\\"):
        return os.path.join(home, tail.lstrip("/\\"))  # noqa: PTH118
    return text


def _with_large_drive(path: str) -> str:
    """Return an absolute path with the letter of its drive as the shells of Windows write it; editors write `c:`."""
    return path[:1].upper() + path[1:]


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113
    except OSError:
        return False
