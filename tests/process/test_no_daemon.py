"""Where no daemon can be had, a window serves alone and says so once: at the start, and after its daemon has died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hosting
from tests.hosting import daemon_log, daemons
from tests.process.neighbours import assert_alive
from tests.process.windows import pid_of, save, socket_of, windows_of
from tests.program import full, odd, running, text_of

pytestmark = [
    pytest.mark.daemon_only,
    pytest.mark.posix_only(
        "they look for daemons in /proc and signal them; face/test_shared_daemon.py is for Windows too"
    ),
]

WARNING = "this client is served alone, by servers of its own"
# Ends every daemon at its start; Python imports it by itself.
NO_DAEMON = "import os, sys\nif '--ready' in sys.orig_argv: os._exit(3)\n"


@pytest.fixture(autouse=True)
def _may_serve_alone(_hosting: None) -> None:
    hosting.hosting.may_serve_alone = True


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with which `daemon run` fails while `sitecustomize.py` is there."""
    folder = tmp_path / "failing"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_DAEMON)
    return folder


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock under which a daemon starts, in a process that is stopped."""
    lock = socket_of(file).with_suffix(".start")
    lock.parent.mkdir(mode=0o700, exist_ok=True)
    code = (
        "import sys, time; from pathlib import Path; from dynamic_mcp.system.paths import FileLock\n"
        "assert FileLock(Path(sys.argv[1])).try_acquire(); print('held', flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGSTOP)
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_daemon_that_fails_at_its_start_leaves_the_window_alone_with_one_warning(
    tmp_path: Path, failing: Path
) -> None:
    async with running(str(save(tmp_path, {"odd": odd()})), env={"PYTHONPATH": str(failing)}) as program:
        await program.initialize()
        await assert_alive(program, "odd")
        assert not daemons()
        program.end_input()
        assert await program.ends() == 0
    assert daemon_log().count(WARNING) == 1


@pytest.mark.full
async def test_a_start_that_another_process_holds_up_leaves_the_window_alone_with_one_warning(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    with locked(file):
        async with running(str(file)) as program:
            await program.initialize()
            await assert_alive(program, "odd")
            assert not daemons()
    assert daemon_log().count(WARNING) == 1
    async with windows_of(file, 1) as (after,):
        await assert_alive(after, "odd")
        assert daemons()


async def test_a_window_whose_daemon_died_goes_on_alone_where_no_other_can_be_had(
    tmp_path: Path, failing: Path
) -> None:
    blocked = failing / "sitecustomize.py"
    blocked.rename(failing / "later.py")
    file = save(tmp_path, {"b": full("--name", "b"), "odd": odd()})
    async with running(str(file), env={"PYTHONPATH": str(failing)}) as program:
        await program.initialize(capabilities={"elicitation": {}})
        uri = "full://text"
        await program.request("logging/setLevel", {"level": "error"})
        await program.request("resources/subscribe", {"uri": uri})
        server = await pid_of(program, "odd")
        (failing / "later.py").rename(blocked)
        daemon = program.host
        call = asyncio.create_task(program.call("odd", "hold", {"key": "k"}))
        await asyncio.sleep(0)  # the call is written first, so that the daemon has it once the ping is answered
        await program.request("ping")
        os.kill(daemon, signal.SIGKILL)

        assert "may have run" in text_of(await call)
        assert await pid_of(program, "odd") != server
        assert text_of(await program.call("b", "log", {"level": "debug"})) == "error"
        while text_of(await program.call("b", "update", {"uri": uri})) != uri:
            pass  # the subscription is renewed beside what the client asks
        assert (await program.hears("notifications/resources/updated"))["params"]["uri"] == uri
        assert not daemons()
        program.end_input()
        assert await program.ends() == 0
        program.assert_answered_once()
    assert daemon_log().count(WARNING) == 1


@pytest.mark.full
async def test_a_daemon_that_hangs_leaves_a_new_window_alone_and_gets_nothing_of_its_client(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (first,):
        await assert_alive(first, "odd")
        hung = first.host
        os.kill(hung, signal.SIGSTOP)
        try:
            async with running(str(file)) as program:
                await program.initialize()
                await assert_alive(program, "odd")
                assert WARNING in daemon_log()
                program.end_input()
                assert await program.ends() == 0
        finally:
            os.kill(hung, signal.SIGCONT)
        await assert_alive(first, "odd")
