"""A session that another process goes on with: what is noted while it runs, and what is done with the notes."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.mcp import revisions, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.continuation import Continuation, Resumption, SessionJournal
from dynamic_mcp.session.legacy import Session
from tests.fakes import Json, settled
from tests.session.desk import Desk, ignore_status

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"sampling": {}},
    "clientInfo": {"name": "a", "version": "1"},
}


HOST = {**HELLO, "capabilities": {"extensions": {"io.modelcontextprotocol/ui": {}}}}


class RecordingDesk(Desk):
    """Remembers what it was asked, and refuses what `refused` names."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refused: set[str] = set()

    async def answer(self, request: Request) -> Frame:
        self.asked.append(request.method)
        if request.method in self.refused:
            raise DynamicMcpError("no")
        if request.method in ("hold", "ask"):
            return await super().answer(request)
        return wire.result_frame({})


class Process:
    """One of the processes that serve a session, as its window sees it."""

    def __init__(self, continuation: Continuation | None = None) -> None:
        self.continuation = continuation or Continuation()
        self.desk = RecordingDesk()
        self.lines: list[Json] = []
        self.notes: dict[bytes, bytes] = dict(self.continuation.notes)
        self.replies: dict[int, Json] = {}
        self._journal = SessionJournal(self._keep)
        connection = ClientConnection(
            lambda line: self.lines.append(json.loads(line)),
            journal=self._journal,
            first_id=self.continuation.first_id,
        )
        self.session = Session(connection, self.desk)

    async def resume(self) -> None:
        """Go on with what was left."""
        resumption = Resumption(self.session, lambda line: self.lines.append(json.loads(line)), self._journal)
        await resumption.resume(self.continuation, self.reply)
        await settled()

    async def request(self, number: int, method: str, params: Json = None) -> None:
        """Receive a request as the line with this number."""
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self.session.receive(json.dumps(body).encode(), lambda line: self.reply(number, line))
        await settled()

    def reply(self, number: int, line: bytes) -> None:
        assert number not in self.replies
        self.replies[number] = json.loads(line) if line else None

    def methods(self) -> list[str]:
        """Return what the client was sent besides answers."""
        return [line["method"] for line in self.lines if "method" in line]

    def _keep(self, name: bytes, note: bytes) -> None:
        self.notes.pop(name, None)
        if note:
            self.notes[name] = note


def line(method: str, id: Json = 1, params: Json = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}).encode()


async def test_what_lasts_is_done_again_and_the_client_sees_nothing_of_it() -> None:
    before = Process()
    await before.request(1, "initialize", HELLO)
    await before.request(2, "logging/setLevel", {"level": "debug"})
    await before.request(3, "resources/subscribe", {"uri": "file:///a"})
    await before.request(4, "resources/subscribe", {"uri": "file:///b"})
    await before.request(5, "resources/unsubscribe", {"uri": "file:///a"})
    await before.request(6, "tools/call", {"name": "x"})

    after = Process(Continuation(1, before.notes))
    await after.resume()

    assert after.session.is_initialized
    assert after.session.hello.name == "a"
    assert after.desk.asked == ["logging/setLevel", "resources/subscribe"]
    assert after.methods() == [f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")]
    assert after.replies == {}


async def test_an_app_that_was_opened_stays_open() -> None:
    before = Process()
    await before.request(1, "initialize", HOST)
    await before.request(2, "resources/read", {"uri": "ui://a/page", "_meta": {"progressToken": 1}})
    await before.request(3, "resources/read", {"uri": "file:///a"})
    notes = [json.loads(note) for note in before.notes.values()]

    after = Process(Continuation(1, before.notes))
    await after.resume()

    assert [note["params"] for note in notes[1:]] == [{"uri": "ui://a/page"}]
    assert after.desk.asked == ["resources/read"]


async def test_of_very_many_pages_the_latest_stay_open_in_all_processes_after() -> None:
    before = Process()
    await before.request(1, "initialize", HOST)
    for number in range(2, 80):
        await before.request(number, "resources/read", {"uri": f"ui://item/{number}"})
    await before.request(80, "resources/read", {"uri": "ui://item/20"})
    after = Process(Continuation(1, before.notes))
    await after.resume()
    await after.request(1, "resources/read", {"uri": "ui://new/page"})

    kept = [name for name in after.notes if name.startswith(b"page ")]
    assert kept == [
        b'page "ui://%s"' % name for name in (b"item/%d" % n for n in [*range(17, 20), *range(21, 80)])
    ] + [
        b'page "ui://item/20"',
        b'page "ui://new/page"',
    ]


async def test_of_pages_with_very_long_names_as_many_stay_open_as_the_notes_have_room_for() -> None:
    process = Process()
    await process.request(1, "initialize", HOST)
    for number in range(2, 12):
        await process.request(number, "resources/read", {"uri": f"ui://item/{number}/{'x' * 8000}"})

    kept = [name[:16] for name in process.notes if name.startswith(b"page ")]
    assert kept == [b'page "ui://item/' for _ in range(4)]
    assert sum(map(len, process.notes)) < 40_000


async def test_a_page_that_a_client_reads_that_shows_none_does_not_last() -> None:
    process = Process()
    await process.request(1, "initialize", HELLO)
    await process.request(2, "resources/read", {"uri": "ui://a/page"})

    assert list(process.notes) == [b"initialize"]


async def test_what_was_refused_does_not_last() -> None:
    process = Process()
    process.desk.refused = {"logging/setLevel", "resources/subscribe"}
    await process.request(1, "logging/setLevel", {"level": "loud"})
    await process.request(2, "resources/subscribe", {"uri": "file:///a"})

    assert process.notes == {}


async def test_the_last_of_several_levels_lasts() -> None:
    process = Process()
    for number, level in enumerate(("debug", "error")):
        await process.request(number, "logging/setLevel", {"level": level})

    (note,) = process.notes.values()
    assert json.loads(note)["params"] == {"level": "error"}


async def test_an_upstream_that_refuses_its_subscription_now_stops_nothing() -> None:
    before = Process()
    await before.request(1, "initialize", HELLO)
    await before.request(2, "resources/subscribe", {"uri": "file:///a"})

    after = Process(Continuation(1, before.notes, (line("ping", 7),)))
    after.desk.refused = {"resources/subscribe"}
    await after.resume()

    assert after.replies[1] == {"jsonrpc": "2.0", "id": 7, "result": {}}


async def test_an_interrupted_call_gets_a_result_that_says_it_may_have_run_and_is_not_made_again() -> None:
    process = Process(Continuation(1, {}, (line("tools/call", "c", {"name": "x"}),)))

    await process.resume()

    answer = process.replies[1]
    assert answer["id"] == "c"
    assert answer["result"]["isError"]
    assert "may have run" in answer["result"]["content"][0]["text"]
    assert process.desk.asked == []


async def test_another_interrupted_request_gets_an_error() -> None:
    process = Process(Continuation(1, {}, (line("prompts/get", 5, {"name": "x"}),)))

    await process.resume()

    assert "may have run" in process.replies[1]["error"]["message"]
    assert process.desk.asked == []


@pytest.mark.parametrize(
    "method",
    ["tools/list", "resources/list", "prompts/list", "skills/list", "logging/setLevel", "resources/subscribe"],
)
async def test_an_interrupted_request_that_may_be_repeated_is_answered(method: str) -> None:
    process = Process(Continuation(1, {}, (line(method, 5),)))

    await process.resume()

    assert process.replies[1] == {"jsonrpc": "2.0", "id": 5, "result": {}}
    assert process.desk.asked == [method]


async def test_an_interrupted_initialize_is_answered_as_if_nothing_had_been() -> None:
    process = Process(Continuation(1, {}, (line("initialize", 0, HELLO),)))

    await process.resume()

    assert process.replies[1]["result"]["protocolVersion"] == "2025-11-25"
    assert process.session.is_initialized
    assert process.methods() == []


async def test_interrupted_notifications_answers_and_garbage_get_nothing_or_their_own_error() -> None:
    notification = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    process = Process(Continuation(1, {}, (notification, answer, b"garbage", b"")))

    await process.resume()

    assert (process.replies[1], process.replies[2], process.replies[4]) == (None, None, None)
    assert process.replies[3]["error"]["code"] == -32700
    assert process.desk.heard == []


async def test_each_request_of_an_interrupted_batch_gets_its_error() -> None:
    batch = b"[" + line("tools/call", 1) + b"," + line("prompts/get", 2) + b',{"jsonrpc":"2.0","method":"n"}]'
    process = Process(Continuation(1, {}, (batch,)))

    await process.resume()

    assert [each["id"] for each in process.replies[1]] == [1, 2]


async def test_a_question_in_flight_is_withdrawn_and_its_late_answer_meets_no_other() -> None:
    before = Process()
    await before.request(1, "initialize", HELLO)
    await before.request(2, "ask", {})
    (question,) = [each for each in before.lines if "method" in each]

    after = Process(Continuation(1, before.notes))
    await after.resume()
    asking = asyncio.create_task(
        after.session.ask(Frame(method="sampling/createMessage", params=Raw(b"{}")), ignore_status)
    )
    await settled()
    after.session.receive(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"late": 1}}).encode())
    await settled()

    withdrawn, *_, asked = [each for each in after.lines if "method" in each]
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])
    assert not asking.done()
    after.session.receive(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"new": 1}}).encode())
    assert json.loads(bytes((await asking).result)) == {"new": 1}


async def test_a_question_is_withdrawn_once_however_many_processes_follow() -> None:
    before = Process()
    await before.request(1, "initialize", HELLO)
    await before.request(2, "ask", {})
    second = Process(Continuation(1, before.notes))
    await second.resume()
    third = Process(Continuation(2, second.notes))
    await third.resume()

    assert second.methods().count("notifications/cancelled") == 1
    assert "notifications/cancelled" not in third.methods()


async def test_a_question_that_was_answered_is_not_withdrawn() -> None:
    before = Process()
    await before.request(1, "initialize", HELLO)
    await before.request(2, "ask", {})
    (question,) = [each for each in before.lines if "method" in each]
    before.session.receive(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {}}).encode())
    await settled()

    assert [*before.notes] == [b"initialize"]


# --- what a window is told of each line ----------------------------------------------------------------


async def test_a_request_that_its_client_cancels_is_done_without_an_answer() -> None:
    process = Process()
    await process.request(1, "hold")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    process.session.receive(json.dumps(cancel).encode(), lambda line: process.reply(2, line))
    await settled()

    assert process.replies == {1: None, 2: None}


async def test_a_request_that_is_cancelled_in_the_same_breath_is_done_without_an_answer() -> None:
    process = Process()
    process.session.receive(line("hold", 1), lambda answer: process.reply(1, answer))
    process.session.receive(line("echo", 2), lambda answer: process.reply(2, answer))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    process.session.receive(json.dumps(cancel).encode(), lambda answer: process.reply(3, answer))
    await settled()

    assert process.replies == {1: None, 2: {"jsonrpc": "2.0", "id": 2, "result": {}}, 3: None}


async def test_a_batch_that_a_stop_interrupts_is_answered() -> None:
    process = Process()
    process.session.hello = ClientInfo(revisions.negotiate("2025-03-26"))
    batch = b"[" + line("hold", 1) + b"," + line("echo", 2) + b"]"
    process.session.receive(batch, lambda answer: process.reply(1, answer))
    await settled()

    await process.session.drain(0)

    held, echoed = sorted(process.replies[1], key=lambda each: each["id"])
    assert "may have run" in held["error"]["message"]
    assert echoed["result"] == {}


async def test_a_session_that_is_stopped_answers_what_it_cannot_finish() -> None:
    process = Process()
    await process.request(1, "hold")

    await process.session.drain(0)

    assert "may have run" in process.replies[1]["error"]["message"]


async def test_a_session_that_is_closed_says_nothing_of_its_requests() -> None:
    process = Process()
    await process.request(1, "hold")

    process.session.close()
    await settled()

    assert process.replies == {}
