"""`doctor --deployment`: what an operator of a service gets wrong, of this machine and of what is in front."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from dynamic_mcp import __version__
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.resolved import CommandLine, Config, Program
from dynamic_mcp.doctor.certificates import check_certificate
from dynamic_mcp.doctor.findings import Finding, Level, config_error, warning
from dynamic_mcp.doctor.front import WHERE, StreamTimes, check_clock, check_front
from dynamic_mcp.doctor.hosted_clients import check_hosted_clients
from dynamic_mcp.features import table
from dynamic_mcp.observe.proxies import ProxyRegistry, RunningProxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.programs import find_program
from dynamic_mcp.system.text import one_line, os_reason

SERVICE = "service"
_PROC = Path("/proc")
_LOW_BYTES, _FULL_BYTES = 1 << 30, 100 << 20
_LOW_INODES = 10_000
# As the HTTP server has it: connections for each session, and the share of descriptors that is for them.
_CONNECTIONS_OF_SESSION, _SHARE = 2, 3 / 4
_PROVIDER_WITHIN_S = 10.0


def find_services(config: Config) -> list[RunningProxy]:
    """Return what serves a config on this machine, for this user."""
    running = ProxyRegistry(paths.state_dir() / "running").list_proxies()
    return [each for each in running if config_key(each.status.config) == config_key(config.file)]


async def check_deployment(
    config: Config, headers: Mapping[str, str], *, lacks_credential: bool, times: StreamTimes | None = None
) -> list[Finding]:
    """Look at this machine, at the clocks of others, and at the service as its clients do.

    `headers` are those of a client. `lacks_credential`: they have none, though clients authenticate.
    """
    services = await asyncio.to_thread(find_services, config)
    found = await asyncio.to_thread(lambda: [*check_services(config, services), *check_places(config)])
    http = config.http
    if http is None:
        found.append(Finding(Level.NOTE, "settings.http", "is not there, so nothing is served over HTTP"))
        return found
    found += await _check_providers(http)
    if http.public_url is None:
        what = "is not set, so what is in front and its certificate were not looked at"
        return [*found, Finding(Level.NOTE, WHERE, what, "set it to the URL that clients connect to")]
    found += await check_certificate(WHERE, http.public_url)
    if lacks_credential:
        what = "clients authenticate, and no credential is known: less was looked at"
        found.append(
            Finding(Level.NOTE, WHERE, what, "`--header 'Authorization: Bearer ${TOKEN}'` has that of a client")
        )
    found += await check_hosted_clients(http, lacks_credential=lacks_credential)
    return [*found, *await check_front(http.public_url, headers, times=times)]


# --- what runs -------------------------------------------------------------------------------------------------


def check_services(config: Config, services: Sequence[RunningProxy], *, proc: Path = _PROC) -> Iterator[Finding]:
    """Return the findings about the processes that serve a config, whose files are in `proc` (Linux)."""
    if not services:
        what = "nothing serves this config on this machine for this user, so what is of its process is not known"
        yield Finding(Level.NOTE, SERVICE, what, "run it as the user who serves: `sudo -u dynamic-mcp dynamic-mcp …`")
    for each in services:
        place = f"{SERVICE} {each.pid}"
        if each.version != __version__:
            what = f"runs version {each.version}, and {__version__} is installed"
            yield warning(place, what, "restart it")
        if each.status.config_error:
            what = f"serves an older version of the config, since the file is refused: {each.status.config_error}"
            yield warning(place, what, "`dynamic-mcp check` says more")
        if each.silent_s:
            yield warning(place, f"has said nothing for {each.silent_s:.0f} s: it hangs, or its disk does")
        yield from _check_descriptors(place, config.http, _read_limit(proc / str(each.pid) / "limits"))
        yield from _check_programs(place, config, _read_path(proc / str(each.pid) / "environ"))


def _check_descriptors(place: str, http: Http | None, limit: int | None) -> Iterator[Finding]:
    if http is None:
        return
    if limit is None:
        yield Finding(Level.NOTE, place, "the limit of its open files is not known")
        return
    needed = int(_CONNECTIONS_OF_SESSION * http.max_sessions / _SHARE)
    if limit < needed:
        what = f"may open {limit} files, and `max_sessions` ({http.max_sessions}) needs {needed}"
        yield warning(place, what, "`LimitNOFILE=65536` in the unit of systemd, or `ulimit -n`")
    else:
        yield Finding(Level.OK, place, f"may open {limit} files, enough for {http.max_sessions} sessions")


def _read_limit(file: Path) -> int | None:
    """Return how many files a process may open; None if that is not known."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    words = next((line.split() for line in lines if line.startswith("Max open files")), [])
    return sys.maxsize if words[3:4] == ["unlimited"] else int(words[3]) if len(words) > 3 else None


def _check_programs(place: str, config: Config, path: str | None) -> Iterator[Finding]:
    """Look for the programs of servers where the service does: its `PATH` is often shorter than that of a shell."""
    if path is None or path == os.environ.get("PATH"):
        return
    for group in config.groups:
        program = group.upstream
        if not isinstance(program, Program | CommandLine) or program.env.get("PATH") != os.environ.get("PATH"):
            continue  # it has a `PATH` of its own
        if find_program(program.command, {**program.env, "PATH": path}, cwd=program.cwd) is None:
            what = f"does not find `{one_line(program.command)}` of `{group.name}` on its `PATH`: {path}"
            yield warning(place, what, "give its full path, or add its directory to `PATH` in the unit")


def _read_path(file: Path) -> str | None:
    """Return the `PATH` of a process; None if that is not known."""
    try:
        variables = file.read_bytes().split(b"\0")
    except OSError:
        return None
    found = [each.removeprefix(b"PATH=") for each in variables if each.startswith(b"PATH=")]
    return os.fsdecode(found[0]) if found else None


# --- disks -----------------------------------------------------------------------------------------------------


def check_places(config: Config) -> Iterator[Finding]:
    """Return the findings about the directories that the service writes to."""
    places = {paths.state_dir(): "state", paths.cache_dir(): "cache", paths.log_dir(): "log"}
    for feature in table.FEATURES:
        for name, target in feature.keeps_elsewhere.items():
            if (path := feature.find(target)(config)) is not None:
                places[path] = name
    seen: set[int] = set()
    for path, name in places.items():
        directory = _find_directory(path)
        yield from _check_writable(name, directory)
        device = directory.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield from check_room(directory, *_read_room(directory))


def check_room(directory: Path, free_bytes: int, free_inodes: int | None) -> Iterator[Finding]:
    """Return the finding about the room of a file system."""
    place, free = str(directory), f"{free_bytes / (1 << 30):.1f} GiB"
    hint = "what is not recorded in the audit log is not executed, and logins that are not kept are lost"
    if free_bytes < _FULL_BYTES:
        yield config_error(place, f"has {free_bytes >> 20} MiB left", hint)
    elif free_bytes < _LOW_BYTES:
        yield warning(place, f"has {free} left", hint)
    elif free_inodes is not None and free_inodes < _LOW_INODES:
        yield warning(place, f"has room for {free_inodes} more files", hint)
    else:
        yield Finding(Level.OK, place, f"has {free} left")


def _read_room(directory: Path) -> tuple[int, int | None]:
    """Return the free bytes and the free inodes, None where there is no number of these."""
    free = shutil.disk_usage(directory).free
    read_status = getattr(os, "statvfs", None)  # which Windows has not
    status = None if read_status is None else read_status(directory)
    return free, status.f_favail if status is not None and status.f_files else None


def _check_writable(name: str, directory: Path) -> Iterator[Finding]:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as exc:
        hint = "is this the user who serves?"
        if exc.errno == errno.EROFS:
            hint = "mount a volume there, or name another directory by `XDG_STATE_HOME` and `XDG_CACHE_HOME`"
        yield warning(str(directory), f"the {name} cannot be written: {os_reason(exc)}", hint)


def _find_directory(path: Path) -> Path:
    """Return a directory, the one of a file, or the nearest one that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())


# --- clocks of others ------------------------------------------------------------------------------------------


async def _check_providers(http: Http) -> list[Finding]:
    """Compare the clock with those of the identity providers, whose tokens have times."""
    issuers = dict.fromkeys(_find_issuers(http.auth))
    return [*await asyncio.gather(*(_check_provider(issuer) for issuer in issuers))]


def _find_issuers(providers: Iterable[object]) -> Iterator[str]:
    for each in providers:
        for one in (each, getattr(each, "oidc", None)):
            if isinstance(issuer := getattr(one, "issuer", None), str):
                yield issuer


async def _check_provider(issuer: str) -> Finding:
    import httpx2

    from dynamic_mcp.system.request_errors import REQUEST_ERRORS
    from dynamic_mcp.web.guarded_client import explain  # with httpx2

    host = urlsplit(issuer).hostname or issuer
    began = time.time()
    try:
        async with httpx2.AsyncClient(timeout=_PROVIDER_WITHIN_S) as client:
            url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            async with client.stream("GET", url) as answer:
                date = answer.headers.get("date", "")
    except REQUEST_ERRORS as exc:
        what = f"the identity provider {explain(exc)}"
        return warning(host, what, "nobody new can log in, and keys of tokens are not renewed")
    return check_clock(host, date, began, time.time())
