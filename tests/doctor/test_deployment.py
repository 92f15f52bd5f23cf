"""What `doctor --deployment` finds on the machine of a service, and how it is a client of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.doctor.deployment import check_places, check_room, check_services
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.observe.proxies import ProxyStatus, RunningProxy
from tests.cli.commands import CliRunner
from tests.doctor.front import Faults, serving_front
from tests.fakes import config_of, group_config
from tests.program import BOUND_S

GIB = 1 << 30


def problems_of(findings: list[Finding]) -> list[str]:
    return [each.what for each in findings if each.level in (Level.WARNING, Level.ERROR)]


def process(folder: Path, *, files: str = "65536", path: str = "/usr/bin") -> Path:
    """Write what Linux shows of the process 7; return the folder of all processes."""
    place = folder / "7"
    place.mkdir()
    (place / "limits").write_text(f"Limit  Soft Limit  Hard Limit  Units\nMax open files  {files}  {files}  files\n")
    (place / "environ").write_bytes(f"HOME=/x\0PATH={path}\0".encode())
    return folder


def running(version: str = __version__, silent_s: float = 0.0, config_error: str = "") -> RunningProxy:
    return RunningProxy(pid=7, version=version, silent_s=silent_s, status=ProxyStatus(config_error=config_error))


def serving(*servers: str) -> Config:
    groups = [
        group_config(name, upstream=Program(command=name, args=(), env={"PATH": os.environ["PATH"]}, cwd=None))
        for name in servers
    ]
    return config_of(*groups, http=Http())


def test_a_service_that_has_all_it_needs_is_fine(tmp_path: Path) -> None:
    findings = [*check_services(serving(), [running()], proc=process(tmp_path))]
    assert [(each.level, each.what) for each in findings] == [
        (Level.OK, "may open 65536 files, enough for 1000 sessions")
    ]


@pytest.mark.parametrize(
    ("service", "what"),
    [
        (running(version="0.0.1"), "runs version 0.0.1"),
        (running(config_error="line 7"), "the file is refused: line 7"),
        (running(silent_s=100.0), "has said nothing for 100 s"),
    ],
)
def test_a_service_that_is_not_as_it_should_be_is_named(tmp_path: Path, service: RunningProxy, what: str) -> None:
    (found,) = problems_of([*check_services(serving(), [service], proc=process(tmp_path))])
    assert what in found


@pytest.mark.parametrize(("files", "is_enough"), [("1024", False), ("2666", True), ("unlimited", True)])
def test_open_files_are_compared_with_the_sessions(tmp_path: Path, files: str, *, is_enough: bool) -> None:
    found = problems_of([*check_services(serving(), [running()], proc=process(tmp_path, files=files))])
    assert [f"may open {files} files, and `max_sessions` (1000) needs 2666"] * (not is_enough) == found


@pytest.mark.posix_only("programs of a shell")
def test_programs_are_looked_for_on_the_path_of_the_service(tmp_path: Path) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    (place / "there").write_text("#!/bin/sh\n")
    (place / "there").chmod(0o755)
    proc = process(tmp_path, path=str(place))
    found = problems_of([*check_services(serving("there", "sh"), [running()], proc=proc)])
    assert found == [f"does not find `sh` of `sh` on its `PATH`: {place}"]


def test_where_nothing_serves_that_is_said() -> None:
    (found,) = check_services(serving(), [])
    assert (found.level, "nothing serves this config" in found.what) == (Level.NOTE, True)


@pytest.mark.parametrize(
    ("free", "inodes", "level"),
    [
        (50 * GIB, 1_000_000, Level.OK),
        (50 * GIB, None, Level.OK),
        (GIB // 2, 1_000_000, Level.WARNING),
        (50 * GIB, 100, Level.WARNING),
        (1 << 20, 1_000_000, Level.ERROR),
    ],
)
def test_a_disk_that_is_nearly_full_is_found(free: int, inodes: int | None, level: Level) -> None:
    (found,) = check_room(Path("/x"), free, inodes)
    assert found.level is level


@pytest.mark.posix_only("/proc, in which not even root can write")
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_state_that_cannot_be_written_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nothing")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = problems_of([*check_places(serving())])
    assert any("the state cannot be written" in each for each in found)


# --- the command -----------------------------------------------------------------------------------------------

# It ends at once, where it would be silent.
FRONT = Faults(needs_token=True, stream_status=405)


@pytest.mark.usefixtures("state")
async def test_it_makes_itself_a_token_and_revokes_it(cli: CliRunner) -> None:
    async with asyncio.timeout(BOUND_S), serving_front(FRONT) as (url, front):
        cli.configure({}, settings={"http": {"public_url": url, "auth": [{"kind": "bearer"}]}})
        done = await asyncio.to_thread(cli.run, "doctor", "--deployment", "--json")
    assert "a client reaches dynamic-mcp" in done.out
    assert any("bearer dmcp_" in headers.get("authorization", "") for _, headers in front.requests)
    assert cli.run("token", "list", "--json").json == []


@pytest.mark.usefixtures("state")
async def test_the_credential_of_a_header_is_used_instead(cli: CliRunner) -> None:
    async with asyncio.timeout(BOUND_S), serving_front(FRONT) as (url, front):
        cli.configure({}, settings={"http": {"public_url": url, "auth": [{"kind": "bearer"}]}})
        header = ("--header", "Authorization: Basic ${PASSWORD}")
        unset = await asyncio.to_thread(cli.run, "doctor", "--deployment", *header)
        await asyncio.to_thread(cli.run, "doctor", "--deployment", *header, PASSWORD="eDp5")
    assert (unset.code, "`${PASSWORD}` in the header" in unset.err) == (2, True)
    assert {headers["authorization"] for _, headers in front.requests if "authorization" in headers} == {"basic edp5"}


@pytest.mark.usefixtures("state")
async def test_without_a_credential_it_says_what_it_did_not_see(cli: CliRunner) -> None:
    async with asyncio.timeout(BOUND_S), serving_front(FRONT) as (url, _):
        auth = [{"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
        cli.configure({}, settings={"http": {"public_url": url, "auth": auth}})
        done = await asyncio.to_thread(cli.run, "doctor", "--deployment", "--json")
    said = [each["what"] for each in done.json["findings"] if each["level"] == "note"]
    assert "clients authenticate, and no credential is known: less was looked at" in said


def test_without_http_there_is_little_to_look_at_and_no_server_is_started(cli: CliRunner, tmp_path: Path) -> None:
    cli.configure({"a": {"command": "sh", "args": ["-c", f"touch {tmp_path}/started"]}})
    done = cli.run("doctor", "--deployment", "--json")
    assert "nothing is served over HTTP" in done.out
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("words", [("--deployment", "full"), ("--header", "A: b")])
def test_what_does_not_belong_together_is_refused(cli: CliRunner, words: tuple[str, ...]) -> None:
    done = cli.run("doctor", *words)
    assert done.code == 2
    assert "`--deployment`" in done.err
