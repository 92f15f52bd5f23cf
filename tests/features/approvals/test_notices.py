"""How a person learns that a call waits: which programs are started, with what, and what they cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.approvals.notices import ApprovalNotices, find_desktop_command
from tests.features.approvals.queue_server import waiting

HOSTILE = waiting(
    client='--icon=x\n"; rm -rf ~; $(id)', name="<img src=x>\\n\x1b[2J", arguments=b'{"password": "hunter22"}'
)
# Notes its arguments, its input and its variables, all at once.
PROGRAM = """#!{python}
import json, os, pathlib, sys
noted = {{"argv": sys.argv[1:], "stdin": sys.stdin.read(), "group": os.getpgid(0) == os.getpid()}}
file = pathlib.Path({folder!r}) / f"{{os.getpid()}}.json"
file.with_suffix(".new").write_text(json.dumps(noted))
file.with_suffix(".new").rename(file)
"""
_BUSY_TURNS = 20
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts")


def make_program(folder: Path, name: str) -> Path:
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    (folder / "noted").mkdir(exist_ok=True)
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder / "noted")))
    program.chmod(0o755)
    return program


async def read_notes(folder: Path, number: int) -> list[dict[str, object]]:
    """Return what so many programs have noted."""
    async with asyncio.timeout(20):
        while len(files := await asyncio.to_thread(lambda: list((folder / "noted").glob("*.json")))) < number:
            pass
    return [json.loads(file.read_text()) for file in files]


async def test_a_command_reads_what_waits_without_its_secrets(tmp_path: Path) -> None:
    program = make_program(tmp_path, "hook")
    notices = ApprovalNotices()
    notices.notify(Approval(notify=Notify(desktop=False, command=(str(program), "-x"))), HOSTILE)
    (noted,) = await read_notes(tmp_path, 1)
    await notices.close()
    read = json.loads(str(noted["stdin"]))
    assert (noted["argv"], noted["group"]) == (["-x"], True)
    assert (read["id"], read["client"]) == (HOSTILE.id, HOSTILE.client)
    assert read["arguments"] == {"password": "*** (8 characters hidden)"}
    assert str(noted["stdin"]).count("\n") == 1


def test_a_command_that_has_ended_before_it_is_told_anything_is_no_bug_on_uvloop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    uvloop = pytest.importorskip("uvloop", reason="there is no uvloop on this system")

    async def main() -> None:
        notices = ApprovalNotices()
        notices.notify(Approval(notify=Notify(desktop=False, command=("true",))), HOSTILE)
        for _ in range(_BUSY_TURNS):
            await asyncio.sleep(0)
            time.sleep(0.01)  # noqa: ASYNC251 - the program is faster than a turn of a busy loop
        await notices.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert not caplog.records


async def test_the_desktop_shows_who_wants_what_as_plain_text(tmp_path: Path) -> None:
    make_program(tmp_path, "notify-send")
    environment = {"PATH": str(tmp_path / "bin"), "DISPLAY": ":0"}
    notices = ApprovalNotices(environment, platform="linux")
    notices.notify(Approval(), HOSTILE)
    (noted,) = await read_notes(tmp_path, 1)
    await notices.close()
    assert isinstance(noted["argv"], list)
    *_, dashes, title, text = noted["argv"]
    assert (dashes, title) == ("--", "A call waits for your approval")
    assert text.startswith("By --icon=x &quot;; rm -rf ~; $(id): &lt;img src=x&gt;\\\\n [2J of files.")
    assert "hunter22" not in text


def test_scripts_have_no_foreign_text_in_them(tmp_path: Path) -> None:
    make_program(tmp_path, "osascript")
    powershell = tmp_path / "System32" / "WindowsPowerShell" / "v1.0" / "powershell.exe"
    powershell.parent.mkdir(parents=True)
    powershell.touch()
    for platform in ("darwin", "win32"):
        variables = {"PATH": str(tmp_path / "bin"), "SYSTEMROOT": str(tmp_path)}
        argv = find_desktop_command("By $(evil)", variables, platform)
        scripts = [word for option, word in pairwise(argv) if option in ("-e", "-Command")]
        assert scripts
        assert "evil" not in "".join(scripts)


def test_a_powershell_of_the_current_directory_or_the_path_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_program(tmp_path, "powershell.exe")
    monkeypatch.chdir(tmp_path / "bin")
    assert find_desktop_command("x", {"PATH": str(tmp_path / "bin"), "SystemRoot": str(tmp_path)}, "win32") == ()


@pytest.mark.parametrize("changes", [{}, {"DISPLAY": ":0", "CI": "1"}, {"DISPLAY": ":0", "PATH": "/no"}])
def test_where_there_is_no_desktop_nothing_is_started(tmp_path: Path, changes: dict[str, str]) -> None:
    make_program(tmp_path, "notify-send")
    assert find_desktop_command("x", {"PATH": str(tmp_path / "bin"), **changes}, "linux") == ()


@pytest.mark.parametrize(("platform", "kills_group"), [("linux", True), ("darwin", True), ("win32", False)])
async def test_a_program_that_hangs_is_killed_with_its_process_group_where_the_system_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, *, kills_group: bool
) -> None:
    noted = tmp_path / "pid"
    groups: list[int] = []

    def kill_group(group: int, number: int) -> None:
        groups.append(group)
        os.kill(-group, number)

    monkeypatch.setattr(os, "killpg", kill_group)
    notices = ApprovalNotices(platform=platform)
    # its pid is noted once it has read: before, the start of the program itself is cut off
    command = ("sh", "-c", 'read line; echo $$ > "$0"; exec sleep 600', str(noted))
    notices.notify(Approval(notify=Notify(desktop=False, command=command)), waiting())
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(lambda: noted.exists() and noted.read_text()):
            pass
        await notices.close()
    pid = int(noted.read_text())
    assert groups == ([pid] if kills_group else [])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_programs_that_fail_or_hang_harm_nobody(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    commands: list[tuple[str, ...]] = [
        ("sh", "-c", 'echo $$ > "$0"; exec sleep 600', str(noted)),
        ("sh", "-c", "exec <&-; exit 3"),
        ("no-such-program",),
    ]
    notices = ApprovalNotices()
    pending = waiting(arguments=json.dumps({"a": "x" * 500_000}).encode())
    for command in commands:
        notices.notify(Approval(notify=Notify(desktop=False, command=command)), pending)
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(lambda: noted.exists() and noted.read_text()):
            pass
        await notices.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
