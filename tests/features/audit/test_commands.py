"""`audit`: what is shown, found, followed, counted, exported, verified and sealed, by whole commands."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dynamic_mcp.features.audit import days
from tests import own_process, signals
from tests.cli.commands import CliRunner
from tests.cli.test_completion import complete
from tests.features.audit.written import calls, line, write_log
from tests.own_process import BOUND_S, DEVNULL, Process
from tests.terminal import strip_escapes
from tests.windows import is_private

YESTERDAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


@pytest.fixture
def log(cli: CliRunner, state: Path) -> Path:
    """The log of the user, with thirty calls of yesterday; there is no config."""
    cli.config.unlink()
    write_log(state / "audit", calls(30, begin=YESTERDAY))
    return state / "audit"


def numbers(cli: CliRunner, *args: str) -> list[int]:
    """Return the numbers of the lines that are shown."""
    done = cli.run("audit", *args)
    assert done.code == 0, done.err
    return [json.loads(each)["n"] for each in done.out.splitlines()]


# --- showing -----------------------------------------------------------------------------------------------------


def test_without_a_config_the_log_of_the_user_is_shown_as_it_was_recorded(cli: CliRunner, log: Path) -> None:
    done = cli.run("audit", "-n", "2")

    recorded = days.file_of(log, f"{YESTERDAY:%Y-%m-%d}").read_text().splitlines()[-2:]
    assert [json.loads(each) for each in done.out.splitlines()] == [json.loads(each) for each in recorded]
    assert done.err == "the last 2 of 30 lines; `-n all` shows all\n"


def test_options_choose_lines(cli: CliRunner, log: Path) -> None:
    assert numbers(cli, "--who", "a*", "--group", "db", "--tool", "create_*", "-n", "2") == [22, 28]
    assert numbers(cli, "--errors") == [10, 20, 30]
    assert numbers(cli, "--slow", "28ms", "--decision", "allow", "--event", "call") == [29, 30]
    assert numbers(cli, "--since", "1s") == numbers(cli, "--client", "none") == []
    begin, end = ((YESTERDAY + timedelta(seconds=s)).isoformat() for s in (3, 5))
    assert numbers(cli, "--since", begin, "--until", end) == [4, 5]
    today = YESTERDAY.astimezone().date().isoformat()
    assert len(numbers(cli, "--since", today, "--until", today)) == 30


@pytest.mark.parametrize(
    "args",
    [
        ["--since", "soon"],
        ["--until", "2026-13-01"],
        ["--slow", "x"],
        ["-n", "0"],
        ["-n", "x"],
        ["--dir", "none"],
        ["none.json"],
        ["-c", "a.json", "b.json"],
        ["--errors", "verify"],
        ["verify", "--since", "soon"],
        ["export"],
    ],
)
def test_what_makes_no_sense_is_refused(cli: CliRunner, log: Path, args: list[str]) -> None:
    done = cli.run("audit", *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_config_says_where_its_log_is_and_only_its_lines_are_shown(cli: CliRunner, log: Path) -> None:
    write_log(cli.folder / "own", [line(id="a", config=str(cli.config)), line(id="b", config="/other")])
    cli.configure({}, settings={"audit": {"path": "own"}})

    assert [json.loads(each)["id"] for each in cli.run("audit").out.splitlines()] == ["a", "b"]
    shown = cli.run("audit", "dynamic-mcp.json").out
    assert [json.loads(each)["id"] for each in shown.splitlines()] == ["a"]
    assert len(numbers(cli, "--dir", str(log))) == 30


def test_logs_of_several_replicas_are_one_in_the_order_of_time(cli: CliRunner, log: Path) -> None:
    other = cli.folder / "other"
    write_log(other, calls(20, begin=YESTERDAY + timedelta(milliseconds=500), every=timedelta(seconds=2)))
    both = ("--dir", str(log), "--dir", str(other))
    shown = [json.loads(each) for each in cli.run("audit", *both, "-n", "all").out.splitlines()]
    assert len(shown) == 50
    assert [each["at"] for each in shown] == sorted(each["at"] for each in shown)
    last = cli.run("audit", *both, "-n", "12")
    assert [json.loads(each) for each in last.out.splitlines()] == shown[-12:]
    assert last.err == "the last 12 of 50 lines; `-n all` shows all\n"
    stats = json.loads(cli.run("audit", "stats", *both, "--by", "person", "--json").out)
    assert sum(each["calls"] for each in stats) == 50
    exported = cli.run("audit", "export", "--format", "jsonl", *both).out.splitlines()
    assert [json.loads(each)["at"] for each in exported] == [each["at"] for each in shown]


def test_nothing_is_told_from_nothing_such(cli: CliRunner, state: Path) -> None:
    cli.configure({}, settings={"audit": True})
    assert "hint: a call is recorded when it has ended" in cli.run("audit").err
    cli.config.unlink()
    assert "hint: `settings.audit` in a config turns it on" in cli.run("audit").err
    write_log(state / "audit", [line()])
    assert "has no such lines" in cli.run("audit", "--who", "eve").err


def test_a_person_sees_a_table_in_local_time_without_anything_that_a_terminal_acts_on(
    cli: CliRunner, log: Path
) -> None:
    odd = line(
        at=YESTERDAY.replace(hour=22),
        subject="eve\x1b]0;owned\x07",
        name="a\nb\u202e",
        outcome="denied",
        decision="deny",
        rule="roles.dev[1]",
        ms=1500.0,
    )
    write_log(log, [odd])
    shown = strip_escapes(cli.run_on_terminal("audit", "-n", "3", width=160, TZ="Asia/Kolkata").out)

    title, *rows = [each for each in shown.splitlines() if "lines; `-n all`" not in each]
    assert title.split() == ["TIME", "WHO", "EVENT", "RESULT", "TOOK", "WHAT"]
    assert len(rows) == 3
    after = YESTERDAY + timedelta(days=1)
    assert rows[-1].startswith(f"{after:%Y-%m-%d} 03:30:00+05:30  eve\\x1b]0;owned\\x07")
    assert "denied by roles.dev[1]" in rows[-1]
    assert "1.5 s" in rows[-1]
    assert rows[-1].rstrip().endswith("a\\nb\\u202e")


def test_a_call_that_a_person_has_denied_is_denied_by_that_person(cli: CliRunner, log: Path) -> None:
    rule = "mcpServers.github.approve"
    denied = line(at=YESTERDAY.replace(hour=22), outcome="denied", decision="ask", rule=rule, approved_by="bob")
    write_log(log, [denied])
    assert "denied by bob" in strip_escapes(cli.run_on_terminal("audit", "-n", "1", width=160).out)


def test_tab_offers_options_and_commands(cli: CliRunner) -> None:
    assert {"verify", "seal", "export", "stats"} <= set(complete(cli, "audit "))
    assert "--who" in complete(cli, "audit --w")
    assert complete(cli, "audit --errors --wh") == ["--who"]
    assert complete(cli, "audit stats --by p") == ["person"]
    assert complete(cli, "audit --group f") == ["full"]


# --- following ---------------------------------------------------------------------------------------------------


async def read_id(process: Process) -> str:
    assert process.stdout is not None
    return str(json.loads(await process.stdout.readline())["id"])


async def test_following_shows_what_is_written_until_ctrl_c(cli: CliRunner, log: Path) -> None:
    process = await cli.start("audit", "-f", "-n", "1", "--event", "call")
    async with asyncio.timeout(BOUND_S):
        assert (await read_id(process)).endswith("-29")
        write_log(log, [line("read", id="hidden", at=datetime.now(UTC)), line(id="new", at=datetime.now(UTC))])
        assert await read_id(process) == "new"
        write_log(log, [line(id="later", at=datetime.now(UTC) + timedelta(days=1))])
        assert await read_id(process) == "later"
        signals.interrupt(process.pid)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert err.endswith(b"interrupted\n")


@pytest.mark.posix_only("Windows tells of a closed pipe when something is written to it, and not before")
async def test_following_ends_when_nobody_reads_any_more(cli: CliRunner, log: Path) -> None:
    ours, theirs = os.pipe()
    process = await own_process.start(
        "audit", "-f", "-n", "1", cwd=cli.folder, env=cli.environment(), stdin=DEVNULL, stdout=theirs, stderr=DEVNULL
    )
    os.close(theirs)
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.to_thread(os.read, ours, 10)
        os.close(ours)
        await process.wait()
    assert process.returncode in (0, 1)


# --- statistics and export ---------------------------------------------------------------------------------------


def test_statistics_say_how_much_was_called_and_how_it_ended(cli: CliRunner, log: Path) -> None:
    write_log(log, [line(subject="ann", group="db", name="drop", outcome="denied", decision="deny", at=YESTERDAY)])
    by_person = {each["person"]: each for each in cli.run("audit", "stats", "--by", "person").json}
    by_tool = cli.run("audit", "stats", "--group", "db").json

    assert by_person["ann"]["calls"] == 11
    assert (by_person["ann"]["errors"], by_person["ann"]["denied"]) == (2, 1)
    assert sum(each["calls"] for each in by_person.values()) == 31
    assert by_person["bob"]["tokens"] == -(-by_person["bob"]["bytes"] // 4)
    assert by_person["bob"]["p50_ms"] == pytest.approx(13.5, rel=0.1)
    assert by_person["bob"]["p95_ms"] == pytest.approx(28.5, rel=0.1)
    assert {(each["group"], each["tool"]) for each in by_tool} == {
        ("db", name) for name in ("create_issue", "query", "search", "drop")
    }
    write_log(log, [line(group="odd\nodd", at=YESTERDAY)])
    shown = cli.run_on_terminal("audit", "stats", "--by", "group", width=120).out
    assert "odd\\nodd" in shown
    assert "~TOKENS" in shown
    assert "github" in shown


def test_an_export_replaces_no_file_unless_it_is_told_to(cli: CliRunner, log: Path) -> None:
    file = cli.folder / "out.csv"
    file.write_text("before")
    done = cli.run("audit", "export", "--format", "csv", "-o", "out.csv")

    assert (done.code, done.out) == (1, "")
    assert done.err == "error: `out.csv` exists and was not changed\nhint: --force replaces it\n"
    assert file.read_text() == "before"


@pytest.mark.parametrize("option", ["-f", "--force"])
def test_an_export_is_private_and_replaces_a_file_whole(cli: CliRunner, log: Path, option: str) -> None:
    file = cli.folder / "out.csv"
    file.write_text("before")
    done = cli.run("audit", "export", "--format", "csv", "--errors", "-o", "out.csv", option)

    assert (done.code, done.out, done.err) == (0, "", "3 lines written to `out.csv`\n")
    assert [row["n"] for row in csv.DictReader(file.read_text().splitlines())] == ["10", "20", "30"]
    assert is_private(file)
    events = cli.run("audit", "export", "--format", "ocsf", "-n", "2").out.splitlines()
    assert [json.loads(each)["class_uid"] for each in events] == [6003, 6003]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_an_export_goes_into_a_pipe_which_stays_one(cli: CliRunner, log: Path) -> None:
    pipe = cli.folder / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", "pipe"], cwd=cli.folder, stdout=subprocess.PIPE)
    assert cli.run("audit", "export", "--format", "jsonl", "-n", "3", "-o", "pipe").code == 0
    out, _ = reader.communicate(timeout=BOUND_S)
    assert len(out.splitlines()) == 3
    assert pipe.is_fifo()


# --- verifying and sealing ---------------------------------------------------------------------------------------


def test_a_changed_line_is_named_and_exits_with_1(cli: CliRunner, log: Path) -> None:
    assert cli.run("audit", "verify").json["intact"]
    file = days.file_of(log, f"{YESTERDAY:%Y-%m-%d}")
    file.write_bytes(file.read_bytes().replace(b'"result_bytes":104', b'"result_bytes":999'))

    done = cli.run("audit", "verify")
    assert (done.code, done.json["intact"]) == (1, False)
    (finding,) = (each for each in done.json["findings"] if each["kind"] == "changed")
    assert (finding["file"], finding["line"]) == (file.name, 5)
    shown = cli.run_on_terminal("audit", "verify", width=120)
    assert shown.code == 1
    assert f"{file.name}:5: does not match its hash" in shown.out


def test_a_tail_that_was_cut_off_shows_with_the_seal_that_was_kept(cli: CliRunner, log: Path) -> None:
    kept = cli.folder / "kept"
    kept.write_text(cli.run("audit", "seal", "--now").out)
    assert len(kept.read_text().splitlines()) == 2
    assert cli.run("audit", "verify", "--seals", "kept").json["end_is_sealed_elsewhere"]
    file = days.file_of(log, f"{YESTERDAY:%Y-%m-%d}")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    (log / days.SEALS).unlink()

    without = cli.run_on_terminal("audit", "verify", width=120)
    assert without.code == 0
    assert "only a seal that was kept elsewhere shows" in " ".join(without.out.split())
    done = cli.run("audit", "verify", "--seals", "kept")
    assert done.code == 1
    assert "has 30 lines, and the file ends with line 29" in done.json["findings"][0]["what"]


def test_seals_are_signed_with_the_key_of_the_config(cli: CliRunner, log: Path) -> None:
    from tests.features.audit.test_verify import make_key

    make_key(cli.folder, "ours")
    cli.configure({}, settings={"audit": {"path": str(log), "seal_key": "ours.pem"}})

    (seal,) = cli.run("audit", "seal").out.splitlines()
    assert json.loads(seal)["signature"]
    assert "every day that has ended has its seal" in cli.run("audit", "seal").err
    assert cli.run("audit", "verify", "--key", "ours.pub").code == 0
    make_key(cli.folder, "other")
    assert cli.run("audit", "verify", "--key", "other.pub").code == 1
    assert cli.run("audit", "verify", "--key", "dynamic-mcp.json").code == 2


@pytest.mark.parametrize("option", ["--key", "--seals"])
def test_what_is_no_file_has_no_seals_and_no_key(cli: CliRunner, log: Path, option: str) -> None:
    for file in ("none", ".", *(["/dev/zero"] if sys.platform != "win32" else [])):
        done = cli.run("audit", "verify", option, file)
        assert (done.code, done.out) == (1, ""), done.err


def test_verifying_since_a_time_begins_with_its_day(cli: CliRunner, log: Path) -> None:
    write_log(log, [line(at=datetime.fromtimestamp(time.time(), UTC))])
    assert cli.run("audit", "verify").code == 1
    assert cli.run("audit", "verify", "--since", "0s").json["days"] == 1
