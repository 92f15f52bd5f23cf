"""A line is one line of ASCII whatever is in it, and every change to it is found."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import AuditLine, Damaged
from tests.examples import examples

LINE = AuditLine(v=1, n=7, at="2026-11-23T12:00:00.000Z", event="call", name="echo", ms=1.5, prev=chain.ZERO)


def finished(line: AuditLine = LINE) -> bytes:
    return chain.finish(chain.encode(line))[0]


@examples(100)
@given(st.text(st.characters(), max_size=30))
def test_any_name_makes_one_printable_line_that_reads_as_it_was(name: str) -> None:
    data = finished(structs.replace(LINE, name=name))
    assert data.endswith(b"\n")
    assert data[:-1].decode("ascii").isprintable()
    if not any("\ud800" <= each <= "\udfff" for each in name):
        assert chain.read_line(data).name == name
    assert chain.read_link(data).n == 7


def test_opaque_json_is_put_on_the_line_too() -> None:
    data = finished(structs.replace(LINE, arguments=Raw('{\n\t"a": "\u2028\u202e\U0001f600\u007f"\r\n}'.encode())))
    assert data.count(b"\n") == 1
    assert json.loads(data)["arguments"] == {"a": "\u2028\u202e\U0001f600\u007f"}


def test_the_hash_is_that_of_the_line_without_it() -> None:
    data = finished()
    line = chain.read_line(data)
    assert chain.finish(data[:-76] + b"}") == (data, line.hash)


@examples(100)
@given(st.data())
def test_a_changed_byte_is_found(choices: st.DataObject) -> None:
    data = bytearray(finished()[:-1])
    at = choices.draw(st.integers(0, len(data) - 1))
    data[at] = choices.draw(st.integers(0, 255).filter(lambda byte: byte != data[at]))
    with pytest.raises(Damaged):
        chain.read_link(bytes(data))


@pytest.mark.parametrize("data", [b"", b"{}", b"\n", b"x" * 100, finished()[1:], finished()[:-2], finished() + b" "])
def test_what_is_no_line_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        chain.read_link(data)


@examples(100)
@given(st.dates(), st.integers(0, 400))
def test_days_are_kept_whole(today: date, kept: int) -> None:
    listed = [date.fromordinal(max(today.toordinal() - ago, 1)).isoformat() for ago in range(500)]
    gone = days.expired(listed, today.isoformat(), kept * 86_400.0)
    assert today.isoformat() not in gone
    assert {day for day in listed if day not in gone} == set(listed[: kept + 1])


@pytest.mark.parametrize("name", ["seals.jsonl", "2026-13-01.jsonl", "2026-11-23.jsonl.1", "x2026-11-23.jsonl"])
def test_other_files_are_no_days(name: str) -> None:
    assert days.day_of(Path(name)) is None
