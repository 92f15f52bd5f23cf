"""What a program may use: `sandbox` of a server, or of `settings.defaults`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import unquote, urlsplit

from dynamic_mcp.config.confinement import NO_SANDBOX
from dynamic_mcp.config.flaws import FlawError, printable
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.section import Section, Shorthand, Value
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.features.sandbox.confinement import SandboxConfinement
from dynamic_mcp.features.sandbox.hosts import parse_host

# What stands for an object with these members.
_WORDS = {"off": {"enabled": False}, "write": {}, "strict": {"read": [], "hosts": []}}


def _check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    for each in hosts:
        try:
            parse_host(each)
        except ValueError:
            hint = "write `api.example.com`, `*.example.com` or `db.example.com:5432`"
            raise FlawError(f"is not a host: `{printable(each)}`", hint=hint) from None
    return tuple(hosts)


_Paths = Annotated[tuple[str, ...], Value(tuple, written=list[str], type_name="a list of paths")]
_Hosts = Annotated[tuple[str, ...], Value(_check_hosts, written=list[str], type_name="a list of hosts")]


class SandboxWords(Section, frozen=True, kw_only=True):
    """What a program may use. It can always read its own files, and write in its own places."""

    read: Annotated[
        _Paths | None,
        "The files and directories that it may read besides, relative to the config; others do not exist for it."
        " Default: all.",
    ] = None
    write: Annotated[
        _Paths,
        "The files and directories that it may change besides. Its own places are its directory, the roots, a folder"
        " for its state, and a temporary one. Default: none.",
    ] = ()
    hosts: Annotated[
        _Hosts | None,
        "The hosts that it may reach through the proxy that its environment names: by name, and with the port unless"
        " that is 80 or 443; none if the list is empty. Default: all.",
    ] = None
    container: Annotated[
        str | None, "The image of a container that it runs in, by `podman`, or else `docker`. Default: none."
    ] = None
    best_effort: Annotated[
        bool,
        "Start it even where not everything can be enforced, with a warning in the log. Default: false, and it is not"
        " started.",
    ] = False
    enabled: Annotated[bool, "`false` starts it without a sandbox, as `off` does. Default: true."] = True

    def __post_init__(self) -> None:
        if self.container is not None and not self.container.strip():
            raise FlawError("`container` must not be empty")
        if self.container is not None and self.hosts:
            raise FlawError(
                "`hosts` of a container can only be empty",
                hint="`[]` takes its network away; leave it out to keep it",
            )


Sandbox = Annotated[SandboxWords, Shorthand(_WORDS)]


def make_confinement(
    words: SandboxWords,
    at: Keys,
    server: str,
    roots: Sequence[str],
    *,
    texts: Substitution,
    surroundings: Surroundings,
) -> SandboxConfinement | None:
    """Return what confines the program of a server; None without a sandbox, or with a failure in `texts`."""
    if not words.enabled:
        return None
    if needed := _find_missing(words, surroundings.platform):
        if words.best_effort:
            texts.warn(at, f"{NO_SANDBOX}: the program is not confined")
        else:
            texts.fail(at, f"{NO_SANDBOX}: it needs {needed}")
        return None

    def fill(paths: Sequence[str], name: str) -> tuple[str, ...]:
        filled = [texts.fill((*at, name, number), each, is_required=True) for number, each in enumerate(paths)]
        return tuple(str(resolve_path(each, surroundings)) for each in filled)

    return SandboxConfinement(
        server=server,
        home=surroundings.environment.get("HOME", ""),
        read=None if words.read is None else fill(words.read, "read"),
        write=fill(words.write, "write"),
        roots=tuple(_directory_of(each, texts, surroundings) for each in roots),
        hosts=words.hosts,
        container=words.container,
        best_effort=words.best_effort,
    )


def _find_missing(words: SandboxWords, platform: str) -> str:
    """Return what a system lacks for these words; empty if they can be tried there."""
    if platform == "linux":
        return ""
    if platform == "win32":
        return "Linux, such as the Windows Subsystem for Linux"
    return "" if words.container is not None else "Linux, or a `container`"


def _directory_of(root: str, texts: Substitution, surroundings: Surroundings) -> str:
    """Return the directory of a root; empty for a URI that is no file."""
    text = texts.fill(("settings", "roots"), root)
    if "://" not in text:
        return str(resolve_path(text, surroundings))
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else ""
