"""One question about the calls that a script names, and what it does not cover."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

from msgspec.structs import replace

from dynamic_mcp.config.access import LOCAL_NAME
from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.approvals.human import HumanApproval
from dynamic_mcp.features.approvals.step import AskForApproval
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.proxy.chain import Services
from dynamic_mcp.proxy.request import Observers
from tests.fakes import FakeClock, Json
from tests.features.approvals.scene import READ_S, FakeQueue, Notes, accept
from tests.features.scripts.scene import SLOW_S, Scene, ScriptClient, echo, patiently
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import access_of

ASKS: Json = {"tools": ["echo"], "effect": "ask"}
CAN_ASK: Json = {"elicitation": {"form": {}}}
LOOP = 'for n in range(3):\n    await call("up", "echo", {"n": n})\nreturn await call("other", "echo", {"n": 9})'


class ApprovalScene(Scene):
    """Two servers whose `echo` wants a person asked, by forms and a queue with the time of a test."""

    def __init__(self, *rules: Json, approval: Approval | None = None, **changes: Json) -> None:
        self.time = FakeClock()
        self.notes = Notes()
        self._queue: FakeQueue | None = None
        self._is_open = asyncio.Event()
        access = access_of(roles={"dev": [{}, *(rules or (ASKS,))]}, people={LOCAL_NAME: ["dev"]})
        steps = {"approval": partial(AskForApproval, make=self._make_approval)}
        super().__init__(echo, steps=steps, access=access, approval=approval or Approval(), **changes)
        self.proxy.observers = Observers([self.notes])

    async def queue(self) -> FakeQueue:
        """Return the queue, once the rules have opened it."""
        async with asyncio.timeout(SLOW_S):
            await self._is_open.wait()
        assert self._queue is not None
        return self._queue

    async def client_that_asks(self) -> ScriptClient:
        client = ScriptClient(self.proxy, bound_s=SLOW_S)
        await client.initialize(capabilities=CAN_ASK)
        return client

    async def answer(self, client: ScriptClient, decision: str, times: int = 1) -> str:
        """Answer a form, and return what it said."""
        question = await patiently(client.hears, "elicitation/create", times)
        await self.time.pass_(READ_S)
        client.reply(question, accept(decision))
        text: str = question["params"]["message"]
        return text

    def calls(self) -> int:
        """Return how many calls have reached the servers."""
        return len(self.upstream.heard("tools/call")) + len(self.other.heard("tools/call"))

    def _make_approval(self, services: Services) -> HumanApproval:
        return HumanApproval(services.config, services.note, open_server=self._open_server, clock=self.time)

    def _open_server(self, receive: Json) -> FakeQueue:
        self._queue = FakeQueue(receive)
        self._is_open.set()
        return self._queue


@contextlib.asynccontextmanager
async def asking(*rules: Json, approval: Approval | None = None, **changes: Json) -> AsyncIterator[ApprovalScene]:
    scene = ApprovalScene(*rules, approval=approval, **changes)
    try:
        yield scene
    finally:
        async with asyncio.timeout(SLOW_S):
            await scene.proxy.close()


async def test_a_person_is_asked_once_about_all_calls_that_a_script_names() -> None:
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value(LOOP))
        message = await scene.answer(client, "once")
        assert await running == {"n": 9}
        assert len(client.heard("elicitation/create")) == 1
        assert scene.calls() == 4
    assert "- up.echo up to 50 times, with any arguments\n- other.echo once, with any arguments\n" in message
    assert "The arguments are not fixed" in message
    assert LOOP in message
    assert [note.by for note in scene.notes.approvals] == ["user"] * 5  # of each call, and of the script
    assert {note.id for note in scene.notes.approvals} == {scene.notes.approvals[0].id}
    assert scene.notes.names == ["approval.requested", "approval.decided", *["approval.consumed"] * 4]


async def test_a_script_that_is_denied_does_not_begin() -> None:
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.failure('print("begun")\n' + LOOP))
        await scene.answer(client, "deny")
        said = await running
        assert "the script was not approved: the user denied it" in said
        assert "begun" not in said
        assert scene.calls() == 0


async def test_more_calls_than_were_shown_are_asked_about_each() -> None:
    code = 'name = "echo"\nawait call("up", "echo", {"n": 1})\nreturn await call("up", name, {"n": 2})'
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value(code))
        assert "up.echo once" in await scene.answer(client, "once")
        second = await scene.answer(client, "once", 2)
        assert '"n": 2' in second
        assert await running == {"n": 2}


async def test_names_that_are_not_written_in_the_script_are_asked_about_each() -> None:
    code = 'for group in ["up", "other"]:\n    await call(group, "echo", {"n": 1})\nreturn 1'
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value(code))
        for number in (1, 2):
            assert "Allow tool `echo`" in await scene.answer(client, "once", number)
        assert await running == 1


async def test_what_was_allowed_ends_with_the_run() -> None:
    async with asking() as scene:
        client = await scene.client_that_asks()
        for number in (1, 2):
            running = asyncio.create_task(client.value('return await call("up", "echo", {"n": 1})'))
            assert "Allow a script?" in await scene.answer(client, "once", number)
            assert await running == {"n": 1}
        plain = asyncio.create_task(client.call("up", "echo", {"n": 1}))
        assert "Allow tool `echo`" in await scene.answer(client, "once", 3)
        await plain


async def test_a_rule_that_looks_at_arguments_asks_with_the_arguments() -> None:
    async with asking({**ASKS, "arguments": {"$.n": {"enum": [7]}}}) as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value('await call("up", "echo", {"n": 1})\n' + LOOP.replace("9", "7")))
        message = await scene.answer(client, "once")
        assert "Allow tool `echo` of `other`" in message
        assert '"n": 7' in message
        assert await running == {"n": 7}


async def test_without_approvals_for_any_arguments_each_call_is_asked_about() -> None:
    async with asking(approval=Approval(remember=())) as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value('return await call("up", "echo", {"n": 1})'))
        assert "Allow tool `echo`" in await scene.answer(client, "once")
        await running


async def test_what_is_allowed_for_the_session_already_is_not_asked_about() -> None:
    async with asking() as scene:
        client = await scene.client_that_asks()
        plain = asyncio.create_task(client.call("up", "echo", {"n": 1}))
        await scene.answer(client, "session")
        await plain
        running = asyncio.create_task(client.value(LOOP))
        message = await scene.answer(client, "once", 2)
        assert "other.echo once" in message
        assert "up.echo" not in message.partition("Script:")[0]
        await running
        assert await client.value('return await call("up", "echo", {"n": 4})') == {"n": 4}


async def test_rules_that_change_meanwhile_end_what_was_allowed() -> None:
    code = 'await call("up", "echo", {"n": 1})\nreturn await call("up", "echo", {"n": 2})'
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.failure(code))
        await patiently(client.hears, "elicitation/create")
        rules: list[Json] = [{}, ASKS, {"tools": ["other_*"], "effect": "ask"}]
        access = access_of(roles={"dev": rules}, people={LOCAL_NAME: ["dev"]})
        scene.proxy.apply(replace(scene.config, access=access))
        assert "the config has changed" in await running
        assert scene.calls() == 0


async def test_a_client_without_forms_waits_in_the_queue_with_the_whole_script() -> None:
    async with asking() as scene:
        client = await scene.client()
        running = asyncio.create_task(client.value(LOOP, {"a": 1}))
        queue = await scene.queue()
        pending = await patiently(queue.waits)
        assert (pending.kind, pending.name, pending.group) == ("script", "run_dynamic_script", "up, other")
        assert pending.offered == ("once",)
        shown = pending.arguments.decode()
        assert all(part in shown for part in ("up.echo up to 50 times", "for n in range(3):", '"a": 1'))
        assert "a script cannot be changed" in queue.allow(pending.id, arguments={"script": []})
        assert "cannot be allowed for `hour`" in queue.allow(pending.id, "hour")
        assert queue.allow(pending.id) == ""
        assert await running == {"n": 9}
        assert queue.put_count == 1


async def test_a_script_that_is_too_long_for_a_form_is_never_shown_in_part() -> None:
    code = "# " + "x" * 5000 + '\nreturn await call("up", "echo", {"n": 1})'
    async with asking(approval=Approval(channels=("client",))) as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value(code))
        assert "Allow tool `echo`" in await scene.answer(client, "once")
        assert await running == {"n": 1}
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.value(code))
        queue = await scene.queue()
        pending = await patiently(queue.waits)
        assert "x" * 5000 in pending.arguments.decode()
        queue.allow(pending.id)
        assert await running == {"n": 1}
        assert client.heard("elicitation/create") == []


async def test_a_modern_client_is_asked_by_input_required() -> None:
    async with asking() as scene:
        client = ModernClient(scene.proxy)
        params = {"name": "run_dynamic_script", "arguments": {"code": LOOP}}
        asked = await patiently(client.answer_to, client.begin("tools/call", params))
        (question,) = asked["result"]["inputRequests"].values()
        assert LOOP in question["params"]["message"]
        assert scene.calls() == 0
        await scene.time.pass_(READ_S)
        again = client.begin("tools/call", {**params, **retry_of(asked, accept("once"))})
        answer = await patiently(client.answer_to, again)
        assert answer["result"]["content"][0]["text"] == '{"n": 9}'
        assert scene.calls() == 4


async def test_characters_that_deceive_are_shown_as_escapes() -> None:
    code = 'return await call("up", "echo", {"n": 1})  # \u202e\x1b[2J'
    async with asking() as scene:
        client = await scene.client_that_asks()
        running = asyncio.create_task(client.run(code))
        message = await scene.answer(client, "deny")
        await running
        assert "\\u202e\\x1b[2J" in message


async def test_a_script_without_calls_that_need_approval_asks_nobody() -> None:
    async with asking({"tools": ["hidden"], "effect": "ask"}, scripts=Scripts()) as scene:
        client = await scene.client_that_asks()
        assert await client.value(LOOP) == {"n": 9}
        assert client.heard("elicitation/create") == []
