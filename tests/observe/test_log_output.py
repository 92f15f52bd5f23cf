"""The log is escaped, filtered, rotated by several writers, and never blocks the program."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.log_output import (
    FILE_NAME,
    MAX_ROTATED_FILES,
    STDERR,
    LogFile,
    ServerLog,
    find_log_files,
    group_logger,
    group_of,
)
from tests.windows import is_wine

PACKAGE = Path(__file__).parent.parent / "dynamic_mcp"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Restore the loggers."""
    names = ["", "dynamic_mcp", STDERR]
    before = [
        (log, log.handlers[:], log.level, log.propagate)
        for log in (logging.getLogger(name or None) for name in names)
    ]
    yield
    for log, handlers, level, propagate in before:
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


def records(folder: Path) -> list[dict[str, str]]:
    """Return the records in the files, oldest first."""
    return [json.loads(line) for file in find_log_files(folder) for line in file.read_text().splitlines()]


def test_the_file_gets_what_an_operator_cares_about_and_what_servers_say(tmp_path: Path) -> None:
    serving = ServerLog("error", "text", stderr=os.open(os.devnull, os.O_WRONLY))
    serving.configure("error", "text", folder=tmp_path)
    log = group_logger(logging.getLogger("dynamic_mcp.test"), "a")
    log.info("group %s is ready", "a")
    log.debug("group %s: a detail", "a")
    group_logger(logging.getLogger(STDERR), "a").debug("group %s on stderr: %s", "a", "\x1b]0;title")
    serving.close(within_s=5)
    assert [(each["group"], each["message"]) for each in records(tmp_path)] == [
        ("a", "group a is ready"),
        ("a", "group a on stderr: \x1b]0;title"),
    ]
    assert "\x1b" not in (tmp_path / FILE_NAME).read_text()


def test_stderr_is_text_without_control_characters_or_json(tmp_path: Path) -> None:
    read, write = os.pipe()
    serving = ServerLog("info", "text", stderr=write)
    group_logger(logging.getLogger("dynamic_mcp"), "a").warning("group %s: %s", "a", "\x1b[2J")
    serving.close(within_s=5)
    assert os.read(read, 1000) == b"dynamic-mcp: group a: \\x1b[2J\n"
    as_json = ServerLog("info", "json", stderr=write)
    group_logger(logging.getLogger("dynamic_mcp"), "a").warning("group %s: %s", "a", "b")
    as_json.close(within_s=5)
    line = json.loads(os.read(read, 1000))
    assert (line["level"], line["group"], line["message"]) == ("warning", "a", "group a: b")


def test_a_flood_on_a_servers_stderr_costs_the_file_no_more_than_its_share(tmp_path: Path) -> None:
    serving = ServerLog("error", "text", stderr=os.open(os.devnull, os.O_WRONLY))
    serving.configure("error", "text", folder=tmp_path)
    for number in range(5 * log_output.STDERR_BURST):
        group_logger(logging.getLogger(STDERR), "loud").debug("group %s on stderr: %s", "loud", str(number))
    group_logger(logging.getLogger(STDERR), "quiet").debug("group %s on stderr: %s", "quiet", "a word")
    serving.close(within_s=5)
    of = [each["group"] for each in records(tmp_path)]
    assert log_output.STDERR_BURST <= of.count("loud") < 2 * log_output.STDERR_BURST
    assert of.count("quiet") == 1


def test_nobody_who_reads_stderr_stops_nothing_and_costs_lines(tmp_path: Path) -> None:
    read, write = os.pipe()
    serving = ServerLog("info", "text", stderr=write)
    for _ in range(3 * log_output.MAX_QUEUED_RECORDS):
        logging.getLogger("dynamic_mcp").info("%s", "x" * 1000)
    serving.close(within_s=0.01)
    os.close(read)  # the thread that still writes gets an error, and ends


def test_the_file_is_rotated_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 100)
    log = LogFile(tmp_path)
    for number in range(100):
        log.write(f'{{"n": {number}, "pad": "{"x" * 20}"}}\n')
    assert len(find_log_files(tmp_path)) <= MAX_ROTATED_FILES + 1
    assert json.loads(find_log_files(tmp_path)[-1].read_text().splitlines()[-1])["n"] >= 97
    assert all(file.stat().st_size <= 150 for file in find_log_files(tmp_path))


def test_several_writers_share_a_file_across_rotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 4000)

    def write(name: str) -> None:
        log = LogFile(tmp_path)
        for number in range(200):
            log.write(json.dumps({"name": name, "n": number}) + "\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [json.loads(line) for file in find_log_files(tmp_path) for line in file.read_text().splitlines()]
    for name in "abc":
        numbers = [each["n"] for each in found if each["name"] == name]
        assert numbers == sorted(numbers)
    # Wine looks for the end of a file and then writes there: of two lines at the same moment, it may keep one.
    # Windows does both at once: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/nf-ntifs-ntwritefile
    if not is_wine():
        assert len(found) == 3 * 200, "all that was written fits into the files that are kept"
    assert 1 < len(find_log_files(tmp_path)) <= MAX_ROTATED_FILES + 1


def test_a_rotation_in_the_middle_of_another_one_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 10)  # each line fills a file
    one, other = LogFile(tmp_path), LogFile(tmp_path)
    written: list[str] = []
    replace = Path.replace

    def write(log: LogFile) -> None:
        written.append(f"line number {len(written)}\n")
        log.write(written[-1])

    def replace_and_let_the_other_write(path: Path, target: Path) -> Path:
        replaced = replace(path, target)
        with monkeypatch.context() as inner:
            inner.setattr(Path, "replace", replace)
            write(other)
        return replaced

    monkeypatch.setattr(Path, "replace", replace_and_let_the_other_write)
    for _ in range(3):
        write(one)
    found = "".join(file.read_text() for file in find_log_files(tmp_path)).splitlines(keepends=True)
    assert found == written[-len(found) :]
    assert len(find_log_files(tmp_path)) == MAX_ROTATED_FILES, "no place of a file is empty"


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    LogFile(tmp_path / "file").write("a line\n")


def test_every_record_about_a_group_names_it_first_and_carries_its_name() -> None:
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        loggers = {
            ast.unparse(node.targets[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("group_logger(")
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            levels = {"log", "debug", "info", "warning", "error", "exception"}
            if node.func.attr in levels and texts and re.search(r"\bgroup\b", texts[0]):
                assert re.match(r"[^%]*\bgroup %s", texts[0]), f"{file.name}: {texts[0]}"
                logger = ast.unparse(node.func.value)
                has_extra = any(keyword.arg == "extra" for keyword in node.keywords)
                has_group = has_extra or logger in loggers or logger.startswith("group_logger(")
                assert has_group, f"{file.name}: {texts[0]}"


def test_a_record_keeps_what_else_it_carries_beside_its_group(caplog: pytest.LogCaptureFixture) -> None:
    group_logger(logging.getLogger("other"), "github").warning("%s is %s", "it", "there", extra={"attempt": 2})
    (record,) = caplog.records
    assert (group_of(record), record.__dict__["attempt"], record.getMessage()) == ("github", 2, "it is there")


def test_a_record_about_no_group_has_none_whatever_it_says() -> None:
    record = logging.makeLogRecord({"msg": "group %s is ready", "args": ("x",)})
    assert group_of(record) is None


def test_a_file_that_another_writer_has_open_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = LogFile(tmp_path)
    idle.write("first\n")
    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 10)
    LogFile(tmp_path).write("second\n")
    assert [file.name for file in find_log_files(tmp_path)] == ["dynamic-mcp.log.1"]
    idle.write("third\n")
    assert [file.read_bytes() for file in find_log_files(tmp_path)] == [b"first\nsecond\n", b"third\n"]
