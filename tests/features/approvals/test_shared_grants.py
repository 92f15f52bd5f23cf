"""What a user allows at one replica holds at another that shares its store, and what is for one call, for one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.approvals.questions import MAX_GRANTS_OF_ONE_PRINCIPAL, ApprovalGrant, ApprovalKey, Verdict
from dynamic_mcp.features.approvals.shared_grants import GRANTS, SharedGrant, SharedGrants
from dynamic_mcp.features.approvals.store import FOLDER, ApprovalDecision, QueuedApproval, Scope
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.shared_store import SharedStore, StoreFailure, StoreUnavailable
from dynamic_mcp.upstream.open import OpenLink
from tests.cli.commands import CliRunner
from tests.fakes import BOUND_S, Client, FakeUpstream, Opener, config_of, group_config, text_of, tool
from tests.features.approvals.scene import ANSWERS, ONE, RULES, Json, status_of
from tests.features.approvals.test_commands import on_terminal, run
from tests.features.approvals.test_modern import ModernOpener
from tests.features.approvals.test_questions import ANN, BOB, key_of
from tests.features.cluster.store_servers import until_true
from tests.features.shared_stores import StorePair
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import access_of, person
from tests.upstream.modern import ModernUpstream, complete

SESSION: Json = None  # a grant for an hour needs none
_DELETE = ("up", "delete_file", ONE)
_WITH_PROGRESS: Json = {"_meta": {"progressToken": 7}}


class AskingReplica:
    """A replica whose rules want a user asked, with the user there, and a client without sessions."""

    def __init__(self, folder: Path, store: SharedStore, opener: OpenLink | None = None) -> None:
        self.upstream = FakeUpstream(ANSWERS)
        self.store = store
        self.proxy = Proxy(self._config(RULES), opener=opener or Opener(up=[self.upstream]), state_folder=folder)
        self.proxy.set_shared_store(store)
        self.user = ApprovalClient(folder / FOLDER)
        self.client = self.join()

    def join(self, subject: str = "ann", name: str = "modern") -> ModernClient:
        info = {"name": name, "version": "1"}
        return ModernClient(self.proxy, capabilities={}, info=info, authentication=person(subject, "dev"))

    async def join_session(self, shared_id: str = "") -> Client:
        client = Client(self.proxy, authentication=person("ann", "dev"), shared_id=shared_id)
        await client.initialize()
        return client

    def apply(self, *rules: Mapping[str, Json]) -> None:
        self.proxy.apply(self._config(rules))

    def _config(self, rules: tuple[Mapping[str, Json], ...]) -> Json:
        quiet = Approval(channels=("queue",), hold_s=0.3, notify=Notify(desktop=False))
        return config_of(group_config("up"), access=access_of(roles={"dev": list(rules)}), approval=quiet)

    async def call(self, client: ModernClient | None = None, args: Json = None) -> dict[str, Json]:
        """Call the tool that has to be allowed, and return the result, or that nobody has allowed it at once."""
        answer = await (client or self.client).call("up", "delete_file", args or ONE)
        result: dict[str, Json] = answer["result"]
        return result

    async def call_and_wait(self) -> dict[str, Json]:
        """Call the tool, and return the result once a user has decided: a call with progress waits long."""
        answer = await self.client.call(*_DELETE, **_WITH_PROGRESS)
        result: dict[str, Json] = answer["result"]
        return result

    async def asks(self, client: ModernClient | None = None) -> str:
        """Call until a user is asked, and return the id of the question, for which nothing waits."""
        result = await self.call(client)
        assert status_of(result)["status"] == "pending", result
        id: str = status_of(result)["id"]
        return id

    async def waits(self) -> QueuedApproval:
        """Wait until the user sees a call of this replica."""
        async with asyncio.timeout(BOUND_S):
            while not (found := await asyncio.to_thread(self.user.list_pending)):  # noqa: ASYNC110 - in a folder
                await asyncio.sleep(0.01)
        return found[-1]

    async def list_ids(self) -> list[str]:
        return [each.id for each in await asyncio.to_thread(self.user.list_pending)]

    async def decide(self, id: str, scope: Scope = "once", *, reason: str = "", arguments: bytes = b"") -> None:
        verdict = "deny" if reason else "allow"
        decision = ApprovalDecision(id=id, verdict=verdict, scope=scope, by="eve", reason=reason, arguments=arguments)  # type: ignore[arg-type]
        answer = await asyncio.to_thread(self.user.decide, decision)
        assert answer.outcome == "taken", answer

    @property
    def sent(self) -> int:
        return len(self.upstream.heard("tools/call"))


Two = tuple[AskingReplica, AskingReplica]


@pytest.fixture
async def two(store_pair: StorePair, tmp_path: Path) -> AsyncIterator[Two]:
    replicas = [AskingReplica(tmp_path / name, store) for name, store in zip("ab", store_pair, strict=True)]
    yield replicas[0], replicas[1]
    for each in replicas:
        await each.proxy.close()


def cut_off(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object, **named: object) -> None:
        raise StoreUnavailable(StoreFailure.DOWN)

    for name in ("get", "put", "compare_and_set", "take", "delete", "list_entries", "count_changes"):
        monkeypatch.setattr(store, name, fail)


async def test_what_is_allowed_for_an_hour_at_one_replica_is_not_asked_at_another(two: Two) -> None:
    one, other = two
    calling = asyncio.create_task(one.call_and_wait())
    await one.decide((await one.waits()).id, "hour")
    assert text_of(await calling) == "done"
    for _ in range(2):
        assert text_of(await other.call(args={"path": "/other"})) == "done"
    session = await other.join_session()
    assert text_of(await session.call(*_DELETE)) == "done", "another client of the same user"
    assert (await other.join("bob").call(*_DELETE))["result"]["isError"], "another user"


async def test_an_approval_that_waits_for_its_call_is_used_once_at_any_replica(two: Two) -> None:
    one, other = two
    await one.decide(await one.asks())
    answers = await asyncio.gather(*(each.call() for each in two * 3))
    assert sorted(text_of(each) == "done" for each in answers) == [*[False] * 5, True]
    assert one.sent + other.sent == 1
    assert (await other.call())["isError"]


async def test_a_denial_that_waits_for_its_call_is_told_at_any_replica(two: Two) -> None:
    one, other = two
    await one.decide(await one.asks(), reason="not today")
    assert "not today" in text_of(await other.call())
    assert status_of(await other.call())["status"] == "pending", "and the next one is asked about"


async def test_a_call_that_waits_is_sent_once_its_tool_is_allowed_for_an_hour_elsewhere(two: Two) -> None:
    one, other = two
    calling = asyncio.create_task(other.call_and_wait())
    await other.waits()
    there = (await one.call(args={"path": "/other"}))["_meta"]["dynamic-mcp/approval"]["id"]
    await one.decide(there, "hour")
    assert text_of(await calling) == "done"
    assert (one.sent, other.sent) == (0, 1)


async def test_a_call_that_waits_is_sent_once_an_equal_one_is_allowed_elsewhere(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two

    async def lose(*args: object) -> None:
        """Send no message, which may always be lost."""

    monkeypatch.setattr(other.store, "publish", lose)
    id = await one.asks()
    calling = asyncio.create_task(other.call_and_wait())
    await until_listed(other, 2)
    await one.decide(id)
    assert text_of(await calling) == "done"
    assert (one.sent, other.sent) == (0, 1)


async def test_a_call_that_is_repeated_at_another_replica_is_asked_about_once(two: Two) -> None:
    one, other = two
    id = await one.asks()
    calling = asyncio.create_task(other.call_and_wait())
    async with asyncio.timeout(BOUND_S):
        while id in (listed := await other.list_ids()) or not listed:  # noqa: ASYNC110 - in a folder
            await asyncio.sleep(0.01)
    assert len(listed) == 1
    await other.decide(listed[0])
    assert text_of(await calling) == "done"


async def test_calls_that_wait_at_two_replicas_are_two(two: Two) -> None:
    one, other = two
    calls = [asyncio.create_task(each.call_and_wait()) for each in two]
    await until_listed(other, 2)
    for id in await other.list_ids():
        await other.decide(id)
    assert [text_of(each) for each in await asyncio.gather(*calls)] == ["done", "done"]
    assert (one.sent, other.sent) == (1, 1)


async def until_listed(replica: AskingReplica, count: int) -> None:
    """Wait until a user sees so many calls."""
    async with asyncio.timeout(BOUND_S):
        while len(await replica.list_ids()) < count:  # noqa: ASYNC110 - in a folder
            await asyncio.sleep(0.01)


async def test_new_arguments_are_those_of_the_call_at_any_replica(two: Two) -> None:
    one, other = two
    await one.decide(await one.asks(), arguments=b'{"path": "/two"}')
    assert text_of(await other.call()) == "done"
    assert [each["params"]["arguments"] for each in other.upstream.heard("tools/call")] == [{"path": "/two"}]


async def test_a_client_without_sessions_has_what_was_allowed_for_its_session_at_all_replicas(two: Two) -> None:
    one, other = two
    await one.decide(await one.asks(), "session")
    assert text_of(await other.call(args={"path": "/other"})) == "done"
    assert (await other.call(other.join(name="another client")))["isError"]


async def test_what_is_allowed_for_a_session_goes_on_with_it_at_another_replica(two: Two) -> None:
    one, other = two
    session = await one.join_session("a session")
    calling = asyncio.create_task(session.call(*_DELETE, **_WITH_PROGRESS))
    await one.decide((await one.waits()).id, "session")
    assert text_of(await calling) == "done"
    session.session.close()
    moved = await other.join_session("a session")
    assert text_of(await moved.call(*_DELETE)) == "done"
    assert (await (await other.join_session("another one")).call(*_DELETE))["isError"]


async def test_what_is_allowed_for_a_session_of_a_replica_is_for_no_other(two: Two) -> None:
    one, other = two
    session = await one.join_session()
    calling = asyncio.create_task(session.call(*_DELETE, **_WITH_PROGRESS))
    await one.decide((await one.waits()).id, "session")
    assert text_of(await calling) == "done"
    assert text_of(await session.call(*_DELETE)) == "done"
    assert (await other.call())["isError"]
    assert await one.store.list_entries(GRANTS) == []


async def test_a_retry_of_an_allowed_call_may_be_at_another_replica(store_pair: StorePair, tmp_path: Path) -> None:
    upstreams = [counting_input() for _ in store_pair]
    one, other = (
        AskingReplica(tmp_path / name, store, ModernOpener(upstream))
        for name, store, upstream in zip("ab", store_pair, upstreams, strict=True)
    )
    try:
        calling = asyncio.create_task(one.client.call(*_DELETE, **_WITH_PROGRESS))
        await one.decide((await one.waits()).id)
        asked = await calling
        retry = retry_of(asked)
        asked = await other.client.call(*_DELETE, **retry)
        assert asked["result"]["requestState"] == "state 2"
        again = await one.client.call(*_DELETE, **retry)
        assert "that was not approved" in text_of(again["result"]), "it passes once"
        assert text_of((await one.client.call(*_DELETE, **retry_of(asked)))["result"]) == "done"
        assert [len(each.heard("tools/call")) for each in upstreams] == [2, 1]
    finally:
        for each in (one, other):
            await each.proxy.close()


def counting_input() -> ModernUpstream:
    """Return a server whose tool needs two answers, the state of which it knows at any replica."""

    def answer(params: Json) -> Json:
        number = int(params.get("requestState", "state 0").partition(" ")[2]) + 1
        if number == 3:
            return complete(content=[{"type": "text", "text": "done"}])
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
        state = {"inputRequests": {"q": question}, "requestState": f"state {number}"}
        return complete() | {"resultType": "input_required", **state}

    tools = complete(tools=[tool("delete_file")], ttlMs=60_000, cacheScope="private")
    return ModernUpstream(**{"tools/list": tools, "tools/call": answer})


async def test_other_rules_at_one_replica_end_what_was_allowed_at_all(two: Two) -> None:
    one, other = two
    await one.decide(await one.asks(), "hour")
    assert text_of(await other.call()) == "done"
    one.apply(*RULES, {"tools": ["more_*"], "effect": "ask"})
    await until_true(lambda: has_ended(other.store))
    await one.asks()

    async def asks() -> bool:
        return bool((await other.call()).get("isError"))

    await until_true(asks)


async def has_ended(store: SharedStore) -> bool:
    return not await store.list_entries(GRANTS)


async def test_replicas_with_other_rules_have_other_grants(two: Two) -> None:
    one, other = two
    other.apply(*RULES, {"tools": ["more_*"], "effect": "ask"})
    await one.decide(await one.asks(), "hour")
    await other.asks()


async def test_without_the_store_users_are_asked_again(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    await one.decide(await one.asks(), "hour")
    assert text_of(await other.call()) == "done"
    for each in two:
        cut_off(each.store, monkeypatch)

    async def asks() -> bool:
        return all([(await each.call()).get("isError") for each in two])

    await until_true(asks)


async def test_what_is_allowed_without_the_store_holds_at_its_replica(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    id = await one.asks()
    cut_off(one.store, monkeypatch)
    await one.decide(id)
    assert text_of(await one.call()) == "done"
    await one.decide(await one.asks(), "hour")
    for _ in range(2):
        assert text_of(await one.call()) == "done"
    await other.asks()


async def test_a_grant_that_may_or_may_not_be_in_the_store_is_not_used_twice(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    id = await one.asks()
    put = one.store.put

    async def lose_the_answer(*args: Json) -> Json:
        await put(*args)
        raise StoreUnavailable(StoreFailure.SLOW, may_have_run=True)

    monkeypatch.setattr(one.store, "put", lose_the_answer)
    await one.decide(id)
    answers = [await each.call() for each in (other, one, other, one)]
    assert [text_of(each) == "done" for each in answers] == [True, False, False, False]


async def test_a_used_grant_does_not_come_back_with_a_store_that_lost_writes(
    two: Two, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "file" not in request.node.name:
        pytest.skip("a copy of a row needs a file")
    one, other = two
    id = await one.asks()
    await one.decide(id)
    with contextlib.closing(sqlite3.connect(tmp_path / "shared" / "store.sqlite")) as file:
        (row,) = file.execute("SELECT * FROM entries WHERE space = ?", (GRANTS.name,)).fetchall()
        assert text_of(await other.call()) == "done"
        with file:
            file.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
            file.execute("UPDATE changes SET number = number + 1 WHERE space = ?", (GRANTS.name,))
    await until_true(lambda: has_ended(one.store))
    await other.asks()
    assert one.sent + other.sent == 1


# --- the grants themselves ----------------------------------------------------------------------------


class Changes:
    """Counts what a replica is told."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
async def grants(store_pair: StorePair) -> AsyncIterator[tuple[SharedGrants, SharedGrants]]:
    made = [SharedGrants(store, "rules", Changes(), print) for store in store_pair]
    yield made[0], made[1]
    for each in made:
        await each.close()


def grant(number: int = 0, **verdict: Json) -> ApprovalGrant:
    return ApprovalGrant(f"Q{number}", structs.replace(Verdict("allowed", by="eve"), **verdict), 0.0)


async def test_a_grant_that_is_too_large_to_be_listed_by_all_is_kept_by_its_replica(
    grants: tuple[SharedGrants, SharedGrants],
) -> None:
    large = grant(reason="x" * 4000)
    assert not await grants[0].add(key_of(), large, group="up", left_s=60)
    assert await grants[0].add(key_of(), grant(), group="up", left_s=60)


async def test_the_grants_of_one_user_are_bounded_and_the_oldest_ends(
    grants: tuple[SharedGrants, SharedGrants], store_pair: StorePair
) -> None:
    one, other = grants
    for number in range(MAX_GRANTS_OF_ONE_PRINCIPAL + 2):
        key = key_of(arguments=b"%d" % number)
        await one.add(key, structs.replace(grant(number), uses=2), group="up", left_s=60)
    await one.add(key_of(BOB), grant(), group="up", left_s=60)
    found = [each.read(SharedGrant) for each in await store_pair[1].list_entries(GRANTS)]
    of_ann = [each.id for each in found if each is not None and each.principal == ANN]
    assert len(of_ann) == MAX_GRANTS_OF_ONE_PRINCIPAL
    assert "Q0" not in of_ann
    assert len(found) == MAX_GRANTS_OF_ONE_PRINCIPAL + 1
    assert repr(other).startswith("<SharedGrants")


_CONFIG = {
    "mcpServers": {
        "up": {
            "command": "up",
            "approve": ["delete_*"],
            "guards": [{"tools": ["write"], "argument": "$.path", "deny": "^/etc/", "effect": "ask"}],
        }
    },
    "settings": {
        "access": {
            "roles": {
                "dev": [
                    {"servers": ["*"]},
                    {"tools": ["x"], "arguments": {"$.n": {"enum": [1, "b"]}}, "effect": "ask"},
                ],
                "ops": [{"servers": ["up"], "when": "name == 'x'", "effect": "ask"}],
            },
            "people": {"ann": ["dev", "ops"], "local": ["dev"]},
        }
    },
}
_PRINT_DIGEST = """
import os, sys
from pathlib import Path
from dynamic_mcp.config.read import read
from dynamic_mcp.features.approvals.human import rules_of
from dynamic_mcp.features.approvals.shared_grants import digest
print(digest(rules_of(read(Path(sys.argv[1]), os.environ))))
"""


def test_rules_have_the_same_digest_in_all_processes(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_CONFIG))

    def print_digest(seed: str) -> str:
        command = [sys.executable, "-c", _PRINT_DIGEST, str(file)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout

    assert print_digest("1") == print_digest("2") != ""


async def test_commands_list_what_is_allowed_and_revoke_it_at_all_replicas(cli: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    store = {"store": f"sqlite:///{tmp_path / 'store.sqlite'}", "keys": ["k" * 32], "name": "a"}
    file.write_text(
        json.dumps({"mcpServers": {}, "settings": {"cluster": {"peers": ["http://127.0.0.1:1"], **store}}})
    )
    shared = LocalStore(tmp_path / "store.sqlite")
    grants = SharedGrants(shared, "rules", lambda: None, print)
    keys = [key_of(arguments=None), key_of(BOB)]
    try:
        await grants.add(keys[0], structs.replace(grant(1, scope="hour"), id="AAAAAA", uses=2), group="up", left_s=60)
        await grants.add(keys[1], structs.replace(grant(2), id="BBBBBB"), group="up", left_s=60)
        listed = await run(cli, "grants", "-c", str(file), "--json")
        facts = listed.json
        assert [(each["id"], each["subject"], each["scope"]) for each in facts] == [
            ("AAAAAA", "ann", "hour"),
            ("BBBBBB", "bob", "once"),
        ]
        shown = await on_terminal(cli, "grants", "-c", str(file))
        assert "one call" in shown.out
        await run(cli, "revoke", "AA", "-c", str(file))
        await until_true(lambda: is_ended(grants, keys[0]))
        unknown = await run(cli, "revoke", "AA", "-c", str(file))
        assert (unknown.code, "`dynamic-mcp approve grants` lists them" in unknown.err) == (2, True)
        both = await run(cli, "revoke", "--all", "AA", "-c", str(file))
        assert "give an ID, or --all" in both.err
        done = await run(cli, "revoke", "--all", "-c", str(file))
        assert "BBBBBB was revoked at all replicas" in done.err
        assert await shared.list_entries(GRANTS) == []
    finally:
        await grants.close()
        await shared.close()


async def is_ended(grants: SharedGrants, key: ApprovalKey) -> bool:
    return not grants.covers(key, SESSION)


async def test_without_a_store_there_is_nothing_to_revoke(cli: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"mcpServers": {}}')
    refused = await run(cli, "grants", "-c", str(file))
    assert refused.code != 0
    assert "has no `settings.cluster.store`" in refused.err
