"""What can be wrong with a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.history.record import Event

_SHOWN_OF_A_RULE = 3


class Rule(StrEnum):
    """A promise that a history breaks."""

    FOREIGN = "a session got the nonce of another"
    ANSWER = "an answer is not the one that its request must have"
    ORIGIN = "an answer is of another server than it must be, or of none"
    NOT_OPENED = "an upstream was called for an app that this session has not opened"
    UNANSWERED = "a request was never answered"
    TOKEN = "progress on nothing that this session has in flight"
    TWICE = "a log line, or progress, came twice"
    EVENT_TWICE = "two events of a session have one id"
    WRONG_STREAM = "a message came on a stream that is not its own"
    LOST_LOG = "a log line of a session's own stream did not come"
    LOST_PROGRESS = "progress on a request did not come, or not in its order"
    QUESTION_ID = "two questions to a session have one id"
    QUESTION_WITHOUT_CALL = "a question came for no call in flight"
    REFUSED = "a question was refused that has one possible receiver"
    CANCELLED_UNASKED = "a question was withdrawn that this session was not asked"
    NOT_SUBSCRIBED = "an update came for what this session has not subscribed to"
    TASK = "a task is not this session's, or not as this session left it"
    TELLTALE = "an error tells what exists from what does not"
    AFTER_CLOSE = "a session got a line after its end"
    GREETING = "an upstream that greeted one client was called for another"
    REPLY = "an upstream got the answer of another session's client"
    SENT_TWICE = "an upstream got a request twice"
    NOT_CANCELLED = "an upstream still works for a request that was given up"
    CANCELLED_WANTED = "an upstream was told to cancel what somebody waits for"
    NOT_UNSUBSCRIBED = "an upstream keeps a subscription that nobody has"
    REMEMBERED = "the proxy holds on to a session that has ended"
    HALF_LINE = "a session got what is not a whole message"
    INTERRUPTED = "a request was answered as interrupted that no death of a daemon can have interrupted"
    RAN = "an upstream got a request that was refused"
    NOT_WITHDRAWN = "a question of a dead daemon was not withdrawn"
    OUTLIVES = "an upstream outlives its daemon"
    LEFT_OPEN = "the daemon holds more than before"
    HTTP = "an HTTP request was not answered as it must be"
    STUCK = "a run did not come to its end"


@dataclass(frozen=True)
class Violation:
    """One breach: by which rule, whose, and the event's place in the history."""

    rule: Rule
    party: str
    text: str
    at: int = -1

    def __str__(self) -> str:
        where = f" at {self.at}" if self.at >= 0 else ""
        return f"{self.party}{where}: {self.text}"


def show(violations: Sequence[Violation], events: Sequence[Event], seed: object) -> str:
    """Describe what is wrong, with the seed, some examples of each rule, and the events of whom these concern."""
    counts = Counter(violation.rule for violation in violations)
    parties: set[str] = set()
    lines = [f"seed {seed}: {len(violations)} violations"]
    for rule, count in counts.items():
        lines.append(f"  {rule.name} {count} times: {rule}")
        examples = [each for each in violations if each.rule is rule][:_SHOWN_OF_A_RULE]
        lines += [f"    {each}" for each in examples]
        parties |= {each.party for each in examples}
    lines.append("the history of the parties above:")
    lines += [f"{at:>6} {event}" for at, event in enumerate(events) if event.party in parties]
    return "\n".join(lines)
