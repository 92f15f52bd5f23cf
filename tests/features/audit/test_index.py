"""The index of the audit log: it follows the files, answers by them, and can be thrown away at any time."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.index import AuditIndex, file_for
from dynamic_mcp.features.audit.query import LineCursor, LineFilter
from dynamic_mcp.identity import Principal
from dynamic_mcp.system.paths import cache_dir
from tests.features.audit.written import NOON, calls, line, write_log
from tests.windows import is_private, is_wine

DAY = "2026-11-23"
EVERYTHING = LineFilter()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with thirty calls of one day."""
    write_log(tmp_path / "audit", calls(30))
    return tmp_path / "audit"


@pytest.fixture
def index(log: Path) -> Iterator[AuditIndex]:
    opened = AuditIndex(log)
    opened.refresh()
    yield opened
    opened.close()


def ids(index: AuditIndex, wanted: LineFilter = EVERYTHING, most: int | None = None) -> list[str]:
    return [each.record.id for each in index.find(wanted, most)]


def ask(log: Path, wanted: LineFilter = EVERYTHING) -> list[str]:
    """Return what a command that starts now finds."""
    index = AuditIndex(log)
    try:
        index.refresh()
        return ids(index, wanted)
    finally:
        index.close()


def numbered(*numbers: int) -> list[str]:
    return [f"1123-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (LineFilter(who="ann", group="db"), [3, 9, 15, 21, 27]),
        (LineFilter(who="*n*", tool="create*", since=int(NOON.timestamp() * 1000) + 20_000), [21, 24, 27]),
        (LineFilter(only_errors=True), [9, 19, 29]),
        (LineFilter(slow_ms=28.5), [28, 29]),
        (LineFilter(until=int(NOON.timestamp() * 1000) + 2000), [0, 1]),
        (LineFilter(who="[ab]*"), []),
        (LineFilter(who="an"), []),
        (LineFilter(client="curs?r", decision="deny"), []),
        (LineFilter(event="auth.*"), []),
        (LineFilter(config="/elsewhere"), []),
    ],
)
def test_all_that_is_wanted_must_be_so(index: AuditIndex, wanted: LineFilter, numbers: list[int]) -> None:
    assert ids(index, wanted) == numbered(*numbers)
    assert index.count(wanted) == len(numbers)


def test_the_last_lines_come_oldest_first(index: AuditIndex) -> None:
    assert ids(index, most=3) == numbered(27, 28, 29)
    assert ids(index, LineFilter(who="bob"), most=2) == numbered(25, 28)


def test_a_tool_is_found_by_the_name_that_the_client_wrote_too(log: Path) -> None:
    write_log(log, [line(id="x", name="delete_repo", shown="github__delete")])
    assert ask(log, LineFilter(tool="github__*")) == ["x"]


def test_lines_that_were_added_are_found_and_those_of_a_file_that_is_gone_are_not(
    log: Path, index: AuditIndex
) -> None:
    write_log(log, calls(2, begin=NOON + timedelta(days=1)))
    index.refresh()
    assert ids(index, most=3) == ["1123-29", "1124-0", "1124-1"]
    days.file_of(log, DAY).unlink()
    index.refresh()
    assert ids(index) == ["1124-0", "1124-1"]


def test_half_a_line_is_found_once_it_is_whole(log: Path, index: AuditIndex) -> None:
    file = days.file_of(log, DAY)
    before = file.read_bytes()
    write_log(log, [line(id="late", at=NOON + timedelta(hours=1))])
    after = file.read_bytes()
    file.write_bytes(after[:-10])
    index.refresh()
    assert ids(index) == numbered(*range(30))
    file.write_bytes(after)
    index.refresh()
    assert ids(index)[-1] == "late"
    assert after.startswith(before)


def test_a_file_that_was_written_anew_is_read_anew(log: Path, index: AuditIndex) -> None:
    file = days.file_of(log, DAY)
    file.write_bytes(file.read_bytes().replace(b'"subject":"ann"', b'"subject":"mal"'))
    index.refresh()
    assert len(ids(index, LineFilter(who="mal"))) == 10
    assert ids(index, LineFilter(who="ann")) == []
    file.unlink()
    write_log(log, calls(40, every=timedelta(minutes=1)))
    index.refresh()
    assert len(ids(index)) == 40


def test_what_is_no_line_is_there_and_says_so(log: Path, index: AuditIndex) -> None:
    with days.file_of(log, DAY).open("ab") as file:
        file.write(b'{"v":1,"at":7}\nnonsense\n\xff\n')
    write_log(log, [line(id="next", at=NOON + timedelta(hours=1))])
    index.refresh()
    assert [each.record.event for each in index.find(EVERYTHING, 4)] == ["damaged"] * 3 + ["call"]
    assert index.count(LineFilter(only_errors=True)) == 6


def test_the_index_is_private_and_in_the_cache(index: AuditIndex, log: Path) -> None:
    file = file_for(log)
    assert file.is_relative_to(cache_dir())
    shared = {each.suffix for each in file.parent.iterdir() if not is_private(each)}
    # A file inherits the access list of its directory on Windows, and not in Wine:
    # https://learn.microsoft.com/windows/win32/secauthz/ace-inheritance
    assert is_private(file.parent)
    assert shared <= ({".sqlite-wal", ".sqlite-shm", ".lock"} if is_wine() else set())


def test_an_index_that_was_removed_or_damaged_is_made_again(log: Path) -> None:
    everything = numbered(*range(30))
    assert ask(log) == everything
    file = file_for(log)
    for damage in (b"", b"nonsense" * 1000, file.read_bytes()[:8192] + b"\xff" * 40_000):
        file.write_bytes(damage)
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        assert ask(log) == everything
    file.unlink()
    assert ask(log) == everything


def test_an_index_that_is_damaged_while_it_is_open_is_made_again(index: AuditIndex, log: Path) -> None:
    file = file_for(log)
    other = sqlite3.connect(file)
    other.execute("DROP TABLE lines")
    other.close()
    index.refresh()
    assert ask(log) == numbered(*range(30))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_an_index_that_cannot_be_kept_is_made_in_memory(log: Path) -> None:
    folder = file_for(log).parent
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    assert ask(log) == numbered(*range(30))
    assert list(folder.iterdir()) == []


def test_a_cache_that_is_no_directory_does_not_matter(log: Path) -> None:
    folder = file_for(log).parent
    folder.parent.mkdir(parents=True)
    folder.touch()
    assert ask(log) == numbered(*range(30))


def test_commands_at_the_same_time_index_each_line_once(log: Path) -> None:
    write_log(log, calls(3000, begin=NOON + timedelta(days=1)))
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(ask(log))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(each) for each in found] == [3030] * 4
    assert len(ask(log)) == 3030


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert ask(tmp_path / "none") == []


# --- following -------------------------------------------------------------------------------------------------


def test_following_yields_each_new_line_once_over_midnight_rotation_and_whatever_happens(
    log: Path, index: AuditIndex
) -> None:
    follow = index.follow(LineFilter(event="call"))

    def new() -> list[str]:
        return [each.record.id for each in next(follow)]

    assert new() == []
    write_log(log, [line(id="a"), line("read", id="b")])
    assert new() == ["a"]
    write_log(log, calls(1, begin=NOON + timedelta(days=1)))
    assert new() == ["1124-0"]
    file = days.file_of(log, "2026-11-24")
    file.rename(log / "rotated")
    write_log(log, [line(id="c", at=NOON + timedelta(days=1))], n=1)
    assert new() == ["c"]
    os.utime(file)  # somebody has touched it, so it is read anew
    assert new() == []
    if sys.platform != "win32":  # where nobody can remove an index that is open
        file_for(log).unlink()
    write_log(log, [line(id="d", at=NOON + timedelta(days=1))], n=2)
    assert new() == ["d"]
    days.file_of(log, DAY).unlink()
    assert new() == []


def test_what_calls_cost_is_counted_by_whom_or_what_they_are_of(index: AuditIndex) -> None:
    by_person = index.count_calls(EVERYTHING, "person")
    assert {each.key for each in by_person} == {("ann",), ("bob",), ("eve",)}
    assert sum(each.calls for each in by_person) == 30
    assert sum(each.errors for each in by_person) == 3
    assert sum(each.bytes for each in by_person) == sum(range(100, 130))
    of_ann = index.count_calls(LineFilter(who="ann", tool="create*"), "tool")
    assert {each.key for each in of_ann} == {("github", "create_issue"), ("db", "create_issue")}


# --- what the page asks ----------------------------------------------------------------------------------------


def at_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def test_pages_go_from_the_newest_line_to_the_oldest_without_a_gap(index: AuditIndex) -> None:
    found: list[str] = []
    before: LineCursor | None = None
    while page := index.find_page(EVERYTHING, 7, before):
        found += [each.record.id for _, each in page]
        before = page[-1][0]

    assert found == numbered(*range(29, -1, -1))
    assert index.find_newest(EVERYTHING) == index.find_page(EVERYTHING, 1)[0][0]


def test_the_lines_of_an_owner_are_those_of_this_issuer(log: Path) -> None:
    write_log(log, [line(id="own", issuer="idp", subject="ann"), line(id="refused", subject="ann", decision="deny")])
    index = AuditIndex(log)
    index.refresh()
    own = index.find_page(LineFilter(owner=Principal("idp", "ann")), 50)
    of_nobody = index.find_page(LineFilter(owner=Principal("unknown", "ann")), 50)
    index.close()

    assert [each.record.id for _, each in own] == ["own"]
    assert of_nobody == []


@pytest.mark.parametrize(
    "wanted",
    [
        LineFilter(only_calls=True),
        LineFilter(only_calls=True, config="/c.json"),
        LineFilter(only_calls=True, group="db"),
        LineFilter(owner=Principal("", "ann")),
    ],
)
def test_what_was_used_over_time_is_the_same_counted_before_or_now(tmp_path: Path, wanted: LineFilter) -> None:
    of_config = (structs.replace(each, config="/c.json") for each in calls(50, every=timedelta(minutes=7)))
    write_log(tmp_path / "audit", [*calls(50, every=timedelta(minutes=9)), line("auth.denied", subject="eve")])
    write_log(tmp_path / "audit", of_config, n=51)
    index = AuditIndex(tmp_path / "audit")
    index.refresh()
    begin, end = at_ms(NOON), at_ms(NOON + timedelta(hours=10))
    steps = index.count_steps(wanted, begin, end, 20)
    lines = [each.record for each in index.find(wanted)]
    tools = index.count_uses(structs.replace(wanted, group="", since=begin + 60_000), "tool", 50)
    since = structs.replace(wanted, group="", since=begin + 60_000, only_calls=True)
    used = [(each.record.group, each.record.name) for each in index.find(since)]
    index.close()

    expected = [0] * 20
    for each in lines:
        expected[(at_ms(datetime.fromisoformat(each.at)) - begin) * 20 // (end - begin)] += 1
    assert [each.calls for each in steps] == expected
    assert sum(each.errors for each in steps) == sum(each.outcome == "failure" for each in lines)
    assert {each.key: each.calls for each in tools} == {key: used.count(key) for key in used}


def test_lines_of_a_file_that_is_gone_are_not_counted(log: Path, index: AuditIndex) -> None:
    begin = at_ms(NOON)
    wanted = LineFilter(only_calls=True)
    assert sum(each.calls for each in index.count_steps(wanted, begin, begin + 3_600_000, 5)) == 30
    days.file_of(log, DAY).unlink()
    index.refresh()

    assert sum(each.calls for each in index.count_steps(wanted, begin, begin + 3_600_000, 5)) == 0
    assert index.count_uses(LineFilter(since=0), "client", 5) == []


def test_the_indexes_of_earlier_versions_are_removed(log: Path) -> None:
    older = file_for(log, 1)
    older.parent.mkdir(parents=True, exist_ok=True)
    older.write_bytes(b"old")
    AuditIndex(log).close()

    assert not older.exists()
    assert file_for(log).exists()


def test_a_glob_may_match_any_number_of_names(tmp_path: Path) -> None:
    lines = (line(id=str(number), name=f"tool_{number}", at=NOON) for number in range(2100))
    write_log(tmp_path / "audit", [*lines, line(id="other", name="other", at=NOON)])
    index = AuditIndex(tmp_path / "audit")
    index.refresh()
    begin = at_ms(NOON)
    counts = [index.count_steps(LineFilter(tool=glob), begin, begin + 60_000, 3) for glob in ("tool_*", "o*", "none")]
    index.close()

    assert [[each.calls for each in found] for found in counts] == [[2100, 0, 0], [1, 0, 0], [0, 0, 0]]
