"""What the world gives to a configured program: inherited variables, env files, places on disk.

Only the variables that a program needs to run are inherited, unless the config asks for more.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from dynamic_mcp.config.values import Inherit
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
_SAFE_PREFIXES = ("LC_", "XDG_")


def inherit_variables(environment: Mapping[str, str], choice: Inherit, *, platform: str) -> dict[str, str]:
    """The variables that a program gets from ours; names in `choice` are globs, beside the safe ones.

    A glob after `!` holds back what the others pass on, whatever its case; the safe ones are always passed on.
    """
    fold = str.upper if platform == "win32" else str
    safe = frozenset((_SAFE_NAMES + (_SAFE_NAMES_ON_WINDOWS if platform == "win32" else "")).split())
    globs = _globs(choice, fold)
    wanted = [glob for glob in globs if not glob.startswith("!")]
    held_back = [glob[1:].upper() for glob in globs if glob.startswith("!")]

    def may_inherit(name: str) -> bool:
        if name in safe or name.startswith(_SAFE_PREFIXES):
            return True
        is_wanted = any(fnmatchcase(name, glob) for glob in wanted)
        return is_wanted and not any(fnmatchcase(name.upper(), glob) for glob in held_back)

    # a value that starts so is a function that a shell exported
    return {n: value for n, value in environment.items() if may_inherit(fold(n)) and not value.startswith("()")}


def merge(layers: Iterable[Mapping[str, str]], *, platform: str) -> dict[str, str]:
    """All layers in one, later ones first; Windows does not tell `Path` from `PATH`."""
    if platform != "win32":
        return {name: value for layer in layers for name, value in layer.items()}
    folded = {name.upper(): (name, value) for layer in layers for name, value in layer.items()}
    return dict(folded.values())


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file, taken literally. Raises OSError, or ValueError when it is not UTF-8."""
    from io import StringIO

    from dotenv import dotenv_values

    text = read_bytes(path, may_be_piped=True).decode("utf-8-sig")
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def resolve_path(text: str, environment: Mapping[str, str], *, base: Path) -> Path:
    """The path that a person wrote: `~` is their home, anything relative starts at `base`."""
    head, tail = text[:1], text[1:]
    home = environment.get("HOME") or environment.get("USERPROFILE")
    if head == "~" and home and (not tail or tail[0] in "/\\"):
        return Path(home) / tail.lstrip("/\\")
    return base / text


def _globs(choice: Inherit, fold: Callable[[str], str]) -> tuple[str, ...]:
    match choice:
        case "safe":
            return ()
        case "all":
            return ("*",)
    return tuple(map(fold, choice))
