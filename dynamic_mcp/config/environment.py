"""The inherited variables, env files and paths of a configured program.

Programs inherit only the variables that they need to run, unless the config asks for more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from dynamic_mcp.config.location import resolve_home
from dynamic_mcp.config.types import Inherit
from dynamic_mcp.system import file_reader
from dynamic_mcp.system.file_reader import read_bytes

_SAFE_NAMES = """
HOME PATH USER LOGNAME SHELL TERM COLORTERM TZ TMPDIR TEMP TMP LANG LANGUAGE
DISPLAY WAYLAND_DISPLAY XAUTHORITY
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY FTP_PROXY
http_proxy https_proxy all_proxy no_proxy ftp_proxy
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
"""
_SAFE_NAMES_ON_WINDOWS = """
SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT APPDATA LOCALAPPDATA PROGRAMDATA
PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 USERPROFILE USERNAME HOMEDRIVE HOMEPATH
PROCESSOR_ARCHITECTURE NUMBER_OF_PROCESSORS PSMODULEPATH
"""
_MINIMAL_NAMES = "HOME PATH USER LOGNAME TZ TMPDIR TEMP TMP LANG LANGUAGE"
_SAFE_PREFIXES = ("LC_", "XDG_")


class WindowsVariables(Mapping[str, str]):
    """Variables as Windows has them: `Path` and `PATH` are the same name. The last of the same name wins."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = {name.upper(): (name, value) for name, value in variables.items()}

    def __getitem__(self, name: str) -> str:
        return self._variables[name.upper()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._variables.values())

    def __len__(self) -> int:
        return len(self._variables)


def inherit_variables(environment: Mapping[str, str], choice: Inherit, *, platform: str) -> dict[str, str]:
    """Return the variables that a program inherits: the safe ones, and those that globs in `choice` match.

    A glob after `!` excludes variables, regardless of case. The safe ones are always passed on.
    """
    fold = str.upper if platform == "win32" else str
    safe = frozenset((_SAFE_NAMES + (_SAFE_NAMES_ON_WINDOWS if platform == "win32" else "")).split())
    globs = _globs(choice, fold)
    included = [glob for glob in globs if not glob.startswith("!")]
    excluded = [glob[1:].upper() for glob in globs if glob.startswith("!")]

    def may_inherit(name: str) -> bool:
        if name in safe or name.startswith(_SAFE_PREFIXES):
            return True
        is_included = any(fnmatchcase(name, glob) for glob in included)
        return is_included and not any(fnmatchcase(name.upper(), glob) for glob in excluded)

    # such a value is an exported shell function
    return {n: value for n, value in environment.items() if may_inherit(fold(n)) and not value.startswith("()")}


def minimal_variables(environment: Mapping[str, str], names: Iterable[str], *, platform: str) -> dict[str, str]:
    """Return the few variables that a command line program needs to run, and those that the names or globs match.

    `PATH` keeps only absolute directories: it must not depend on the working directory.
    """
    fold = str.upper if platform == "win32" else str
    minimal = frozenset((_MINIMAL_NAMES + (_SAFE_NAMES_ON_WINDOWS if platform == "win32" else "")).split())
    globs = [*map(fold, names)]

    def may_inherit(name: str) -> bool:
        return name in minimal or name.startswith("LC_") or any(fnmatchcase(name, glob) for glob in globs)

    passed = {n: value for n, value in environment.items() if may_inherit(fold(n)) and not value.startswith("()")}
    separator = ";" if platform == "win32" else ":"
    return {n: separator.join(_absolute(v.split(separator))) if fold(n) == "PATH" else v for n, v in passed.items()}


def merge(layers: Iterable[Mapping[str, str]], *, platform: str) -> dict[str, str]:
    """Merge layers of variables; later layers win. On Windows, `Path` and `PATH` are the same name."""
    if platform != "win32":
        return {name: value for layer in layers for name, value in layer.items()}
    folded = {name.upper(): (name, value) for layer in layers for name, value in layer.items()}
    return dict(folded.values())


def read_env_file(path: Path) -> dict[str, str]:
    """Return the literal variables of an env file. Raises OSError, or ValueError if it is not text."""
    from io import StringIO

    from dotenv import dotenv_values

    text = file_reader.decode(read_bytes(path, may_be_piped=True))
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def resolve_path(text: str, environment: Mapping[str, str], *, base: Path) -> Path:
    """Return the path that a user wrote: `~` is their home, and relative paths start at `base`."""
    return base / resolve_home(text, environment)


def _absolute(directories: Iterable[str]) -> Iterable[str]:
    return (each for each in directories if Path(each).is_absolute())


def _globs(choice: Inherit, fold: Callable[[str], str]) -> tuple[str, ...]:
    match choice:
        case "safe":
            return ()
        case "all":
            return ("*",)
    return tuple(map(fold, choice))
