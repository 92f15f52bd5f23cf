"""What `doctor --deployment` finds out about what is in front of a service, by being its client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path

import pytest

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.doctor.front import StreamTimes, check_clock, check_front
from tests.doctor.front import Faults, Front, serving_front
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S, Json
from tests.reverse_proxies import running_nginx, skip_without

# The fake one sends something every 0.2 s.
PATIENT = StreamTimes(first_s=20.0, silence_s=20.0, gap_s=0.1, most_s=20.0)
SOON = StreamTimes(first_s=1.0, silence_s=1.0, gap_s=20.0, most_s=20.0)
TOKEN = {"authorization": "Bearer x"}
ALIVE = b": alive\n\n"


async def look(
    faults: Faults | None = None, headers: dict[str, str] | None = None, times: StreamTimes = PATIENT
) -> tuple[list[Finding], Front]:
    """Return what is found, without the clock, and what was sent."""
    async with asyncio.timeout(BOUND_S), serving_front(faults) as (url, front):
        clock, *findings = await check_front(url, headers or {}, times=times)
        assert clock.level in (Level.OK, Level.NOTE)
    return findings, front


def problems_of(findings: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each.level is not Level.OK]


async def test_where_all_passes_there_is_no_problem_and_the_session_is_ended() -> None:
    findings, front = await look(headers=TOKEN)
    assert problems_of(findings) == []
    assert "a client reaches dynamic-mcp" in findings[0].what
    assert "streams arrive at once, and outlive" in findings[1].what
    methods = [method for method, _ in front.requests]
    assert methods == ["initialize", "notifications/initialized", "server/discover", "ping", "GET", "DELETE"]
    assert {headers["authorization"] for _, headers in front.requests} == {"bearer x"}


@pytest.mark.parametrize(
    ("faults", "what", "hint"),
    [
        (Faults(drops=("mcp-session-id",)), "without `Mcp-Session-Id`", "all headers of answers"),
        (Faults(drops=("mcp-method",)), "answered 400: missing header `Mcp-Method`", "begin with `Mcp-`"),
        (Faults(largest=1_000_000), "1.5 MB is answered 413", "client_max_body_size"),
        (Faults(pieces=((0.0, ALIVE),), ends=True), "ended after 0 s of silence", "proxy_read_timeout"),
        (Faults(stream_status=405), "the stream of a session is answered 405", "as it does POST"),
        (Faults(stream_headers={"content-encoding": "gzip"}), "streams are compressed (`gzip`)", "text/event-stream"),
        (Faults(delete_status=405), "DELETE is answered 405", "by which clients end their sessions"),
        (Faults(needs_token=True, drops=("authorization",)), "`Authorization` does not arrive", "pass it on"),
        (Faults(refuses=(403, "unknown host `d`: add it")), "does not know its host", "Host $http_host"),
        (Faults(refuses=(401, "unknown or revoked token")), "unknown or revoked token", "--header"),
        (Faults(refuses=(401, "")), "asks for a password or a login (401)", "--header"),
        (Faults(refuses=(302, "")), "asks for a password or a login (302)", "--header"),
        (Faults(refuses=(502, "")), "does not reach dynamic-mcp (502)", "does it run"),
        (Faults(refuses=(404, "")), "answered 404, and not by dynamic-mcp", "root_path"),
    ],
)
async def test_each_fault_of_what_is_in_front_is_named(faults: Faults, what: str, hint: str) -> None:
    findings, _ = await look(faults, TOKEN)
    (found,) = problems_of(findings)
    assert what in found.what
    assert hint in found.hint


@pytest.mark.parametrize(
    ("pieces", "what"),
    [((), "does not arrive at once"), (((0.0, ALIVE),), "nothing came over a stream for 1 s")],
)
async def test_a_stream_that_is_collected_is_found(pieces: tuple[tuple[float, bytes], ...], what: str) -> None:
    findings, _ = await look(Faults(pieces=pieces), times=SOON)
    (found,) = problems_of(findings)
    assert what in found.what
    assert "proxy_buffering off" in found.hint


async def test_a_stream_that_is_never_silent_is_watched_for_a_while() -> None:
    busy = Faults(pieces=tuple((0.01, ALIVE) for _ in range(1000)))
    async with asyncio.timeout(BOUND_S), serving_front(busy) as (url, _):
        times = StreamTimes(first_s=20.0, silence_s=20.0, gap_s=19.0, most_s=0.3)
        assert problems_of(await check_front(url, {}, times=times)) == []


async def test_a_service_that_is_not_there_is_said_to_be_unreachable() -> None:
    async with asyncio.timeout(BOUND_S):
        (found,) = await check_front(f"http://127.0.0.1:{free_port()}/mcp", {})
    assert (found.level, found.what.endswith("/mcp` refuses connections")) == (Level.WARNING, True)


async def test_a_service_whose_name_is_unknown_is_said_to_have_such_a_name() -> None:
    async with asyncio.timeout(BOUND_S):
        (found,) = await check_front("http://nothing.invalid/mcp", {})
    assert found.what == "`http://nothing.invalid/mcp` could not be reached: its name cannot be resolved"


@pytest.mark.parametrize(
    ("theirs", "level", "what"),
    [
        (1_000_000.0, Level.OK, "is that of this machine"),
        (1_000_004.0, Level.OK, "is that of this machine"),
        (999_900.0, Level.WARNING, "99 s ahead of its own"),
        (1_000_300.0, Level.WARNING, "299 s behind its own"),
    ],
)
def test_clocks_are_compared_by_whole_seconds(theirs: float, level: Level, what: str) -> None:
    found = check_clock("here", formatdate(theirs, usegmt=True), 1_000_000.0, 1_000_001.0)
    assert (found.level, what in found.what) == (level, True), found.what


def test_a_date_that_is_none_compares_nothing() -> None:
    assert check_clock("here", "", 0.0, 1.0).level is Level.NOTE


# --- the real ones ---------------------------------------------------------------------------------------------

_GOOD = "proxy_http_version 1.1; proxy_set_header Host $http_host; client_max_body_size 64m; proxy_read_timeout 1h;"
_COLLECTS = "gzip on; gzip_types text/event-stream; gzip_proxied any; proxy_ignore_headers X-Accel-Buffering;"
SITES = {
    "good": (_GOOD, ""),
    "cuts": (_GOOD.replace("1h", "5s"), "a stream was ended after 5 s of silence"),
    "collects": (_GOOD + _COLLECTS, "what is sent over a stream does not arrive at once"),
    "strips": (_GOOD + 'proxy_set_header Mcp-Method "";', "missing header `Mcp-Method`"),
    "host": (_GOOD.replace("proxy_set_header Host $http_host;", ""), "does not know its host"),
    "small": (_GOOD.replace("client_max_body_size 64m;", ""), "1.5 MB is answered 413"),
}


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="nginx is for Unix")
async def test_nginx_that_cuts_collects_or_strips_is_found_out(tmp_path: Path) -> None:
    skip_without("nginx")
    ports = {name: free_port() for name in SITES}
    settings: Json = {"http": {"allowed_hosts": []}}
    async with asyncio.timeout(2 * BOUND_S), serving_http(tmp_path, {}, settings=settings) as program:
        site = f"upstream service {{ server {program.origin.removeprefix('http://')}; }}\n" + "".join(
            f"server {{ listen 127.0.0.1:{ports[name]}; location / {{ proxy_pass http://service; {lines} }} }}\n"
            for name, (lines, _) in SITES.items()
        )
        async with running_nginx(tmp_path, site, ports["good"]):
            found = await asyncio.gather(
                *(check_front(f"http://127.0.0.1:{port}/mcp", {}) for port in ports.values())
            )
    for (name, (_, what)), findings in zip(SITES.items(), found, strict=True):
        problems = [each.what for each in problems_of(findings)]
        assert len(problems) == bool(what), (name, problems)
        assert what in "".join(problems), (name, problems)
