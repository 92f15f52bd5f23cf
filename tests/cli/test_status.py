"""`status`: the running proxies, their sessions and their groups, as a script and as a person reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dynamic_mcp.cli.proxy_status import WINDOW_S, CallRates
from dynamic_mcp.observe.proxies import GroupStatus, InstanceStatus, ProxyStatus, RunningProxy, SessionStatus
from dynamic_mcp.system.processes import MemoryUse, ProcessInfo, measure_memory, measure_tree
from tests.cli.commands import BOUND_S, CliRunner, CommandResult
from tests.program import UPSTREAMS, Json, full, odd, running
from tests.terminal import INTERRUPT, Terminal, open_terminal, strip_escapes
from tests.windows import is_private

CLAUDE = "claude-code 2.1"
# On Windows, `status` shows no memory.
HAS_MEMORY = sys.platform != "win32"


async def wait_until(run: Callable[[], CommandResult], wanted: Callable[[CommandResult], bool]) -> CommandResult:
    """Repeat a command until it shows what is wanted."""
    async with asyncio.timeout(60):
        while not wanted(done := await asyncio.to_thread(run)):
            pass
    return done


def publish(state: Path, status: ProxyStatus) -> None:
    """Put a proxy with this status among the running ones; its process is this one."""
    running = RunningProxy(pid=os.getpid(), version="0.2.0", started_at=1_800_000_000.0, status=status)
    (state / "running").mkdir(parents=True, exist_ok=True)
    (state / "running" / f"{os.getpid()}.json").write_bytes(msgspec.json.encode(running))


def group(name: str = "files", *instances: InstanceStatus, **fields: Json) -> GroupStatus:
    return GroupStatus(**{"name": name, "state": "connected", "tools": 14, "instances": list(instances), **fields})


def instance(shared_by: str = CLAUDE, **fields: Json) -> InstanceStatus:
    return InstanceStatus(**{"shared_by": shared_by, "clients": [shared_by], "state": "connected", **fields})


def daemon(*groups: GroupStatus, sessions: int = 2) -> ProxyStatus:
    """Return the status of a daemon with sessions of one client."""
    session = SessionStatus(
        client="claude-code", version="2.1", since=1_800_000_060.0, calls=12, directory="/work/app"
    )
    return ProxyStatus(
        config="/c.json", kind="daemon", socket="/run/d.sock", sessions=[session] * sessions, groups=[*groups]
    )


def shown(cli: CliRunner, width: int = 100) -> list[str]:
    """Return the lines that a person sees."""
    return strip_escapes(cli.run_on_terminal("status", width=width).out).splitlines()


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


# --- a real proxy ------------------------------------------------------------------------------------------


async def test_status_shows_a_running_proxy_its_client_and_its_groups(cli: CliRunner, state: Path) -> None:
    cli.configure({"full": full(), "bad": odd("exit_at_start")})
    async with running(str(cli.config)) as program:
        await program.initialize()
        await program.call("full", "echo", {"text": "a"})
        await program.call("bad", "echo")

        def is_known(done: CommandResult) -> bool:
            groups = {group["name"]: group for proxy in done.json for group in proxy["groups"]}
            return bool(groups) and groups["full"]["calls"] == 1 and groups["bad"]["reason"] != ""

        done = await wait_until(lambda: cli.run("status"), is_known)
        (proxy,) = done.json
        assert (done.code, done.err) == (0, "")
        assert proxy["pid"] == program.process.pid
        assert proxy["config"] == str(cli.config)
        assert proxy["clients"] == ["test"]
        assert not HAS_MEMORY or proxy["memory"]["proxy"] > 1 << 20
        assert not HAS_MEMORY or proxy["memory"]["servers"] > 1 << 20
        good, bad = proxy["groups"]
        assert (good["state"], good["failures"]) == ("connected", 0)
        assert bad["reason"].startswith("the server exited with code 3")
        (file,) = (state / "running").iterdir()
        assert is_private(file)
        lines = strip_escapes((await asyncio.to_thread(cli.run_on_terminal, "status", width=200)).out)
        assert re.search(r"full +\d+ +1 +0 +.*connected", lines)
        assert re.search(r"bad: the server exited with code 3", lines)
    assert list((state / "running").iterdir()) == []


async def test_each_server_has_its_process_memory_and_durations(cli: CliRunner, state: Path) -> None:
    cli.configure(
        {"full": full(), "tiny": {"command": sys.executable, "args": [str(UPSTREAMS / "tiny.py")]}, "idle": full()}
    )
    async with running(str(cli.config)) as program:
        await program.initialize()
        for text in "abc":
            await program.call("full", "echo", {"text": text})
        await program.call("tiny", "echo", {"text": "a"})
        made = 4

        def is_known(done: CommandResult) -> bool:
            sessions = [session["calls"] for proxy in done.json for session in proxy["sessions"]]
            groups = [group for proxy in done.json for group in proxy["groups"]]
            of_servers = [instance["calls"] for group in groups for instance in group["instances"]]
            return sessions == [made] and sum(of_servers) == made

        done = await wait_until(lambda: cli.run("status"), is_known)

        (proxy,) = done.json
        assert (proxy["kind"], proxy["socket"]) == ("stdio", "")
        (session,) = proxy["sessions"]
        assert (session["client"], session["version"], session["directory"]) == ("test", "1", "")
        assert session["since"] >= proxy["started_at"] - 5
        groups = {each["name"]: each for each in proxy["groups"]}
        (first,), (second,) = groups["full"]["instances"], groups["tiny"]["instances"]
        assert (first["calls"], second["calls"]) == (3, 1)
        for each in (first, second):
            if HAS_MEMORY:
                assert parent_of(each["pid"]) == program.process.pid
                assert 1 << 20 < each["memory"] <= proxy["memory"]["servers"]
            assert 0 < each["p50_ms"] <= each["p95_ms"]
            assert (each["audience"], each["clients"]) == ("test 1, 1 session", ["test 1"])
            assert (each["state"], each["reason"], each["failures"], each["in_flight"]) == ("connected", "", 0, 0)
        assert first["pid"] != second["pid"]


@pytest.mark.posix_only("on Windows a silent proxy is taken to have ended")
async def test_a_proxy_that_was_killed_is_recognised_and_forgotten(cli: CliRunner, state: Path) -> None:
    async with running(str(cli.config)) as program:
        await program.initialize()
        await wait_until(lambda: cli.run("status"), lambda done: len(done.json) == 1)
        program.process.kill()
        await program.process.wait()
        assert len(list((state / "running").iterdir())) == 1
        assert (await asyncio.to_thread(cli.run, "status")).json == []
        assert list((state / "running").iterdir()) == []


def parent_of(pid: int) -> int:
    done = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout)


# --- what a person sees --------------------------------------------------------------------------------------


def test_without_a_proxy_status_says_so(cli: CliRunner) -> None:
    done = cli.run("status")
    assert (done.code, done.json) == (0, [])
    assert "dynamic-mcp is not running; it starts with your AI tool" in cli.run_on_terminal("status").out


def test_a_group_with_one_instance_is_one_line(cli: CliRunner, state: Path) -> None:
    one = instance(clients=[CLAUDE] * 3, in_flight=2, p50_ms=12.2, p95_ms=1234.5)
    publish(state, daemon(group("files", one, calls=120, failures=1, in_flight=2), sessions=3))
    lines = shown(cli)
    header = lines.index(next(line for line in lines if line.startswith("GROUP")))
    assert cells(lines[header]) == ["GROUP", "TOOLS", "CALLS", "ERRORS", "P50", "P95", "SESSIONS", "STATE"]
    assert cells(lines[header + 1]) == ["files", "14", "120", "1", "12 ms", "1.2 s", "3", "connected, 2 in flight"]
    assert "".join(lines[header + 2 :]).strip() == ""


def test_a_group_with_several_instances_has_a_line_for_each_and_their_sum(cli: CliRunner, state: Path) -> None:
    several = [
        instance(clients=[CLAUDE] * 2, calls=100, p50_ms=0.42, p95_ms=8.0),
        instance("cursor 1.0", is_exclusive=True, calls=15, failures=1, state="failed", reason="it broke"),
    ]
    publish(state, daemon(group("files", *several, calls=120, failures=3)))
    lines = shown(cli)
    start = lines.index(next(line for line in lines if line.startswith("files")))
    assert cells(lines[start]) == ["files", "14", "120", "3", "3", "connected"]
    assert lines[start + 1].startswith("  claude-code 2.1 ")
    assert cells(lines[start + 1]) == ["claude-code 2.1", "100", "0", "0.4 ms", "8.0 ms", "2", "connected"]
    assert cells(lines[start + 2]) == ["cursor 1.0", "15", "1", "1", "failed, not shared"]
    assert lines[start + 3].strip() == "files, cursor 1.0: it broke"


def test_a_daemon_lists_its_sessions_and_its_socket(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(group()))
    lines = shown(cli)
    assert lines[0] == "/c.json"
    assert lines[1].startswith(f"  daemon, process {os.getpid()}, since 20")
    assert lines[2] == "  socket /run/d.sock"
    start = lines.index(next(line for line in lines if line.startswith("SESSION")))
    assert cells(lines[start]) == ["SESSION", "SINCE", "CALLS", "DIRECTORY"]
    for line in lines[start + 1 : start + 3]:
        assert re.fullmatch(r"claude-code 2.1 +20\d\d-\d\d-\d\d \d\d:\d\d +12 +/work/app", line.rstrip())


def test_a_config_that_cannot_be_used_is_said_with_the_version_that_runs(cli: CliRunner, state: Path) -> None:
    status = daemon(group("files", instance()))
    refused = msgspec.structs.replace(
        status,
        config_since=1_800_000_000.0,
        config_error="`line 2, column 1`: is not JSON",
        config_error_since=1_800_003_600.0,
    )
    publish(state, refused)

    lines = "\n".join(shown(cli))

    time = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.search(f"the file on disk has been refused since {time}: `line 2, column 1`: is not JSON", lines)
    assert re.search(f"its version of {time} goes on running", lines)

    publish(state, status)
    assert "refused" not in "\n".join(shown(cli))


async def test_a_broken_file_shows_in_the_status_until_it_is_repaired(cli: CliRunner, state: Path) -> None:
    good = cli.config.read_bytes()

    def error_of(done: CommandResult) -> str | None:
        return done.json[0]["config_error"] if done.json else None

    async with running(str(cli.config)) as program:
        await program.initialize()
        await wait_until(lambda: cli.run("status"), lambda done: error_of(done) == "")
        cli.config.write_text("{", encoding="utf-8")

        done = await wait_until(lambda: cli.run("status"), lambda done: bool(error_of(done)))
        assert "is not JSON" in done.json[0]["config_error"]
        assert 0 < done.json[0]["config_since"] <= done.json[0]["config_error_since"]

        cli.config.write_bytes(good)
        await wait_until(lambda: cli.run("status"), lambda done: error_of(done) == "")


def test_a_daemon_without_sessions_says_so(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(group(), sessions=0))
    assert "  no open sessions" in shown(cli)


def test_a_proxy_over_http_has_its_url_and_the_first_of_its_many_sessions(cli: CliRunner, state: Path) -> None:
    sessions = [SessionStatus(client=f"client-{n}", transport="http", calls=1) for n in range(60)]
    url = "https://mcp.example.com:8808/mcp"
    metrics = "http://127.0.0.1:9464/metrics"
    status = ProxyStatus(config="/c.json", kind="http", url=url, metrics=metrics, sessions=sessions, groups=[group()])
    publish(state, status)
    lines = shown(cli)
    assert lines[1].startswith(f"  HTTP server, process {os.getpid()}, since 20")
    assert lines[2:4] == [f"  HTTP at {url}", f"  metrics at {metrics}"]
    assert sum(line.startswith("client-") for line in lines) == 50
    assert "  and 10 more" in lines
    (proxy,) = cli.run("status").json
    assert [session["transport"] for session in proxy["sessions"]] == ["http"] * 60


def test_sessions_say_over_what_they_came_where_that_differs(cli: CliRunner, state: Path) -> None:
    sessions = [SessionStatus(client=f"client-{over}", transport=over) for over in ("socket", "http", "sse")]
    publish(state, ProxyStatus(config="/c.json", kind="daemon", socket="/run/d.sock", sessions=sessions))
    lines = shown(cli)
    start = lines.index(next(line for line in lines if line.startswith("SESSION")))
    assert cells(lines[start])[:3] == ["SESSION", "OVER", "SINCE"]
    assert [cells(line)[1] for line in lines[start + 1 : start + 4]] == ["window", "HTTP", "HTTP+SSE"]


def test_a_proxy_on_stdio_names_its_client_in_one_line(cli: CliRunner, state: Path) -> None:
    session = SessionStatus(client="ide", version="1.2", calls=1)
    publish(state, ProxyStatus(config="/c.json", sessions=[session], groups=[group("files", instance())]))
    lines = shown(cli)
    assert ", for ide 1.2 (1 call), version 0.2.0" in lines[1]
    assert not any("SESSION" in line for line in lines)


def test_ten_windows_and_five_servers_fit_into_a_hundred_columns(cli: CliRunner, state: Path) -> None:
    own = [instance(is_exclusive=True, calls=1000, p50_ms=250.0, p95_ms=900.0, in_flight=1) for _ in range(10)]
    shared = instance(clients=[CLAUDE] * 10, calls=12345, failures=123, p50_ms=45.0, p95_ms=12345.0)
    groups = [group(f"server-{n}", shared, calls=12345, failures=123) for n in range(4)]
    publish(state, daemon(*groups, group("playwright", *own, calls=10000), sessions=10))
    lines = shown(cli, width=100)
    assert sum(line.startswith("claude-code 2.1") for line in lines) == 10
    assert sum(line.startswith("server-") for line in lines) == 4
    assert sum(line.rstrip().endswith("connected, 1 in flight, not shared") for line in lines) == 10
    assert max(map(len, lines)) <= 100


def test_a_narrow_terminal_gets_the_columns_that_matter_most(cli: CliRunner, state: Path) -> None:
    one = instance(clients=[CLAUDE] * 3, p50_ms=12.2, p95_ms=1234.5)
    publish(state, daemon(group("a-server-with-a-longer-name", one, calls=120, failures=1)))
    lines = shown(cli, width=72)
    header = next(line for line in lines if line.startswith("GROUP"))
    assert cells(header) == ["GROUP", "CALLS", "ERRORS", "P95", "SESSIONS", "STATE"]
    assert re.search(r"^a-server-with-a-longer-name +120 +1 +1.2 s +3 +connected *$", "\n".join(lines), re.M)


def test_a_file_of_an_older_version_is_shown_as_well(cli: CliRunner, state: Path) -> None:
    old = {"name": "files", "state": "connected", "reason": "", "tools": 1, "in_flight": 0, "calls": 2, "failures": 1}
    entry = {"config": "/c.json", "clients": ["ide"], "groups": [old]}
    file = {"pid": os.getpid(), "version": "0.1.0", "started_at": 1_800_000_000.0, "entry": entry}
    (state / "running").mkdir(parents=True)
    (state / "running" / "1.json").write_text(json.dumps(file), encoding="utf-8")
    lines = shown(cli)
    assert ", for ide, version 0.1.0" in lines[1]
    assert cells(lines[3]) == ["files", "1", "2", "1", "connected"]
    (proxy,) = cli.run("status").json
    assert (proxy["kind"], proxy["sessions"], proxy["groups"][0]["instances"]) == ("stdio", [], [])


# --- memory --------------------------------------------------------------------------------------------------


def test_memory_is_that_of_a_process_and_of_its_whole_family() -> None:
    table = {
        1: ProcessInfo(0, 5),
        2: ProcessInfo(1, 10),
        3: ProcessInfo(2, 20),
        4: ProcessInfo(3, 40),
        9: ProcessInfo(1, 80),
    }
    assert measure_memory(2, table) == MemoryUse(proxy=10, servers=60)
    assert measure_tree(3, table) == 60
    assert measure_memory(7, table) is None
    assert measure_tree(7, table) == 0


def test_a_process_that_the_proxy_did_not_start_is_not_taken_for_its_server(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(group("files", instance(pid=1))))
    (proxy,) = cli.run("status").json
    assert [each["memory"] for each in proxy["groups"][0]["instances"]] == [None]


# --- watching ------------------------------------------------------------------------------------------------


# Far more than a watch prints before what a test waits for.
_ENOUGH_BYTES = 1 << 17


class Watch:
    """A `status --watch` on a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    @property
    def output(self) -> bytes:
        return self.terminal.output

    def read_until(self, *wanted: bytes) -> None:
        """Read until this has been printed, one after the other."""
        at = 0
        for each in wanted:
            while (found := self.output.find(each, at)) < 0:
                assert self.terminal.read(), f"{each!r} is not printed"
                assert len(self.output) < _ENOUGH_BYTES, f"{each!r} is not printed"
            at = found + len(each)


@contextlib.contextmanager
def watching(cli: CliRunner, *, rows: int = 40) -> Iterator[Watch]:
    environment = cli.environment(TERM="xterm-256color")
    with open_terminal("status", "--watch", env=environment, cwd=cli.folder, rows=rows, columns=100) as terminal:
        yield Watch(terminal)


def test_watching_repaints_in_place_until_it_is_interrupted(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(group("files", instance(), calls=5)))
    with watching(cli) as watch:
        watch.read_until(b"\x1b[H", b"CALLS/S", b"\x1b[J", b"\x1b[H")
        publish(state, daemon(group("other", instance(), calls=5)))
        watch.read_until(b"other", b"\x1b[J")
        watch.terminal.types(INTERRUPT)
        assert watch.terminal.ends() == 130
        assert b"\x1b[2J" not in watch.output, "clearing the screen flickers"
        assert watch.output.endswith(b"interrupted\r\n")


def test_watching_shows_no_more_than_the_screen_has_room_for(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(*(group(f"server-{n}") for n in range(50))))
    with watching(cli, rows=20) as watch:
        watch.read_until(b"\x1b[H", b" more lines", b"\x1b[J")
        frame = watch.output[: watch.output.index(b"\x1b[J")]
        assert frame.count(b"\n") == 19
        assert b"server-49" not in frame


def test_watching_without_a_proxy_says_so_in_place(cli: CliRunner, state: Path) -> None:
    with watching(cli) as watch:
        painted = b"\x1b[H\x1b[Kdynamic-mcp is not running"
        watch.read_until(painted, b"\x1b[J", painted, b"\x1b[J")


async def test_watching_without_a_terminal_prints_each_state_anew(cli: CliRunner, state: Path) -> None:
    publish(state, daemon(group("files", calls=5)))
    process = await cli.start("status", "--watch")
    assert process.stdout is not None
    data = b""
    async with asyncio.timeout(BOUND_S):
        while data.count(b'"config": "/c.json"') < 2:
            data += await process.stdout.read(65536)
        process.terminate()
        rest, _ = await process.communicate()
    assert b"\x1b" not in data + rest
    state_1, _ = json.JSONDecoder().raw_decode(data.decode())
    assert state_1[0]["groups"][0]["calls"] == 5


def counted(calls: int, started_at: float = 1.0) -> RunningProxy:
    return RunningProxy(pid=1, started_at=started_at, status=ProxyStatus(groups=[group("files", calls=calls)]))


@pytest.mark.parametrize(
    ("seen", "rate"),
    [
        ([(0.0, 10)], None),
        ([(0.0, 10), (2.0, 16)], 3.0),
        ([(0.0, 10), (1.0, 10), (2.0, 16), (3.0, 16)], 2.0),
        ([(0.0, 10), (WINDOW_S, 20), (2 * WINDOW_S, 20), (3 * WINDOW_S, 20)], 0.0),
        ([(0.0, 100), (1.0, 3), (2.0, 5)], 2.0),
    ],
    ids=["seen once", "seen twice", "published every other time", "quiet again", "started anew"],
)
def test_a_rate_is_that_of_the_last_seconds(seen: list[tuple[float, int]], rate: float | None) -> None:
    rates = CallRates()
    for at, calls in seen:
        rates.note([counted(calls)], at)
    assert rates.rate(counted(0), "files") == rate


def test_another_proxy_with_the_same_pid_has_a_rate_of_its_own() -> None:
    rates = CallRates()
    rates.note([counted(10)], 0.0)
    rates.note([counted(90, started_at=2.0)], 1.0)
    assert rates.rate(counted(0), "files") is None
    assert rates.rate(counted(0, started_at=2.0), "files") is None
