"""Lines are appended by several processes, one chain through all days, whatever others do to the files."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.arguments import load_key
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.journal import CallJournal
from dynamic_mcp.features.audit.log import AuditLog
from tests.windows import grant, is_private

DAY_S = 86_400.0
NOON = 1_795_435_200.0  # 2026-11-23T12:00:00Z


class Time:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> float:
        return self.at


def call(name: str = "echo") -> AuditLine:
    return AuditLine(v=VERSION, id=f"id-{name}", event="call", group="files", kind="tool", name=name)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, whose chain is whole."""
    lines = file.read_bytes().splitlines(keepends=True)
    links = [chain.read_link(line) for line in lines]
    assert [link.prev for link in links[1:]] == [link.hash for link in links[:-1]]
    return [json.loads(line) for line in lines]


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def audit(tmp_path: Path, now: Time) -> AuditLog:
    return AuditLog(tmp_path / "audit", now=now)


def test_a_line_is_appended_with_its_number_time_and_hashes(audit: AuditLog) -> None:
    first, second = audit.append(call()), audit.append(call())
    assert (first.n, first.at, first.prev) == (1, "2026-11-23T12:00:00.000Z", chain.ZERO)
    assert (second.n, second.prev) == (2, first.hash)
    written = days.file_of(audit.directory, "2026-11-23").read_bytes().splitlines()
    assert [chain.read_line(line) for line in written] == [first, second]


def test_the_files_are_private(audit: AuditLog) -> None:
    audit.append(call())
    assert is_private(audit.directory)
    assert all(is_private(file) for file in audit.directory.iterdir())


def test_the_first_line_of_a_day_goes_on_from_the_last_of_the_day_before(audit: AuditLog, now: Time) -> None:
    last = audit.append(call())
    now.at += 3 * DAY_S
    first = audit.append(call())
    assert (first.n, first.prev) == (1, last.hash)
    assert days.list_days(audit.directory) == ["2026-11-23", "2026-11-26"]


def test_another_process_goes_on_from_the_last_line(audit: AuditLog, now: Time) -> None:
    last = audit.append(call())
    same_day = AuditLog(audit.directory, now=now).append(call())
    assert (same_day.n, same_day.prev) == (2, last.hash)
    now.at += DAY_S
    next_day = AuditLog(audit.directory, now=now).append(call())
    assert (next_day.n, next_day.prev) == (1, same_day.hash)


def test_two_that_append_in_turns_see_each_others_lines(audit: AuditLog, now: Time) -> None:
    other = AuditLog(audit.directory, now=now)
    for at in (0.0, 1.0, DAY_S, DAY_S + 1):
        now.at = NOON + at
        other.append(call("a"))
        audit.append(call("b"))
    for day in days.list_files(audit.directory):
        assert [line["name"] for line in lines_of(day)] == ["a", "b", "a", "b"]


def test_a_closed_log_goes_on_without_a_gap(audit: AuditLog, now: Time) -> None:
    audit.append(call())
    audit.close()
    audit.append(call())
    audit.close()
    now.at += DAY_S
    audit.append(call())
    assert [len(lines_of(day)) for day in days.list_files(audit.directory)] == [2, 1]


def test_a_clock_that_goes_back_over_midnight_does_not_go_back_to_yesterdays_file(audit: AuditLog, now: Time) -> None:
    audit.append(call())
    now.at -= DAY_S
    assert audit.append(call()).n == 2
    assert AuditLog(audit.directory, now=now).append(call()).n == 3
    assert days.list_days(audit.directory) == ["2026-11-23"]


# --- what somebody else does to the file ------------------------------------------------------------------------


@pytest.mark.posix_only("Windows lets nobody rename a file that is open, as the log has that of its day")
def test_after_a_file_was_moved_a_new_one_goes_on_and_says_so(audit: AuditLog) -> None:
    audit.append(call())
    last = audit.append(call())
    file = days.file_of(audit.directory, "2026-11-23")
    moved = file.rename(audit.directory / "2026-11-23.jsonl.1")
    after = audit.append(call())
    gap, line = lines_of(file)
    assert (gap["event"], gap["n"], gap["prev"], gap["detail"]) == (
        "audit.gap",
        3,
        last.hash,
        {"reason": "moved", "last": 2},
    )
    assert line["hash"] == after.hash
    assert len(lines_of(moved)) == 2


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_after_a_file_was_cut_it_goes_on_and_says_so(audit: AuditLog, kept: int) -> None:
    written = [audit.append(call()) for _ in range(3)]
    file = days.file_of(audit.directory, "2026-11-23")
    whole = file.read_bytes()
    rest = b"".join(whole.splitlines(keepends=True)[:kept])
    with file.open("r+b") as opened:
        opened.truncate(len(rest))
    audit.append(call())
    assert file.read_bytes().startswith(rest)
    gap, line = [chain.read_line(each) for each in file.read_bytes().splitlines()[kept:]]
    assert (gap.event, gap.n, gap.prev, line.n) == ("audit.gap", 4, written[-1].hash, 5)
    assert json.loads(bytes(gap.detail)) == {"reason": "cut", "last": 3}


def test_one_of_two_processes_says_that_the_file_was_cut(audit: AuditLog, now: Time) -> None:
    other = AuditLog(audit.directory, now=now)
    audit.append(call())
    other.append(call())
    file = days.file_of(audit.directory, "2026-11-23")
    with file.open("r+b") as opened:
        opened.truncate(0)
    audit.append(call())
    other.append(call())
    assert [line["event"] for line in lines_of(file)] == ["audit.gap", "call", "call"]


def test_half_a_line_at_the_end_is_left_there_and_described(audit: AuditLog, now: Time) -> None:
    audit.append(call())
    file = days.file_of(audit.directory, "2026-11-23")
    with file.open("ab") as opened:
        opened.write(b'{"v":1,"n":2')
    AuditLog(audit.directory, now=now).append(call())
    _, torn, gap, line = file.read_bytes().splitlines()
    assert torn == b'{"v":1,"n":2'
    detail = json.loads(bytes(chain.read_line(gap).detail))
    assert (detail["reason"], detail["bytes"], len(detail["sha256"])) == ("torn", 12, 64)
    assert chain.read_link(line).n == 3


def test_lines_at_the_end_that_are_none_are_left_there(audit: AuditLog, now: Time) -> None:
    audit.append(call())
    file = days.file_of(audit.directory, "2026-11-23")
    with file.open("ab") as opened:
        opened.write(b"hello\n{}\n")
    audit.append(call())
    audit.append(call())
    gap = chain.read_line(file.read_bytes().splitlines()[3])
    assert (gap.n, json.loads(bytes(gap.detail))) == (2, {"reason": "damaged", "lines": 2})


@pytest.mark.posix_only("links need a privilege on Windows, which has no O_NOFOLLOW")
def test_a_symbolic_link_is_not_followed(audit: AuditLog, tmp_path: Path) -> None:
    audit.directory.mkdir()
    target = tmp_path / "target"
    days.file_of(audit.directory, "2026-11-23").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        audit.append(call())
    assert not target.exists()


def test_a_file_that_others_can_read_becomes_private(audit: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    audit.directory.mkdir()
    file = days.file_of(audit.directory, "2026-11-23")
    file.touch(0o644)
    grant(file, "RX")
    audit.append(call())
    assert is_private(file)
    assert "is now private" in caplog.text


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give directories away")
@pytest.mark.parametrize("given", ["", days.LOCK])
def test_what_belongs_to_another_user_is_not_written_to(audit: AuditLog, given: str) -> None:
    """Who owns the directory could rename days away, and who has the lock open could hold it for ever."""
    audit.directory.mkdir(0o700)
    theirs = audit.directory / given
    if given:
        theirs.touch(0o600)
    os.chown(theirs, 65534, -1)
    before = sorted(audit.directory.iterdir())
    with pytest.raises(PermissionError, match="belongs to another user"):
        audit.append(call())
    assert sorted(audit.directory.iterdir()) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give directories away")
def test_no_call_and_no_key_is_written_into_a_directory_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        CallJournal(tmp_path).add(call())
    with pytest.raises(PermissionError, match="belongs to another user"):
        load_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX matter")
def test_a_directory_that_others_may_write_to_becomes_private(audit: AuditLog) -> None:
    audit.directory.mkdir()
    audit.directory.chmod(0o777)
    audit.append(call())
    assert stat.S_IMODE(audit.directory.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(audit: AuditLog) -> None:
    audit.directory.mkdir(mode=0o500)
    with pytest.raises(PermissionError):
        audit.append(call())


def test_what_is_no_file_is_refused(audit: AuditLog) -> None:
    days.file_of(audit.directory, "2026-11-23").mkdir(parents=True)
    with pytest.raises(PermissionError if sys.platform == "win32" else IsADirectoryError):
        audit.append(call())
