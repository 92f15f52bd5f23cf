"""Starts a program by what can confine it here, as far as the config asks; else it does not start."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from msgspec.structs import replace

from dynamic_mcp.config.confinement import CannotConfine, ConfinedChild
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.hosts import parse_host
from dynamic_mcp.features.sandbox.places import SYSTEM_FILES, Places, check_writable, find_places
from dynamic_mcp.features.sandbox.seccomp import Filter
from dynamic_mcp.features.sandbox.words import Restrictions

assert sys.platform == "linux"

from dynamic_mcp.features.sandbox import bubblewrap, landlock  # noqa: E402

log = logging.getLogger(__name__)

Streams = tuple[int, int, int]


def launch(words: Restrictions, program: Program, environment: Mapping[str, str], streams: Streams) -> ConfinedChild:
    """Start a program confined. Raises CannotConfine, OSError and ValueError."""
    if not words.best_effort:
        check_writable(words)
    places = find_places(words, program)
    environment = {**environment, **places.env}
    why_not = bubblewrap.explain_missing()
    if not why_not:
        return _start_in_namespaces(words, program, places, environment, streams)
    lacks = _explain_lack(words, why_not)
    if lacks and not words.best_effort:
        raise CannotConfine(lacks, bubblewrap.suggest())
    if lacks:
        log.warning("group %s: is not confined as its config says: %s", words.server, lacks)
    return _start_by_landlock(program, places, environment, streams)


def _explain_lack(words: Restrictions, why_not: str) -> str:
    """Return what cannot be enforced without bubblewrap; empty if all can be."""
    if words.is_strict:
        return f"only bubblewrap can confine what it reads and its network, and {why_not}"
    version = landlock.read_version()
    if version < landlock.NEEDED:
        has = f"version {version} of Landlock" if version else "no Landlock"
        return f"{why_not}; and this kernel has {has}, and not version {landlock.NEEDED}"
    return ""


def _start_in_namespaces(
    words: Restrictions, program: Program, places: Places, environment: Mapping[str, str], streams: Streams
) -> ConfinedChild:
    reads_all = words.read is None
    system_calls = Filter(
        denies_unix_sockets=reads_all or not places.uses_sockets, allows_namespaces=places.makes_namespaces
    ).build()
    environment = {**environment, "TMPDIR": "/tmp"}  # noqa: S108 - of its own
    command = [places.file, *program.args]
    copies = () if reads_all else SYSTEM_FILES
    if not words.hosts:
        options = bubblewrap.list_options(places, reads_all=reads_all, has_network=words.hosts is None)
        child = bubblewrap.start(command, environment, options, system_calls, copies=copies, streams=streams)
        return ConfinedChild(child, _do_nothing)
    from dynamic_mcp.features.sandbox import network  # with the first program that has hosts

    places = replace(places, read=(*places.read, *network.door_places()))
    options = bubblewrap.list_options(places, reads_all=reads_all, has_network=False)
    with network.door_pair() as (ours, theirs):
        child = bubblewrap.start(
            network.door_command(theirs.fileno(), command),
            {**environment, **network.VARIABLES},
            options,
            system_calls,
            copies=copies,
            streams=streams,
            passed=[theirs.fileno()],
        )
        theirs.close()
        proxy = network.HostProxy(words.server, [parse_host(each) for each in words.hosts])
        try:
            proxy.open(network.take_door(ours))
        except BaseException:
            child.kill()
            child.wait()
            raise
    return ConfinedChild(child, proxy.close)


def _start_by_landlock(
    program: Program, places: Places, environment: Mapping[str, str], streams: Streams
) -> ConfinedChild:
    temporary = tempfile.TemporaryDirectory(dir=places.state, prefix="tmp-")
    stdin, stdout, stderr = streams

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [program.command, *program.args],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**environment, "TMPDIR": temporary.name},
            cwd=program.cwd,
            start_new_session=True,
        )

    filter_program = Filter(denies_unix_sockets=True, is_alone=True).build()
    try:
        child = landlock.start_confined(start, places.write, filter_program)
    except BaseException:
        temporary.cleanup()
        raise
    return ConfinedChild(child, temporary.cleanup)


def _do_nothing() -> None:
    pass
