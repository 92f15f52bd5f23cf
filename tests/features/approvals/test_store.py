"""Calls that wait for a person: the proxy's server and the commands' client, over one folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.store import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalStore,
    StoredApproval,
    make_id,
    parse_id,
)
from tests.features.approvals.queue_server import running, waiting
from tests.program import BOUND_S
from tests.windows import is_private, is_wine


def of_size(size: int) -> bytes:
    return msgspec.json.encode({"a": "x" * size})


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name != "lock")


async def decide(folder: Path, decision: ApprovalDecision) -> ApprovalAnswer:
    return await asyncio.to_thread(ApprovalClient(folder).decide, decision)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await asyncio.to_thread(condition):
            pass


async def test_what_waits_is_listed_until_it_is_decided(tmp_path: Path) -> None:
    older, newer = waiting("AAAAAA", since=1.0), waiting("BBBBBB")
    async with running(tmp_path, newer, older) as proxy:
        client = ApprovalClient(tmp_path)
        assert client.list_pending() == [older, newer]
        decision = ApprovalDecision(id="BBBBBB", verdict="allow", scope="hour", by="me", arguments=b'{"path":1}')
        assert await decide(tmp_path, decision) == ApprovalAnswer(outcome="taken")
        assert proxy.received == [decision]
        assert client.list_pending() == [older]
    assert names(tmp_path) == []


async def test_a_refused_decision_leaves_the_call_waiting(tmp_path: Path) -> None:
    async with running(tmp_path, waiting()) as proxy:
        bad = ApprovalDecision(id="7F3K2M", verdict="allow", arguments=b'{"path": "/etc"}')
        assert await decide(tmp_path, bad) == ApprovalAnswer(outcome="refused", reason="`/etc` may not be deleted")
        assert await decide(tmp_path, structs.replace(bad, arguments=b"")) == ApprovalAnswer(outcome="taken")
        assert len(proxy.received) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"scope": "session"}, "not for `session`"), ({"arguments": b"[1]"}, "arguments are an object")],
)
async def test_a_decision_that_cannot_count_never_reaches_the_proxy(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    async with running(tmp_path, waiting()) as proxy:
        answer = await decide(tmp_path, structs.replace(ApprovalDecision(id="7F3K2M", verdict="allow"), **changes))
        assert answer.outcome == "refused"
        assert why in answer.reason
        assert proxy.received == []


async def test_a_call_is_decided_once_by_whoever_is_first(tmp_path: Path) -> None:
    async with running(tmp_path, waiting()) as proxy:
        decision = ApprovalDecision(id="7F3K2M", verdict="allow")
        answers = await asyncio.gather(*(decide(tmp_path, decision) for _ in range(5)))
        assert sorted(answer.outcome for answer in answers) == ["gone"] * 4 + ["taken"]
        assert proxy.received == [decision]


async def test_who_comes_second_decides_if_the_first_decision_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, waiting()) as proxy:
        bad = ApprovalDecision(id="7F3K2M", verdict="allow", arguments=b'{"path": "/etc"}')
        good = ApprovalDecision(id="7F3K2M", verdict="deny")
        answers = await asyncio.gather(decide(tmp_path, bad), decide(tmp_path, good))
        assert answers[1].outcome == "taken"
        assert answers[0].outcome in ("refused", "gone")
        assert proxy.received == [good]


async def test_a_decision_whose_command_dies_counts_once_and_its_file_is_removed_in_time(tmp_path: Path) -> None:
    store = ApprovalStore(tmp_path)
    async with running(tmp_path, waiting()) as proxy:
        pending = waiting()
        decision = ApprovalDecision(id="7F3K2M", verdict="allow")
        with store.locked("7F3K2M"):
            store.write(StoredApproval(pending=pending, decision=decision, nonce="of a dead command"))
        await proxy.has_received.wait()
        await until(lambda: not ApprovalClient(tmp_path).list_pending())
        assert (await decide(tmp_path, decision)).outcome == "gone"
        assert proxy.received == [decision]
    assert names(tmp_path) == ["7F3K2M.json"]
    assert ApprovalClient(tmp_path, now=lambda: time.time() + 301).list_pending() == []
    assert names(tmp_path) == []


async def test_a_decision_that_the_proxy_has_is_not_withdrawn(tmp_path: Path) -> None:
    store, pending = ApprovalStore(tmp_path), waiting()
    decision = ApprovalDecision(id="7F3K2M", verdict="allow")
    store.create(pending)
    deciding = asyncio.create_task(asyncio.to_thread(ApprovalClient(tmp_path).decide, decision, 0.2))
    await until(lambda: (stored := store.read("7F3K2M")) is not None and stored.decision is not None)
    with store.locked("7F3K2M"):
        stored = store.read("7F3K2M")
        assert stored is not None
        store.write(structs.replace(stored, is_claimed=True))
    answer = await deciding
    assert (answer.outcome, "has the decision" in answer.reason) == ("silent", True)
    stored = store.read("7F3K2M")
    assert stored is not None
    assert stored.decision == decision


async def test_a_file_that_is_removed_while_its_call_waits_is_written_again(tmp_path: Path) -> None:
    async with running(tmp_path, waiting()):
        (tmp_path / "7F3K2M.json").unlink()
        await until(lambda: [each.id for each in ApprovalClient(tmp_path).list_pending()] == ["7F3K2M"])


async def test_what_is_decided_elsewhere_or_expires_waits_no_more(tmp_path: Path) -> None:
    soon = time.time() + 0.05
    async with running(tmp_path, waiting("AAAAAA"), waiting("BBBBBB", expires=soon)) as proxy:
        proxy.server.remove("AAAAAA")
        await until(lambda: not names(tmp_path))
        for id in ("AAAAAA", "BBBBBB"):
            assert (await decide(tmp_path, ApprovalDecision(id=id, verdict="allow"))).outcome == "gone"
        assert proxy.received == []


async def test_a_decision_after_the_end_counts_for_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, waiting()) as proxy:
        kept = (tmp_path / "7F3K2M.json").read_bytes()
    (tmp_path / "7F3K2M.json").write_bytes(kept)
    (tmp_path / "7F3K2M.json").chmod(0o600)
    answer = await asyncio.to_thread(
        ApprovalClient(tmp_path).decide, ApprovalDecision(id="7F3K2M", verdict="allow"), 0.05
    )
    assert (answer.outcome, proxy.received) == ("silent", [])
    assert names(tmp_path) == ["7F3K2M.json"]


async def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "approvals"
    folder.mkdir(mode=0o755)
    async with running(folder, waiting()):
        assert is_private(folder)
        shared = {file.name for file in folder.iterdir() if not is_private(file)}
    # A file inherits the access list of its directory on Windows, and not in Wine:
    # https://learn.microsoft.com/windows/win32/secauthz/ace-inheritance
    assert shared <= ({"lock"} if is_wine() else set())


async def test_what_cannot_be_shown_to_a_person_is_not_put(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    large = waiting(arguments=of_size(17 << 20))
    for folder, pending in ((tmp_path / "file" / "approvals", waiting()), (tmp_path / "approvals", large)):
        async with running(folder) as proxy:
            with pytest.raises(OSError, match=r"exists|larger than"):
                await proxy.server.put(pending)


async def test_texts_that_are_not_unicode_are_shown_as_escapes(tmp_path: Path) -> None:
    odd = waiting(config="/c\udcff", name="x\ud800", arguments=b'{"a":"\\ud800"}')
    async with running(tmp_path, odd):
        (shown,) = ApprovalClient(tmp_path).list_pending()
        assert (shown.config, shown.name, bytes(shown.arguments)) == ("/c\\udcff", "x\\ud800", b'{"a":"\\ud800"}')


def test_ids_are_found_as_people_type_them() -> None:
    assert parse_id(" 7f3ko\n") == "7F3K0"
    assert parse_id("il") == "11"
    assert [parse_id(text) for text in ("", "../..", "7F3K2M7", "7F3K2*", "ßß")] == [""] * 5
    ids = {make_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(parse_id(id) == id for id in ids)
