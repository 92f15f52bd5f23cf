"""Background tasks are held until they are done; a failure is logged, a cancellation is not."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp.test")


async def test_a_task_that_nobody_refers_to_is_held_until_it_is_done() -> None:
    tasks, may_end = TaskSet(log), asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        await may_end.wait()
        done.append("work")

    reference = weakref.ref(tasks.create(work()))
    await asyncio.sleep(0)
    gc.collect()
    assert reference() is not None
    assert len(tasks) == 1
    may_end.set()
    async with asyncio.timeout(5):
        await tasks.wait()
    assert (done, len(tasks)) == (["work"], 0)


async def test_a_task_that_begins_while_others_end_is_waited_for_too() -> None:
    tasks = TaskSet(log)
    done: list[str] = []

    async def second() -> None:
        done.append("second")

    async def first() -> None:
        tasks.create(second())

    tasks.create(first())
    async with asyncio.timeout(5):
        await tasks.wait()
    assert done == ["second"]


async def test_what_a_task_raises_is_logged_as_a_bug_with_its_name_and_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = TaskSet(log)

    async def work() -> None:
        raise ValueError("no such thing")

    task = tasks.create(work(), name="saving")
    async with asyncio.timeout(5):
        await tasks.wait()
    assert task.done()
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "a bug: the task `saving` fails")
    assert "no such thing" in caplog.text


async def test_a_cancelled_task_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet(log)
    task = tasks.create(asyncio.Event().wait())
    tasks.cancel_all()
    async with asyncio.timeout(5):
        await tasks.wait()
    assert task.cancelled()
    assert caplog.records == []
