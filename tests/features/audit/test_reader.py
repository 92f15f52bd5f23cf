"""The index as the page uses it: it follows the log in the background, and is asked meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.features.audit.index import AuditIndex, file_for
from dynamic_mcp.features.audit.query import LineFilter
from dynamic_mcp.features.audit.reader import IndexReader, NotIndexed
from tests.fakes import BOUND_S
from tests.features.audit.written import calls, line, write_log

EVERYTHING = LineFilter()


def ids(index: AuditIndex) -> list[str]:
    return [each.record.id for _, each in index.find_page(EVERYTHING, 3)]


async def test_nothing_is_asked_before_the_log_is_indexed_once(tmp_path: Path) -> None:
    write_log(tmp_path / "audit", calls(5))
    reader = IndexReader(tmp_path / "audit")
    with pytest.raises(NotIndexed):
        await reader.ask(ids)
    assert await reader.refresh(BOUND_S)
    found = await reader.ask(ids)
    await reader.close()

    assert found == ["1123-4", "1123-3", "1123-2"]


async def test_who_cannot_wait_gets_what_is_indexed_already(tmp_path: Path) -> None:
    write_log(tmp_path / "audit", calls(5))
    reader = IndexReader(tmp_path / "audit")
    await reader.refresh(BOUND_S)
    write_log(tmp_path / "audit", [line(id="new")], n=5)
    is_current = await reader.refresh(0)
    await reader.ask(ids)
    assert await reader.refresh(BOUND_S)
    found = await reader.ask(lambda index: index.count(EVERYTHING))
    await reader.close()

    assert not is_current
    assert found == 6


async def test_an_index_that_cannot_be_written_is_asked_too(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    write_log(log, calls(5))
    file_for(log).parent.parent.mkdir(parents=True, exist_ok=True)
    file_for(log).parent.write_text("no directory")
    reader = IndexReader(log)
    assert await reader.refresh(BOUND_S)
    found = await reader.ask(ids)
    await reader.close()

    assert found[0] == "1123-4"


@pytest.mark.posix_only("a file can be removed while it is open")
async def test_an_index_that_another_process_has_removed_is_built_again(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    write_log(log, calls(5))
    reader = IndexReader(log)
    await reader.refresh(BOUND_S)
    await reader.ask(ids)
    for file in file_for(log).parent.iterdir():
        file.unlink()
    assert await reader.refresh(BOUND_S)
    found = await reader.ask(ids)
    await reader.close()

    assert found[0] == "1123-4"


async def test_it_can_be_closed_while_the_log_is_indexed(tmp_path: Path) -> None:
    write_log(tmp_path / "audit", calls(2000))
    reader = IndexReader(tmp_path / "audit")
    await reader.refresh(0)
    async with asyncio.timeout(BOUND_S):
        await reader.close()
