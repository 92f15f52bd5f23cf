"""Calls that are open are known to the next process; what could not be written is written later, or counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.errors import NotRecorded
from dynamic_mcp.features.audit import journal
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.journal import CallJournal
from dynamic_mcp.features.audit.keeper import Keeper
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.features.audit.recorder import LineRecorder, Trail
from tests.features.audit.audited import KEEPING, read_lines
from tests.program import BOUND_S


def call(id: str) -> AuditLine:
    return AuditLine(v=VERSION, id=id, event="call", outcome="unknown", name=id)


def recorder_of(directory: Path, *, stops_writes: bool = True, max_late: int = 1000) -> LineRecorder:
    log = AuditLog(directory)
    return LineRecorder(log, Keeper(log, KEEPING), stops_writes=stops_writes, max_late=max_late)


def end(line: AuditLine) -> AuditLine:
    return structs.replace(line, outcome="success")


def ids(directory: Path) -> list[str]:
    return [line["id"] for line in read_lines(directory)]


async def test_a_closed_call_has_its_line_a_moment_later(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    recorder.open(call("a"), "`a`", is_write=True)
    recorder.close_call(lambda: end(call("a")))
    async with asyncio.timeout(BOUND_S):
        while not ids(tmp_path):  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.001)
    recorder.close()
    assert ids(tmp_path) == ["a"]


def test_an_open_call_of_a_dead_process_has_an_unknown_outcome(tmp_path: Path) -> None:
    dead, alive = CallJournal(tmp_path), CallJournal(tmp_path)
    log = AuditLog(tmp_path)
    for each in "abc":
        dead.add(call(each))
    alive.add(call("d"))
    log.append(end(call("b")))
    dead.close()  # with calls open, as at a kill
    trail = Trail(tmp_path, KEEPING, stops_writes=True)
    trail.close()
    found = {line["id"]: line.get("outcome", "success") for line in read_lines(tmp_path)}
    assert found == {"a": "unknown", "b": "success", "c": "unknown"}
    alive.close()
    with journal.abandoned(tmp_path) as lines:
        assert [line.id for line in lines] == ["d"]
    with journal.abandoned(tmp_path) as lines:
        assert lines == []


def test_calls_that_a_renamed_file_has_are_not_recorded_again(tmp_path: Path) -> None:
    dead, log = CallJournal(tmp_path), AuditLog(tmp_path)
    dead.add(call("a"))
    log.append(end(call("a")))
    log.close()
    dead.close()
    (file,) = tmp_path.glob("2*.jsonl")
    file.rename(tmp_path / f"{file.name}.1")
    with journal.abandoned(tmp_path) as lines:
        assert lines == []


@pytest.mark.parametrize("open_always", [False, True])
def test_the_file_of_open_calls_does_not_grow_for_ever(tmp_path: Path, open_always: bool) -> None:
    open_calls = CallJournal(tmp_path)
    if open_always:
        open_calls.add(call("always"))
    sizes = []
    for n in range(8000):
        line = structs.replace(call(f"c{n}"), shown="x" * 300)
        open_calls.add(line)
        open_calls.remove(line.id)
        if n % 100 == 0:
            (file,) = (tmp_path / "open").iterdir()
            sizes.append(file.stat().st_size)
    assert max(sizes) < 1_200_000
    open_calls.close()
    with journal.abandoned(tmp_path) as lines:
        pass
    assert [line.id for line in lines if line.id == "always"] == (["always"] if open_always else [])


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A log that cannot be written: its directory is a file."""
    directory = tmp_path / "audit"
    directory.write_text("")
    return directory


def test_lines_that_could_not_be_written_are_written_later(blocked: Path) -> None:
    recorder = recorder_of(blocked)
    for each in "abc":
        recorder.record(call(each))
    blocked.unlink()
    recorder.record(call("d"))
    assert ids(blocked) == ["a", "b", "c", "d"]


def test_a_line_says_how_many_are_lost(blocked: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = recorder_of(blocked, max_late=2)
    for each in "abcde":
        recorder.record(call(each))
    blocked.unlink()
    recorder.record(call("f"))
    first, second, gap, last = read_lines(blocked)
    assert [first["id"], second["id"], last["id"]] == ["d", "e", "f"]
    assert gap["detail"] == {"reason": "lost", "lines": 3}
    assert caplog.text.count("cannot be written") == 1
    assert "3 lines of the audit log are lost" in caplog.text


def test_only_what_may_change_something_is_stopped(blocked: Path) -> None:
    strict, lenient = recorder_of(blocked), recorder_of(blocked, stops_writes=False)
    strict.open(call("a"), "`a`", is_write=False)
    lenient.open(call("b"), "`b`", is_write=True)
    with pytest.raises(NotRecorded, match="`c` may change something"):
        strict.open(call("c"), "`c`", is_write=True)


@pytest.mark.posix_only("Windows lets nobody rename a file that is open, as the log has that of its day")
def test_while_a_day_cannot_be_written_writes_are_stopped_though_they_can_be_noted(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    recorder.open(call("a"), "`a`", is_write=True)
    recorder.record(end(call("a")))
    (file,) = tmp_path.glob("2*.jsonl")
    moved = file.rename(tmp_path / "away")
    file.mkdir()
    recorder.open(call("b"), "`b`", is_write=True)
    recorder.record(end(call("b")))
    with pytest.raises(NotRecorded):
        recorder.open(call("c"), "`c`", is_write=True)
    file.rmdir()
    moved.rename(file)
    recorder.open(call("c"), "`c`", is_write=True)
    recorder.record(end(call("c")))
    assert ids(tmp_path) == ["a", "b", "c"]
