"""Commands where the daemon of the config runs: they use its servers, and print what they print without it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.face import window
from dynamic_mcp.face.listener import DaemonListener
from dynamic_mcp.system import private_socket
from tests import signals
from tests.cli.commands import CliRunner
from tests.own_process import Process
from tests.program import BOUND_S, Json, full, odd, running, with_noted_input, with_noted_starts
from tests.terminal import ENTER, strip_escapes, terminal
from tests.upstreams.auth_server import AuthServer

DAEMON = {"daemon": {"linger": "5min"}}


@pytest.fixture(autouse=True)
def _own_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:  # shorter than the path of a test: sockets have a limit
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def beside(cli: CliRunner) -> Iterator[CliRunner]:
    """A config with the servers `full` and `odd`, whose daemon runs once it is started, and stops at the end."""
    configure(cli, {"full": full(description="Everything that there is"), "odd": odd()})
    yield cli
    assert cli.run("daemon", "stop").code == 0


def configure(cli: CliRunner, servers: Json, **settings: Json) -> None:
    cli.configure(servers, settings={**DAEMON, **settings})


async def run_beside(cli: CliRunner, *args: str) -> tuple[int | None, str, str]:
    """Run a command while this event loop serves a window."""
    done = await asyncio.to_thread(cli.run, *args)
    return done.code, done.out, done.err


async def test_a_call_beside_a_window_uses_the_windows_server_and_starts_none(beside: CliRunner) -> None:
    starts = beside.folder / "starts"
    configure(beside, {"odd": with_noted_starts(odd(), starts)})
    async with running(str(beside.config), env=beside.environment(), cwd=beside.folder) as window:
        await window.initialize()
        process = (await window.call("odd", "pid"))["content"][0]["text"]

        called = await run_beside(beside, "call", "odd", "pid")
        alone = await run_beside(beside, "call", "odd", "pid", "--alone")

        assert called == (0, f"{process}\n", "")
        assert alone[0] == 0
        assert alone[1] != called[1]
        assert starts.read_text(encoding="utf-8") == "started\n" * 2
        assert (await window.call("odd", "pid"))["content"][0]["text"] == process


def test_one_call_after_the_other_uses_the_same_server(beside: CliRunner) -> None:
    assert beside.run("daemon", "start").code == 0
    first, second = (beside.run("call", "odd", "pid") for _ in range(2))
    assert first.code == 0
    assert first.out == second.out


def test_a_call_from_another_directory_uses_a_server_that_was_started_there(beside: CliRunner) -> None:
    elsewhere = CliRunner(beside.folder / "elsewhere")
    elsewhere.folder.mkdir()
    assert beside.run("daemon", "start").code == 0
    facts = [
        runner.run("call", "odd", "process", "-c", str(beside.config), "--json").json
        for runner in (beside, elsewhere, elsewhere)
    ]
    here, there, again = [json.loads(each["content"][0]["text"]) for each in facts]
    assert (here["cwd"], there["cwd"]) == (str(beside.folder), str(elsewhere.folder))
    assert here["pid"] != there["pid"]
    assert there == again


async def test_a_daemon_that_ends_before_it_has_greeted_is_done_without(beside: CliRunner) -> None:
    path = private_socket.place(os.environ, window.socket_name(str(beside.config)))
    connections = 0

    class Ends(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal connections
            connections += 1
            transport.close()

    listener = DaemonListener(Path(path))
    assert await listener.open(Ends)
    called = await run_beside(beside, "call", "full", "echo", "text=a")
    listener.close()

    assert called == (0, "a\n", "")
    assert connections == 1


def test_a_call_of_one_server_starts_no_other(beside: CliRunner) -> None:
    starts = beside.folder / "starts"
    configure(beside, {"odd": odd(), "full": {**with_noted_starts(full(), starts), "connect": "eager"}})
    assert beside.run("daemon", "start").code == 0
    assert beside.run("call", "odd", "pid").code == 0
    assert not starts.exists()


def test_without_a_daemon_a_command_starts_none(beside: CliRunner) -> None:
    assert beside.run("call", "odd", "pid").code == 0
    assert beside.run("daemon", "status").code == 1


COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "what there is": [
        ("tools",),
        ("tools", "full", "--detail", "names"),
        ("tools", "--query", "echo a text"),
        ("tools", "full", "--query", "progress", "--detail", "full"),
        ("resources",),
        ("prompts", "full"),
        ("stats",),
    ],
    "what is read": [
        ("read", "full://text"),
        ("prompt", "full", "greet", "city=Oslo"),
        ("call", "full", "echo", "text=two\nlines"),
        ("call", "full", "echo", '{\n  "text": "over two lines"\n}', "--json"),
        ("call", "full", "echo", "text=words", "--select", "$.a", "--save", "saved"),
    ],
    "what a server says on the way": [
        ("call", "full", "progress", "steps=2"),
        ("call", "full", "log", "level=error", "logger=core"),
        ("call", "full", "log", "level=debug", "logger=core"),
    ],
    "what is not there": [
        ("tools", "nowhere"),
        ("read", "nowhere://at/all"),
        ("prompt", "full", "nothing"),
        ("call", "full", "ecko", "text=a"),
        ("call", "nowhere", "echo"),
    ],
    "what fails": [
        ("call", "full", "fail"),
        ("call", "full", "fail", "--json"),
        ("call", "full", "echo", "txt=a"),
        ("call", "full", "echo", '{"text": 1}'),
        ("call", "full", "crash"),
    ],
}


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=COMMANDS)
def test_a_command_prints_and_ends_the_same_with_a_daemon_as_without(
    beside: CliRunner, commands: list[tuple[str, ...]], subtests: pytest.Subtests
) -> None:
    alone = {command: beside.run(*command) for command in commands}
    assert beside.run("daemon", "start").code == 0

    for command, without in alone.items():
        with subtests.test(" ".join(command)):
            with_daemon = beside.run(*command)

            assert with_daemon.code == without.code
            assert with_daemon.out == without.out
            assert _without_file_names(with_daemon.err) == _without_file_names(without.err)

    assert beside.run("daemon", "status").code == 0


def _without_file_names(err: str) -> str:
    return re.sub(r"saved as \S+", "saved", err)


def test_a_long_result_is_printed_whole_whatever_the_clients_of_the_daemon_see(beside: CliRunner) -> None:
    configure(beside, {"full": full()}, result_limit=1000, split_calls=True)
    assert beside.run("daemon", "start").code == 0
    text = "x" * 50_000
    assert beside.run("call", "full", "echo", "-", stdin=json.dumps({"text": text})).out == f"{text}\n"


def test_filters_and_features_of_the_config_hold_for_commands_beside_a_daemon(beside: CliRunner) -> None:
    configure(beside, {"full": full(tools={"include": ["echo"]}, features={"prompts": False})})
    assert beside.run("daemon", "start").code == 0
    assert [tool["name"] for tool in beside.run("tools").json] == ["echo"]
    assert beside.run("call", "full", "fail").code == 2
    assert beside.run("prompt", "full", "greet").code == 2


def test_a_timeout_of_the_command_line_counts_for_this_call_only(beside: CliRunner) -> None:
    assert beside.run("daemon", "start").code == 0
    done = beside.run("call", "full", "wait", "key=k", "--timeout", "50ms")
    assert (done.code, done.out) == (5, "")
    assert "`wait` was not answered within 0.05 s" in done.err
    assert beside.run("call", "full", "echo", "text=a").out == "a\n"


def test_a_server_that_does_not_start_is_exit_code_5_with_its_reason(beside: CliRunner) -> None:
    configure(beside, {"odd": odd("exit_at_start"), "full": full()})
    assert beside.run("daemon", "start").code == 0
    done = beside.run("call", "odd", "echo")
    assert (done.code, done.out) == (5, "")
    assert "the server exited with code 3; stderr: odd: cannot start | odd: ODD_TOKEN is not set" in done.err
    assert beside.run("tools", "--partial").code == 0
    assert beside.run("tools").code == 5


async def test_a_login_that_is_needed_is_exit_code_4(beside: CliRunner) -> None:
    async with AuthServer() as server:
        configure(beside, {"guarded": {"url": server.mcp_url}})
        without = await run_beside(beside, "call", "guarded", "echo")
        assert (await run_beside(beside, "daemon", "start"))[0] == 0
        with_daemon = await run_beside(beside, "call", "guarded", "echo")
    assert without[0] == 4, without
    assert with_daemon == without


def test_a_group_that_was_added_a_moment_ago_is_waited_for(beside: CliRunner) -> None:
    configure(beside, {"full": full()})
    assert beside.run("daemon", "start").code == 0
    assert beside.run("call", "full", "echo", "text=a").code == 0
    configure(beside, {"full": full(), "odd": odd()})
    assert beside.run("call", "odd", "pid").code == 0
    assert beside.run("daemon", "status").code == 0


async def test_an_ai_client_is_not_answered_what_only_commands_ask(beside: CliRunner) -> None:
    async with running(str(beside.config), env=beside.environment(), cwd=beside.folder) as window:
        await window.initialize()
        for group in ("full", "odd"):  # who answers an unknown method depends on what is known of both
            await window.call(group, "echo", {"text": "a"})
        params = {"group": "odd", "kinds": ["TOOLS"], "groups": {}, "split_calls": False}
        unknown = await window.request("dynamic-mcp/nothing", params)
        for method in ("view", "catalog", "reread", "ping", "sessions"):
            answer = await window.request(f"dynamic-mcp/{method}", params)
            assert answer["error"]["code"] == -32601
            assert answer["error"]["message"] == unknown["error"]["message"].replace("nothing", method)


async def test_a_window_sees_nothing_of_a_command(beside: CliRunner) -> None:
    async with running(str(beside.config), env=beside.environment(), cwd=beside.folder) as window:
        await window.initialize()
        await window.call("full", "echo", {"text": "a"})
        assert (await run_beside(beside, "call", "full", "progress", "steps=2"))[0] == 0
        assert (await run_beside(beside, "call", "full", "log", "level=error", "logger=core"))[0] == 0

        assert (await window.request("ping"))["result"] == {}
        assert window.heard("notifications/progress") == []
        assert window.heard("notifications/message") == []


async def test_a_daemon_that_is_killed_in_a_call_is_told_with_exit_code_5(beside: CliRunner) -> None:
    assert beside.run("daemon", "start").code == 0
    process = await waiting_call(beside)
    (status,) = beside.run("status").json
    signals.kill(status["pid"])
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (5, b"")
    assert b"error: dynamic-mcp ended while this request was in flight; `tools/call` may have run" in err


async def test_ctrl_c_cancels_the_call_at_the_server_which_goes_on_running(beside: CliRunner) -> None:
    heard = beside.folder / "heard.jsonl"
    configure(beside, {"full": with_noted_input(full(), heard)})
    assert beside.run("daemon", "start").code == 0
    process = await waiting_call(beside)
    signals.interrupt(process.pid)
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"interrupted\n")
    assert beside.run("call", "full", "echo", "text=on").out == "on\n"
    sent = [json.loads(each) for each in heard.read_text(encoding="utf-8").splitlines()]
    assert [each["method"] for each in sent].count("initialize") == 1
    (call,) = [each for each in sent if each.get("method") == "tools/call" and each["params"]["name"] == "wait"]
    cancelled = [each["params"] for each in sent if each.get("method") == "notifications/cancelled"]
    assert {"requestId": call["id"], "reason": "interrupted at the terminal"} in cancelled


async def waiting_call(cli: CliRunner) -> Process:
    """Start a call that is not answered, and wait until its server has it."""
    process = await cli.start("call", "full", "wait", "key=k")
    assert process.stderr is not None
    async with asyncio.timeout(BOUND_S):
        assert (await process.stderr.readline()).startswith(b"progress 0/")
    return process


def test_logs_shows_what_the_daemon_of_the_config_has_logged(beside: CliRunner) -> None:
    assert beside.run("daemon", "start").code == 0
    assert beside.run("call", "odd", "pid").code == 0
    ends_at = time.monotonic() + BOUND_S  # the daemon writes its log in a thread, perhaps after the answer
    while time.monotonic() < ends_at:
        shown = beside.run("logs", "odd", "-c", str(beside.config)).out
        if any("group odd connected" in json.loads(line)["message"] for line in shown.splitlines()):
            return
    pytest.fail(shown)


def test_doctor_examines_a_server_that_runs_in_the_daemon_as_it_runs(beside: CliRunner) -> None:
    starts = beside.folder / "starts"
    configure(beside, {"odd": with_noted_starts(odd(), starts), "full": full()})
    assert beside.run("daemon", "start").code == 0
    assert beside.run("call", "odd", "pid").code == 0

    done = beside.run("doctor")

    assert done.code == 0
    (daemon,) = [finding for finding in done.json["findings"] if finding["where"] == "daemon"]
    assert daemon["what"].startswith("runs: version ")
    assert ", 0 sessions, socket " in daemon["what"]
    warm, cold = done.json["groups"]
    assert (warm["group"], warm["runs_in_daemon"], warm["is_up"]) == ("odd", True, True)
    assert warm["tools"] > 10
    assert (cold["group"], cold["runs_in_daemon"], cold["server"]) == ("full", False, "full 1")
    assert starts.read_text(encoding="utf-8") == "started\n"
    assert "✓ odd: runs in the daemon, " in strip_escapes(beside.run_on_terminal("doctor").out)

    alone = beside.run("doctor", "--alone").json
    assert [group["runs_in_daemon"] for group in alone["groups"]] == [False, False]
    assert starts.read_text(encoding="utf-8") == "started\n" * 2


def test_doctor_says_whether_a_daemon_that_the_config_asks_for_runs(beside: CliRunner) -> None:
    configure(beside, {"full": full()})
    assert {"level": "note", "where": "daemon", "what": "does not run; the first client starts it"} in beside.run(
        "doctor"
    ).json["findings"]


def test_a_fresh_daemon_shows_the_groups_of_its_config(beside: CliRunner, state: Path) -> None:
    assert beside.run("daemon", "start").err == f"started the daemon of `{beside.config}`\n"
    assert beside.run("daemon", "start").err == f"the daemon of `{beside.config}` was already running\n"
    while not (shown := beside.run("status", "-c", str(beside.config)).json):
        pass
    assert [(group["name"], group["state"]) for group in shown[0]["groups"]] == [
        ("full", "starts with a session"),
        ("odd", "starts with a session"),
    ]
    terminal = strip_escapes(beside.run_on_terminal("status").out)
    assert re.search(r"full +0 +0 +0 +starts with a session", terminal)
    assert "no groups yet" not in terminal


def test_a_call_beside_the_daemon_is_asked_about_at_the_terminal(beside: CliRunner) -> None:
    configure(beside, {"full": full(approve=["record"])}, audit={"path": "audit"})
    assert beside.run("daemon", "start").code == 0
    with terminal(beside.folder, "call", "full", "record", "a=1") as person:
        person.shows("Allow tool `record` of `full`?")
        person.shows("your answer (n, y, h, s; ")
        person.types(b"y" + ENTER)
        person.shows("tools/call")
        assert person.ends() == 0
    (line,) = [
        found
        for file in (beside.folder / "audit").glob("????-??-??.jsonl")
        for text in file.read_text(encoding="utf-8").splitlines()
        if (found := json.loads(text))["event"] == "call"
    ]
    assert (line["client"], line["approved_by"]) == ("dynamic-mcp call", "user")
