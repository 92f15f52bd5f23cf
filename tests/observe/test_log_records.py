"""The log file, read from its end."""

from __future__ import annotations

import json
from pathlib import Path

from dynamic_mcp.observe.log_output import FILE_NAME, rotated_path
from dynamic_mcp.observe.log_records import Record, find_last


def write(file: Path, *numbers: int) -> None:
    lines = [json.dumps({"time": f"2026-11-23T12:00:{number:02}", "message": str(number)}) for number in numbers]
    file.write_text("\n".join([*lines, "not a record", ""]))


def every(record: Record) -> bool:
    return True


def numbers(records: list[Record]) -> list[int]:
    return [int(each["message"]) for each in records]


def test_the_last_records_come_first_also_from_files_that_were_rotated(tmp_path: Path) -> None:
    write(rotated_path(tmp_path / FILE_NAME, 1), 1, 2, 3)
    write(tmp_path / FILE_NAME, 4, 5)

    assert numbers(find_last(tmp_path, every, 4)) == [5, 4, 3, 2]
    assert numbers(find_last(tmp_path, lambda record: record["message"] != "4", 9)) == [5, 3, 2, 1]
    assert numbers(find_last(tmp_path, every, 9, since="2026-11-23T12:00:03")) == [5, 4, 3]


def test_without_a_log_there_are_no_records(tmp_path: Path) -> None:
    assert find_last(tmp_path / "none", every, 9) == []
