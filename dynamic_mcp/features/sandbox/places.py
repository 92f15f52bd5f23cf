"""The files that a confined program needs or may change: its own, its own places, and those of the config.

A directory that is too wide, such as the home of the user, is never taken without being named in the config.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.profiles import KnownProgram, find_profiles
from dynamic_mcp.features.sandbox.words import Restrictions
from dynamic_mcp.system import paths
from dynamic_mcp.system.programs import find_program

# Directories of the system that programs read; what is not there is left out.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/run/current-system")
# Of /etc, only what programs need to run; other files there have secrets of the machine.
SYSTEM_FILES = tuple(
    f"/etc/{name}"
    for name in (
        *("ca-certificates.conf", "gai.conf", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf"),
        *("locale.alias", "localtime", "mime.types", "nsswitch.conf", "os-release", "passwd", "profile", "protocols"),
        *("resolv.conf", "services", "timezone"),
    )
)
SYSTEM_DIRECTORIES = tuple(
    f"/etc/{name}"
    for name in (
        *("alternatives", "ca-certificates", "crypto-policies", "fonts", "java", "ld.so.conf.d", "pki", "ssl"),
        *("static", "terminfo"),
    )
)
# What runs a script that is its first argument.
_INTERPRETERS = ("python", "node", "deno", "bun", "ruby", "perl", "php", "sh", "bash", "java")
_PROJECT_FILES = ("package.json", "pyproject.toml", "node_modules")
_HIGHEST_PROJECT = 5
# A sandbox has its own.
_OF_KERNEL = ("/proc/", "/sys/")
_SHEBANG_BYTES = 256
_MOST_SHEBANGS = 3


class Places(Struct, frozen=True):
    """What a program gets, as absolute paths that exist: `read` besides the system's, `write` also to change.

    `file` is the program's own, `env` variables that it gets besides, `state` the folder of its state, and `cwd`
    where it starts. A socket of the file system is a way to other programs: it `uses_sockets` only if one is named.
    """

    file: str
    cwd: str
    state: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    env: Mapping[str, str]
    makes_namespaces: bool = False
    uses_sockets: bool = False


def find_places(words: Restrictions, program: Program) -> Places:
    """Return the places of a program, and make the folder of its state. Raises CannotConfine and OSError."""
    state = state_folder(words.server)
    paths.make_private_dir(state)
    profiles = find_profiles(program)
    file = find_program(program.command, program.env, cwd=program.cwd)
    if file is None:
        raise FileNotFoundError
    file = str(Path(program.cwd or ".", file).absolute())
    cwd = str(Path(program.cwd or ".").absolute())
    names = {"state": str(state), "home": words.home}
    writes = [*words.write, *words.roots, str(state)]
    if not is_too_wide(cwd, words):
        writes.append(cwd)
    arguments = [each for each in _paths_in(program.args) if not is_too_wide(each, words)]
    if any(each.writes_arguments for each in profiles):
        writes += arguments
    reads = [*(words.read or ()), *_places_of_program(file, program, words), *arguments]
    reads += [text.format(**names) for each in profiles for text in each.read]
    return Places(
        file=file,
        cwd=cwd if Path(cwd).is_dir() else "",
        state=str(state),
        read=tuple(_existing(reads)),
        write=tuple(_existing(writes)),
        env=_variables(profiles, program, names),
        makes_namespaces=any(each.is_browser for each in profiles),
        uses_sockets=any(each.is_browser for each in profiles) or any(Path(each).is_socket() for each in words.write),
    )


def state_folder(server: str) -> Path:
    """Return the folder for the state of a confined server, which it may write."""
    return paths.state_dir() / "sandbox" / quote(server, safe="").replace(".", "%2E")


def _variables(profiles: Iterable[KnownProgram], program: Program, names: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that profiles add; what the config sets itself stays."""
    pairs = [(name, text.format(**names)) for each in profiles for name, text in each.env.items()]
    return {name: text for name, text in pairs if name not in program.own}


def is_too_wide(path: str, words: Restrictions) -> bool:
    """Return whether a directory has the home of the user in it, or our own state."""
    inner = [Path(words.home or "/"), paths.state_dir(), paths.config_dir()]
    return any(each.is_relative_to(path) for each in (*inner, *(each.resolve() for each in inner)))


def _places_of_program(file: str, program: Program, words: Restrictions, depth: int = 0) -> Iterator[str]:
    """Yield where a program is installed, and what runs it if it is a script."""
    for each in dict.fromkeys((file, os.path.realpath(file))):
        yield each
        yield from _installation(each, words)
        yield from _packages_around(each)
    script = _script_of(program) if depth == 0 else None
    if script is not None:
        yield _project_of(script, words)
        yield from _packages_around(os.path.realpath(script))
    interpreter = _interpreter_of(file, program)
    if interpreter is not None and depth < _MOST_SHEBANGS:
        yield from _places_of_program(interpreter, program, words, depth + 1)


def _installation(file: str, words: Restrictions) -> Iterator[str]:
    """Yield the directory in which a program is, or if that is a `bin` or has shims, the one around it."""
    folder = Path(file).parent
    around = folder.parent
    is_wide = is_too_wide(str(around), words) or around == Path(words.home, ".local")
    if folder.name in ("bin", "sbin", "shims") and not is_wide:
        yield str(around)
    elif not is_too_wide(str(folder), words):
        yield str(folder)


def _packages_around(file: str) -> Iterator[str]:
    """Yield the `node_modules` that a file is in: a package there needs those beside it."""
    return (str(each) for each in Path(file).parents if each.name == "node_modules")


def _interpreter_of(file: str, program: Program) -> str | None:
    """Return what runs a script, by its first line; None for another program."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - of a text that is absolute
            start = opened.read(_SHEBANG_BYTES)
    except OSError:
        return None
    if not start.startswith(b"#!"):
        return None
    words = start[2:].partition(b"\n")[0].decode(errors="replace").split()
    if not words:
        return None
    if Path(words[0]).name == "env":
        words = [each for each in words[1:] if not each.startswith("-")]
    return find_program(words[0], program.env) if words else None


def _script_of(program: Program) -> str | None:
    """Return the script that an interpreter is started with."""
    if not Path(program.command).name.startswith(_INTERPRETERS):
        return None
    first = next((each for each in program.args if not each.startswith("-")), "")
    script = os.path.abspath(os.path.join(program.cwd or ".", first))  # noqa: PTH100, PTH118 - it may be no path
    return script if first and os.path.isfile(script) else None  # noqa: PTH113 - as above, and too long for one


def _project_of(script: str, words: Restrictions) -> str:
    """Return the directory of the project that a script is in, else the one that it is in itself."""
    folder = Path(script).parent
    for each in (folder, *folder.parents)[:_HIGHEST_PROJECT]:
        if is_too_wide(str(each), words):
            break
        if any((each / name).exists() for name in _PROJECT_FILES):
            return str(each)
    return script if is_too_wide(str(folder), words) else str(folder)


def _paths_in(args: Iterable[str]) -> Iterator[str]:
    """Yield the absolute paths among arguments, also those after a `=`."""
    for each in args:
        text = each if each.startswith("/") else each.partition("=")[2]
        path = os.path.normpath(text)
        if path.startswith("/") and not path.startswith(_OF_KERNEL) and not is_device(path):
            yield path


def is_device(path: str) -> bool:
    """Return whether a path is among the devices; the files in memory beside them are files."""
    return path.startswith("/dev/") and not path.startswith("/dev/shm/")  # noqa: S108 - nothing is made there


def _existing(places: Iterable[str]) -> Iterator[str]:
    """Yield the places that exist, each once; relative ones and empty texts are no places."""
    return (each for each in dict.fromkeys(places) if each.startswith("/") and os.path.lexists(each))


def check_writable(words: Restrictions) -> None:
    """Raise CannotConfine if a place that the config lets it write does not exist."""
    for each in words.write:
        if not os.path.lexists(each):
            raise CannotConfine(
                f"`{each}`, which it may write, does not exist", "create it, or take it out of `write`"
            )
