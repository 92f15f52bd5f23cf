"""Ways to break the streams of sessions: each is a host that changes what comes on them, or how they are resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.history.harness import Host, Line, Send
from tests.history.record import NOWHERE, Came, answers, parse

Taken = Iterable[tuple[bytes, Came]]
# Takes a message and how it came; returns what comes instead.
Break = Callable[[bytes, Came], Taken]


class BrokenStreams:
    """A host that does this to each message for its clients."""

    def __init__(self, host: Host, damage: Break) -> None:
        self._host = host
        self._damage = damage

    async def open(self, take: Send) -> Line:
        def take_damaged(line: bytes, came: Came = NOWHERE) -> None:
            for each in self._damage(line, came):
                take(*each)

        return await self._host.open(take_damaged)

    async def close(self) -> None:
        await self._host.close()


def change_nothing(line: bytes, came: Came) -> Taken:
    """Break nothing."""
    yield line, came


def answer_elsewhere(line: bytes, came: Came) -> Taken:
    """Let answers come on a stream that the client has opened."""
    yield line, came._replace(stream="GET 1") if "method" not in parse(line) and came.id else came


def swap_streams(line: bytes, came: Came) -> Taken:
    """Let progress come on the stream of another request."""
    params = parse(line).get("params", {})
    yield line, came._replace(stream=answers(99)) if "progressToken" in params else came


def copy_to_other_stream(line: bytes, came: Came) -> Taken:
    """Let log lines come on another stream as well, as an event of that stream."""
    yield line, came
    if b'"notifications/message"' in line:
        yield line, Came("GET 9", 0, f"9-{came.id}")


def copy_event(line: bytes, came: Came) -> Taken:
    """Let an event come on two streams."""
    yield line, came
    if b'"notifications/message"' in line and came.id:
        yield line, came._replace(stream="GET 9")


def lose_progress(line: bytes, came: Came) -> Taken:
    """Lose the progress that comes after a resumption."""
    if not (came.connection and b'"notifications/progress"' in line):
        yield line, came


def lose_logs(line: bytes, came: Came) -> Taken:
    """Lose the log lines that come after a resumption."""
    if not (came.connection and b'"notifications/message"' in line):
        yield line, came


def lose_answers(line: bytes, came: Came) -> Taken:
    """Lose the answers that come after a resumption."""
    if not came.connection or "method" in parse(line):
        yield line, came


def resume_from_begin(last_id: str) -> str:
    """Ask for everything again."""
    return f"{last_id.partition('-')[0]}-0"


def resume_from_nowhere(last_id: str) -> str:
    """Ask for what follows an event that never was."""
    return f"{last_id}000"


# What is broken, and the rule that must see it.
BREAKS: dict[str, tuple[Break, str]] = {
    "answers on another stream": (answer_elsewhere, "WRONG_STREAM"),
    "progress on the stream of another request": (swap_streams, "WRONG_STREAM"),
    "messages on two streams": (copy_to_other_stream, "TWICE"),
    "events on two streams": (copy_event, "EVENT_TWICE"),
    "progress lost by a resumption": (lose_progress, "LOST_PROGRESS"),
    "log lines lost by a resumption": (lose_logs, "LOST_LOG"),
    "answers lost by a resumption": (lose_answers, "UNANSWERED"),
}
RESUMPTIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "everything is sent again": (resume_from_begin, "EVENT_TWICE"),
    "nothing is known of the stream": (resume_from_nowhere, "HTTP"),
}
