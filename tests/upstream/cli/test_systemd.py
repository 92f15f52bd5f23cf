"""The packs of systemctl and journalctl: what the programs know of them, and what of the programs no tool does.

Nothing here changes the machine: what would is asked of a program that only shows how it was started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag, tool_name
from dynamic_mcp.upstream.cli.argv import build
from tests.fakes import Client, Json, text_of
from tests.upstream.cli.programs import MIRROR, require, serve

if sys.platform == "win32":
    pytest.skip("there is no systemd", allow_module_level=True)

_REMOTE = "/lib/systemd/systemd-journal-remote"
_VALUES: Json = {
    **dict.fromkeys(("--since", "--until"), "-1h"),
    **dict.fromkeys(("--cursor", "--after-cursor"), f"s={'0' * 32};i=1;b={'0' * 32};m=1;t=1;x=1"),
    "--boot": "-1",
    "--priority": "emerg..3",
    "--facility": "daemon,3",
    "--output-fields": "MESSAGE,_PID",
    "--type": "service,timer",
    "--state": "failed,running",
    "--property": "ActiveState,MainPID",
    "--unit": "ssh*",
    "--user-unit": "a@b.service",
    "--grep": "^-?x$",
    "--field": "_PID",
}


def run(program: str, *words: str) -> str:
    """What the program itself writes to such a call, which works."""
    return subprocess.run([require(program), *words], capture_output=True, text=True, check=True).stdout


def commands() -> Iterator[tuple[str, Command]]:
    for program in ("systemctl", "journalctl"):
        for command in library.read_shipped(program).commands:
            yield program, command


def _values(flag: Flag) -> list[object]:
    match flag.type:
        case "boolean":
            return [True, False]
        case "enum":
            return [*(flag.values or ())]
        case "integer":
            return [0, 5]
    value = _VALUES.get(flag.name, "word")
    return [[value, value]] if flag.repeatable else [value]


@pytest.mark.full
@pytest.mark.parametrize(("program", "command"), [*commands()], ids=lambda each: getattr(each, "name", each))
def test_the_program_knows_every_command_flag_and_value(program: str, command: Command) -> None:
    path = require(program)
    known = run(program, "--help")
    assert all(f"  {word} " in known or f"  {word}\n" in known for word in command.path)
    needed: Json = {each.argument: ["a.service"] for each in command.positionals if each.required}
    needed |= {each.argument: _values(each)[0] for each in command.flags if each.required}
    for flag in command.flags:
        for value in _values(flag):
            argv = list(build(command, {**needed, flag.argument: value}).argv)
            argv.insert(argv.index("--"), "--help")  # it reads what is before, and does nothing
            done = subprocess.run([path, *argv], capture_output=True, text=True)
            assert done.returncode == 0, (flag.name, value, done.stderr)
            assert done.stdout == known


# --- systemctl ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def started(folder: Path, program: str, **cli: Json) -> AsyncIterator[Client]:
    """A client of all commands of a program that prints how it was started, instead of doing anything."""
    shown = folder / program
    shown.write_text(f"#!{sys.executable}\n{MIRROR}")
    shown.chmod(0o755)
    entry: Json = {"use": program, "command": str(shown), "commands": ["*"], **cli}
    async with serve(folder, entry, validate="off") as client:
        yield client


async def argv_of(client: Client, tool: str, arguments: Json) -> list[str]:
    result = await client.call("it", tool, arguments)
    assert not result.get("isError"), text_of(result)
    argv: list[str] = json.loads(result["structuredContent"]["stdout"])["argv"]
    return argv


async def refusal_of(client: Client, tool: str, arguments: Json) -> str:
    """Why a call starts nothing."""
    result = await client.call("it", tool, arguments)
    assert result["isError"], (tool, arguments)
    assert "exitCode" not in result.get("structuredContent", {}), text_of(result)
    return text_of(result)


CHANGING = [each for each in library.read_shipped("systemctl").commands if each.effect != "read"]


async def test_units_are_named_after_the_separator_and_no_pager_or_prompt_is_there(tmp_path: Path) -> None:
    async with started(tmp_path, "systemctl") as client:
        argv = await argv_of(client, "systemctl_restart", {"units": ["nginx.service", "-.mount"], "no_block": True})
        result = await client.call("it", "systemctl_status", {"units": ["ssh*"]})

    fixed = ["--no-pager", "--no-ask-password"]
    assert argv == [*fixed, "restart", "--no-block", "--", "nginx.service", "-.mount"]
    assert json.loads(text_of(result))["env"]["SYSTEMD_PAGER"] == "cat"


@pytest.mark.parametrize(
    "unit",
    [
        *("reboot.target", "poweroff.target", "halt.target", "kexec.target", "rescue.target", "emergency.target"),
        *("ctrl-alt-del.target", "runlevel6.target", "suspend.target", "sleep.target", "multi-user.target"),
        *("systemd-reboot.service", "systemd-poweroff.service", "systemd-soft-reboot.service"),
        *("systemd-suspend-then-hibernate.service", "debug-shell.service", "emergency.service", "rescue.service"),
        *("systemd-makefs@dev-sda1.service", "systemd-repart.service", "modprobe@evil.service"),
        *("initrd-switch-root.service", "reboot", "nginx", "*", "*.service", "ssh?.service", "[a-z]*.service"),
        *("/root/evil.service", "../evil.service", "/etc/passwd", "1", "", "--force", "-H", "@file", "-"),
        *("nginx.service\n", "nginx.service reboot.target"),
    ],
)
async def test_no_call_ends_or_erases_the_system_or_brings_a_unit_of_its_own(tmp_path: Path, unit: str) -> None:
    async with started(tmp_path, "systemctl", at_files=True) as client:
        for command in CHANGING:
            if command.positionals:
                tool = tool_name("systemctl", command.name)
                assert "match" in await refusal_of(client, tool, {"units": [unit]})
                assert "match" in await refusal_of(client, tool, {"units": ["nginx.service", unit]})


def test_the_units_that_are_refused_are_those_of_the_program() -> None:
    folder = Path("/lib/systemd/system")
    if not (folder / "reboot.target").exists():
        pytest.skip("the units of systemd are not installed")
    (stop,) = [each for each in CHANGING if each.name == "stop"]
    acting = ("reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "rescue", "emergency", "switch-root")
    found = [each.name for each in folder.iterdir() if any(word in each.name for word in acting)]
    assert len(found) > 15
    for name in found:
        if name.endswith((".service", ".target")):
            with pytest.raises(ValueError, match="match"):
                build(stop, {"units": [name]})


@pytest.mark.full
async def test_the_program_would_take_a_unit_from_anywhere(tmp_path: Path) -> None:
    evil = tmp_path / "evil.service"
    evil.write_text("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
    root = tmp_path / "root"
    root.mkdir()
    inside = root / "evil.service"
    shutil.copy(evil, inside)
    run("systemctl", f"--root={root}", "enable", "--", "/evil.service")
    assert [each.name for each in root.rglob("multi-user.target.wants/*")] == ["evil.service"]

    async with started(tmp_path, "systemctl") as client:
        await refusal_of(client, "systemctl_enable", {"units": ["/evil.service"]})
        await refusal_of(client, "systemctl_enable", {"units": ["evil.service"], "root": str(root)})


@pytest.mark.parametrize(
    "words",
    [
        *("--host=root@127.0.0.1", "--machine=other", "--root=/srv", "--image=/srv/image", "--force"),
        *("--job-mode=isolate", "--what=all", "--preset-mode=full", "--check-inhibitors=no", "--firmware-setup"),
        *("--boot-loader-entry=x", "--recursive", "--marked", "--mkdir"),
    ],
)
async def test_no_call_reaches_another_machine_or_goes_around_a_check(tmp_path: Path, words: str) -> None:
    assert run("systemctl", words, "--help")  # it knows the flag
    name, _, value = words.removeprefix("--").partition("=")
    async with started(tmp_path, "systemctl") as client:
        for command in library.read_shipped("systemctl").commands:
            given: Json = {"units": ["nginx.service"]} if command.positionals else {}
            given[name.replace("-", "_")] = value or True
            assert "no argument" in await refusal_of(client, tool_name("systemctl", command.name), given)


async def test_no_tool_edits_links_or_ends(tmp_path: Path) -> None:
    known = run("systemctl", "--help")
    words = {word for each in library.read_shipped("systemctl").commands for word in each.path}
    for name in (
        *("edit", "link", "revert", "bind", "mount-image", "set-property", "isolate", "clean", "switch-root"),
        *("set-environment", "import-environment", "show-environment", "poweroff", "reboot", "kexec", "halt"),
        *("rescue", "emergency", "default", "exit", "suspend", "hibernate", "daemon-reexec", "set-default"),
    ):
        assert f"  {name} " in known
        assert name not in words
    async with started(tmp_path, "systemctl") as client:
        for name in ("edit", "poweroff"):
            await refusal_of(client, tool_name("systemctl", name), {"units": ["nginx.service"]})


# --- journalctl --------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A directory with a journal of three entries."""
    program = os.environ.get("SYSTEMD_JOURNAL_REMOTE", _REMOTE)
    if not Path(program).exists():
        pytest.skip("`systemd-journal-remote` is not installed")
    folder = tmp_path / "journal"
    folder.mkdir()
    entries = [
        {
            "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + each),
            "__MONOTONIC_TIMESTAMP": str(each + 1),
            "_BOOT_ID": "a" * 32,
            "MESSAGE": text,
            "PRIORITY": priority,
            "_SYSTEMD_UNIT": unit,
            "SYSLOG_IDENTIFIER": unit.partition(".")[0],
        }
        for each, (text, priority, unit) in enumerate(
            [("started", "6", "web.service"), ("--it failed", "3", "web.service"), ("@reads", "6", "data.service")]
        )
    ]
    text = "\n".join("".join(f"{name}={value}\n" for name, value in each.items()) for each in entries) + "\n"
    output = f"--output={folder / 'system.journal'}"
    subprocess.run([program, output, "-"], input=text, text=True, check=True, capture_output=True)
    return folder


@contextlib.asynccontextmanager
async def reader(journal: Path) -> AsyncIterator[Client]:
    """A client of the program, which reads this journal instead of the machine's."""
    folder = journal.parent
    program = folder / "journalctl"
    program.write_text(f'#!/bin/sh\nexec {require("journalctl")} --directory="{journal}" "$@"\n')
    program.chmod(0o755)
    async with serve(folder, {"use": "journalctl", "command": str(program), "commands": ["*"]}) as client:
        yield client


async def output_of(client: Client, tool: str, arguments: Json | None = None) -> str:
    result = await client.call("it", tool, arguments or {})
    assert not result.get("isError"), text_of(result)
    return str(result["structuredContent"]["stdout"])


@pytest.mark.full
async def test_journalctl_finds_entries(journal: Path) -> None:
    async with reader(journal) as client:
        cat: Json = {"output": "cat"}
        assert await output_of(client, "journalctl_show", cat) == "started\n--it failed\n@reads\n"
        assert await output_of(client, "journalctl_show", {**cat, "lines": 1}) == "@reads\n"
        assert await output_of(client, "journalctl_show", {**cat, "priority": "err"}) == "--it failed\n"
        assert await output_of(client, "journalctl_show", {**cat, "grep": "--it"}) == "--it failed\n"
        assert await output_of(client, "journalctl_show", {**cat, "grep": "@r", "reverse": True}) == "@reads\n"
        assert await output_of(client, "journalctl_show", {**cat, "identifier": ["data"]}) == "@reads\n"
        since: Json = {**cat, "since": "@1700000001"}
        assert "started" not in await output_of(client, "journalctl_show", since)
        either = ["PRIORITY=3", "+", "_SYSTEMD_UNIT=data.service"]
        assert await output_of(client, "journalctl_show", {**cat, "matches": either}) == "--it failed\n@reads\n"
        assert json.loads(await output_of(client, "journalctl_show", {"output": "json", "lines": 1}))
        assert "PRIORITY\n" in await output_of(client, "journalctl_fields")
        units = await output_of(client, "journalctl_values", {"field": "_SYSTEMD_UNIT"})
        assert sorted(units.split()) == ["data.service", "web.service"]
        assert "a" * 32 in await output_of(client, "journalctl_list_boots")
        assert "take up" in await output_of(client, "journalctl_disk_usage")
        await output_of(client, "journalctl_verify")


@pytest.mark.parametrize(
    "words",
    [
        *("--file=FOLDER/x", "--directory=FOLDER", "--root=FOLDER", "--image=FOLDER/x", "--machine=other"),
        *("--namespace=*", "--cursor-file=FOLDER/x", "--vacuum-size=1", "--vacuum-files=1", "--vacuum-time=1s"),
        *("--flush", "--rotate", "--sync", "--relinquish-var", "--update-catalog"),
        *("--setup-keys", "--force", "--interval=1s", "--verify-key=FOLDER/x", "--follow", "--no-tail"),
    ],
)
async def test_no_call_reads_other_journals_or_changes_one(tmp_path: Path, words: str) -> None:
    flag = words.replace("FOLDER", str(tmp_path))
    assert run("journalctl", flag, "--help")  # it knows the flag
    name, _, value = flag.removeprefix("--").partition("=")
    async with started(tmp_path, "journalctl", at_files=True) as client:
        for command in library.read_shipped("journalctl").commands:
            tool = tool_name("journalctl", command.name)
            needed: Json = {"field": "_PID"} if command.name == "values" else {}
            assert "no argument" in await refusal_of(client, tool, {**needed, name.replace("-", "_"): value or True})
            for member in ("matches", "field"):
                await refusal_of(client, tool, {**needed, member: [flag] if member == "matches" else flag})


@pytest.mark.full
async def test_the_program_writes_files_where_it_is_told_to(journal: Path) -> None:
    place = journal.parent / "cursor"
    run("journalctl", f"--directory={journal}", f"--cursor-file={place}", "--quiet")
    assert place.exists()
    place.unlink()

    async with reader(journal) as client:
        refused = await client.call("it", "journalctl_show", {"cursor_file": str(place)})

    assert refused["isError"]
    assert not place.exists()


@pytest.mark.parametrize("word", ["/usr/bin/true", "/etc/passwd", "-", "@x", "_PID", "a=b", "--flush", "+x"])
async def test_a_match_is_a_field_and_its_value(tmp_path: Path, word: str) -> None:
    async with started(tmp_path, "journalctl", at_files=True) as client:
        assert "match" in await refusal_of(client, "journalctl_show", {"matches": [word]})


async def test_a_match_comes_after_the_separator_and_entries_are_bounded(tmp_path: Path) -> None:
    async with started(tmp_path, "journalctl") as client:
        argv = await argv_of(client, "journalctl_show", {"matches": ["A=--flush"], "grep": "--rotate", "boot": "-1"})

    assert argv == ["--no-pager", "--lines=1000", "--grep=--rotate", "--boot=-1", "--", "A=--flush"]
