"""Calls that wait at one replica, and are decided at another that shares its store: each once, by one decision."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.approvals.shared import CALLS, SharedCall, SharedCalls
from dynamic_mcp.features.approvals.store import FOLDER, ApprovalAnswer, ApprovalDecision, QueuedApproval
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy as DynamicMcp
from dynamic_mcp.system.shared_store import SharedStore, StoredEntry, StoreSpace
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config
from tests.features.approvals.queue_server import BOUND_S, Proxy, waiting
from tests.features.approvals.scene import ANSWERS, DONE, RULES, begin
from tests.features.cluster.store_servers import until
from tests.features.shared_stores import StorePair
from tests.policy.rules import access_of, person

TAKEN = ApprovalAnswer(outcome="taken")


class ReplicaOfCalls(Proxy):
    """A replica with a folder of its own, and the person there."""

    def __init__(self, folder: Path, store: SharedStore) -> None:
        super().__init__(folder)
        self.shared = SharedCalls(store, self.server, folder, "here.json")
        self.person = ApprovalClient(folder)

    async def ask(self, pending: QueuedApproval) -> None:
        await self.server.put(pending)
        await self.shared.add(pending)

    async def shows(self, id: str) -> QueuedApproval:
        """Wait until the person sees a call."""
        async with asyncio.timeout(BOUND_S):
            while not (found := await asyncio.to_thread(self.person.find, id)):  # noqa: ASYNC110 - in a folder
                await asyncio.sleep(0.01)
        return found[0]

    async def forgets(self, id: str) -> None:
        """Wait until the person sees a call no more."""
        async with asyncio.timeout(BOUND_S):
            while await asyncio.to_thread(self.person.find, id):  # noqa: ASYNC110 - in a folder
                await asyncio.sleep(0.01)

    async def allow(self, id: str, arguments: bytes = b"") -> ApprovalAnswer:
        decision = ApprovalDecision(id=id, verdict="allow", by="eve", arguments=arguments)
        return await asyncio.to_thread(self.person.decide, decision)

    async def close(self) -> None:
        await self.shared.close()
        await self.server.close()


@pytest.fixture
async def pair(store_pair: StorePair, tmp_path: Path) -> AsyncIterator[tuple[ReplicaOfCalls, ReplicaOfCalls]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [ReplicaOfCalls(tmp_path / name, store) for name, store in zip("ab", store_pair, strict=True)]
        for each in made:
            stack.push_async_callback(each.close)
        yield made[0], made[1]


async def test_a_call_is_decided_at_another_replica(pair: tuple[ReplicaOfCalls, ReplicaOfCalls]) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    shown = await other.shows("7F3K2M")
    assert (shown.group, shown.arguments, shown.config) == ("files", b'{"path": "/a"}', "here.json")
    assert await other.allow("7F3K2M", b'{"path": "/b"}') == TAKEN
    assert [(each.by, each.arguments) for each in one.received] == [("eve", b'{"path": "/b"}')]
    assert other.received == []
    for each in pair:
        await each.forgets("7F3K2M")


async def test_of_two_decisions_at_two_replicas_one_counts(pair: tuple[ReplicaOfCalls, ReplicaOfCalls]) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    await other.shows("7F3K2M")
    answers = await asyncio.gather(one.allow("7F3K2M"), other.allow("7F3K2M"))
    assert len(one.received) == 1
    assert sorted(each.outcome == "taken" for each in answers) == [False, True]


async def test_a_decision_that_its_replica_refuses_is_told_and_the_call_still_waits(
    pair: tuple[ReplicaOfCalls, ReplicaOfCalls],
) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    await other.shows("7F3K2M")
    refused = await other.allow("7F3K2M", b'{"path": "/etc"}')
    assert (refused.outcome, refused.reason) == ("refused", "`/etc` may not be deleted")
    assert one.received == []
    assert await other.allow("7F3K2M") == TAKEN
    assert len(one.received) == 1


async def test_a_call_that_ends_is_shown_nowhere(pair: tuple[ReplicaOfCalls, ReplicaOfCalls]) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    await other.shows("7F3K2M")
    one.server.remove("7F3K2M")
    one.shared.remove("7F3K2M")
    await other.forgets("7F3K2M")
    assert (await other.allow("7F3K2M")).outcome == "gone"


async def test_a_replica_that_is_gone_answers_no_decision(
    pair: tuple[ReplicaOfCalls, ReplicaOfCalls], store_pair: StorePair
) -> None:
    one, other = pair
    left = SharedCall(waiting("7F3K2M"), "a replica that was killed")
    await store_pair[0].put(CALLS, "7F3K2M", wire.encode(left), 60)
    await other.shows("7F3K2M")
    refused = await other.allow("7F3K2M")
    assert (refused.outcome, refused.reason) == ("refused", "the replica whose call it is does not answer")
    assert one.received == []
    assert (await other.shows("7F3K2M")).id == "7F3K2M", "it can be decided later"


async def test_a_decision_that_was_withdrawn_while_it_was_read_does_not_count(
    pair: tuple[ReplicaOfCalls, ReplicaOfCalls], store_pair: StorePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    await other.shows("7F3K2M")
    monkeypatch.setattr("dynamic_mcp.features.approvals.shared._ANSWER_WITHIN_S", 0.8)
    read = store_pair[0].list_entries

    async def read_slowly(space: StoreSpace) -> list[StoredEntry]:
        found = await read(space)
        await asyncio.sleep(1.2)
        return found

    monkeypatch.setattr(store_pair[0], "list_entries", read_slowly)
    refused = await other.allow("7F3K2M")
    assert (refused.outcome, refused.reason) == ("refused", "the replica whose call it is does not answer")
    await asyncio.sleep(1.5)
    assert one.received == []
    monkeypatch.undo()
    assert await other.allow("7F3K2M") == TAKEN
    assert len(one.received) == 1


async def test_without_the_store_a_call_is_decided_at_its_own_replica_alone(
    pair: tuple[ReplicaOfCalls, ReplicaOfCalls], store_pair: StorePair
) -> None:
    one, other = pair
    await one.ask(waiting("7F3K2M"))
    await other.shows("7F3K2M")
    await store_pair[1].close()
    refused = await other.allow("7F3K2M")
    assert refused.outcome == "refused"
    assert "the shared store is closed" in refused.reason
    await store_pair[0].close()
    assert await one.allow("7F3K2M") == TAKEN
    await until(lambda: one.received)


async def test_replicas_with_one_folder_show_a_call_once(store_pair: StorePair, tmp_path: Path) -> None:
    one, other = (ReplicaOfCalls(tmp_path / "a", store) for store in store_pair)
    try:
        await one.ask(waiting("7F3K2M"))
        await one.ask(waiting("AAAAAA"))
        assert await other.allow("7F3K2M") == TAKEN
        assert len(one.received) == 1
        assert [each.id for each in await asyncio.to_thread(other.person.list_pending)] == ["AAAAAA"]
    finally:
        await one.close()
        await other.close()


async def test_a_call_at_one_proxy_is_sent_once_it_is_allowed_at_another(
    store_pair: StorePair, tmp_path: Path
) -> None:
    upstreams = [FakeUpstream(ANSWERS) for _ in store_pair]
    proxies = [asking_proxy(upstream, tmp_path / name) for name, upstream in zip("ab", upstreams, strict=True)]
    try:
        for proxy, store in zip(proxies, store_pair, strict=True):
            proxy.set_shared_store(store)
        client = Client(proxies[0], authentication=person("ann", "dev"))
        await client.initialize()
        calling = begin(client)
        there = ApprovalClient(tmp_path / "b" / FOLDER)
        async with asyncio.timeout(BOUND_S):
            while not (found := await asyncio.to_thread(there.list_pending)):  # noqa: ASYNC110 - in a folder
                await asyncio.sleep(0.01)
        (pending,) = found
        assert upstreams[0].heard("tools/call") == []
        decision = ApprovalDecision(id=pending.id, verdict="allow", by="eve")
        assert await asyncio.to_thread(there.decide, decision) == TAKEN
        async with asyncio.timeout(BOUND_S):
            assert await calling == DONE
        assert [len(each.heard("tools/call")) for each in upstreams] == [1, 0]
        proxies[0].set_shared_store(None)  # serves on by itself
        assert not (await client.call("up", "get_file", {})).get("isError")
    finally:
        for proxy in proxies:
            await proxy.close()


async def test_a_call_that_waits_is_shown_again_when_another_config_opens_the_store_anew(
    store_pair: StorePair, tmp_path: Path
) -> None:
    upstreams = [FakeUpstream(ANSWERS) for _ in store_pair]
    one, other = (asking_proxy(each, tmp_path / name) for name, each in zip("ab", upstreams, strict=True))
    people = [ApprovalClient(tmp_path / name / FOLDER) for name in "ab"]
    try:
        one.set_shared_store(store_pair[0])
        other.set_shared_store(store_pair[1])
        client = Client(one, authentication=person("ann", "dev"))
        await client.initialize()
        calling = begin(client)
        (pending,) = await listed(people[1])
        one.set_shared_store(store_pair[1])
        other.set_shared_store(store_pair[0])
        await asyncio.sleep(1)  # what was there is gone
        assert await listed(people[1]) == [pending]
        decision = ApprovalDecision(id=pending.id, verdict="allow", by="eve")
        assert await asyncio.to_thread(people[1].decide, decision) == TAKEN
        async with asyncio.timeout(BOUND_S):
            assert await calling == DONE
    finally:
        await one.close()
        await other.close()


async def listed(there: ApprovalClient) -> list[QueuedApproval]:
    """Wait until a person sees calls, and return them."""
    async with asyncio.timeout(BOUND_S):
        while not (found := await asyncio.to_thread(there.list_pending)):  # noqa: ASYNC110 - in a folder
            await asyncio.sleep(0.01)
    return found


def asking_proxy(upstream: FakeUpstream, folder: Path) -> DynamicMcp:
    """Return a proxy of the rules of these tests, whose queue is in a folder."""
    access = access_of(roles={"dev": list(RULES)})
    quiet = Approval(channels=("queue",), notify=Notify(desktop=False))
    config = config_of(group_config("up"), access=access, approval=quiet)
    return DynamicMcp(config, opener=Opener(up=[upstream]), state_folder=folder)
