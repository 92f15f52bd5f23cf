"""Lines of the audit log about events: every one can be read again, whatever the event says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.config import KEEP_S
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver, line_of_event
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.proxy.request import Event, Observers
from tests.fakes import BOUND_S
from tests.features.approvals.scene import approving

WHO = {"issuer": "i", "subject": "ann"}
ABOUT = {"id": "K7Q2ZD", "group": "up", "kind": "tool", "name": "delete", "rule": "r", **WHO}


def line(event: str, /, **members: object) -> AuditLine:
    """Return the line of an event as it is read from the log."""
    written = line_of_event(AuditLine(v=VERSION, id="1"), Event(event, members))
    data, _ = chain.finish(chain.encode(written))
    assert data.count(b"\n") == 1
    return chain.read_line(data)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("allowed", "success"),
        ("denied", "denied"),
        ("expired", "denied"),
        ("dropped", "denied"),
        ("withdrawn", "cancelled"),
        ("something new", "unknown"),
    ],
)
def test_what_became_of_a_question_is_an_outcome_that_lines_have(said: str, outcome: str) -> None:
    found = line("approval.decided", **ABOUT, outcome=said, by="bob", channel="queue", waited_s=1.5)

    assert found.outcome == outcome
    assert (found.approval, found.approved_by, found.wait_ms) == ("K7Q2ZD", "bob", 1500.0)
    assert (found.issuer, found.subject, found.group, found.name) == ("i", "ann", "up", "delete")
    assert (said.encode() in bytes(found.detail)) == (said != outcome)


def test_a_question_that_is_open_is_pending() -> None:
    assert line("approval.requested", **ABOUT).outcome == "pending"


def test_a_refused_credential_says_where_it_was_shown() -> None:
    found = line("auth.denied", outcome="denied", provider="jwt", reason="it has expired", address="192.0.2.1")

    assert (found.outcome, found.auth, found.address) == ("denied", "jwt", "192.0.2.1")
    assert bytes(found.detail) == b'{"reason":"it has expired"}'


def test_tuples_are_masked_like_lists() -> None:
    found = line("access.changed", changes=("role `ghp_0123456789abcdefghijABCDEFGHIJ012345` added",))

    assert b"ghp_0123456789" not in bytes(found.detail)


def test_what_is_too_long_is_cut() -> None:
    found = line("config.reload", added=[f"server-{number}" for number in range(100_000)], name="x" * 5000)

    assert bytes(found.detail).startswith(b'{"cut":')
    assert len(found.name) == 1000


async def test_all_that_becomes_of_a_question_can_be_read_from_the_log(tmp_path: Path) -> None:
    trail = Trail(tmp_path, Keeping(KEEP_S), stops_writes=True)
    async with approving() as scene:
        scene.proxy.observers = Observers([AuditObserver(trail)])
        client = await scene.join()
        for verdict in ("allow", "deny"):
            call = asyncio.create_task(client.call("up", "delete_file", {"path": "x"}))
            pending = await scene.waits()
            (scene.queue.allow if verdict == "allow" else scene.queue.deny)(pending.id)
            async with asyncio.timeout(BOUND_S):
                await call
    trail.close()

    lines = _read(tmp_path)
    told = [(each.event, each.outcome) for each in lines if each.event.startswith("approval.")]
    assert told == [
        ("approval.requested", "pending"),
        ("approval.decided", "success"),
        ("approval.consumed", "success"),
        ("approval.requested", "pending"),
        ("approval.decided", "denied"),
    ]
    assert [(each.outcome, each.approved_by) for each in lines if each.event == "call"] == [
        ("success", "eve"),
        ("denied", "eve"),
    ]


async def test_the_line_of_a_call_says_why_it_was_denied(tmp_path: Path) -> None:
    trail = Trail(tmp_path, Keeping(KEEP_S), stops_writes=True)
    async with approving(has_queue=False) as scene:
        scene.proxy.observers = Observers([AuditObserver(trail)])
        client = await scene.join()
        await client.call("up", "delete_file", {"path": "x"})
    trail.close()

    (call,) = [each for each in _read(tmp_path) if each.event == "call"]
    assert (call.outcome, call.approval, call.approved_by) == ("denied", "", "")
    assert bytes(call.detail) == b'{"reason":"the client cannot ask"}'


def _read(folder: Path) -> list[AuditLine]:
    (file,) = folder.glob("????-??-??.jsonl")
    return [chain.read_line(each) for each in file.read_bytes().splitlines()]
