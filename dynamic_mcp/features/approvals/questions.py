"""The open questions to users, and the grants that users have given.

Pure: time and ids come from outside, and callbacks notify waiting requests. A grant holds for exactly its
`ApprovalKey`. It is used once, unless it was given for a while, and used before the request is sent. A question that
was dropped, has expired or was never answered allows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, MutableMapping
from typing import Literal, Protocol

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.features.approvals.store import Scope
from dynamic_mcp.identity import Principal
from dynamic_mcp.system.bounded import BoundedDict

# The limits on open questions: per asker, and in total. Beyond the total, each asker may have one, up to twice it.
MAX_OF_ONE_ASKER = 16
MAX_OPEN = 512
MAX_OPEN_OF_ALL = 2 * MAX_OPEN
# The limits on remembered grants: per principal, and in total.
MAX_GRANTS_OF_ONE_PRINCIPAL = 64
MAX_GRANTS = 4096
HOUR_S = 3600.0
# A grant for the session of a client without sessions ends after it was not used for so long.
SESSION_S = 3600.0
# After this many denials of one request within this time, it is denied without a question for the rest of it.
MAX_DENIALS = 3
DENIALS_WITHIN_S = 600.0
_MAX_DENIED = 4096

Outcome = Literal["allowed", "denied", "expired", "dropped"]


class ApprovalKey(Struct, frozen=True):
    """Everything that an approval is bound to.

    `server` is what the server runs, `name` the server's name of the tool or resource, `definition` a digest of its
    definition, `rules` all rules that judge the call and `rule` the one that asks. `arguments` is a digest; None is
    any arguments. `session` limits it to one session, and `state` is a digest of the state that a retry continues.
    """

    principal: Principal
    server: Hashable
    kind: str
    name: str
    definition: bytes
    rules: Hashable
    rule: str
    arguments: bytes | None
    session: Hashable | None = None
    state: bytes | None = None


class Verdict(Struct, frozen=True):
    """The outcome of a question: the user, the channel and the reason. `arguments` replace the original ones."""

    outcome: Outcome
    scope: Scope = "once"
    by: str = ""
    channel: str = ""
    reason: str = ""
    arguments: Raw | None = None

    @property
    def is_allowed(self) -> bool:
        return self.outcome == "allowed"


class ApprovalGrant(Struct, frozen=True):
    """An answer for later requests. `id` is the question's id, and `uses` how many requests it is for."""

    id: str
    verdict: Verdict
    expires_at: float
    uses: float = 1


class GrantSharing(Protocol):
    """Keeps grants where all replicas use them."""

    def covers(self, key: ApprovalKey, session: Client) -> bool: ...

    def has(self, key: ApprovalKey, session: Client) -> bool: ...

    async def use(self, key: ApprovalKey, session: Client) -> ApprovalGrant | None: ...

    async def add(self, key: ApprovalKey, grant: ApprovalGrant, *, group: str, left_s: float) -> bool:
        """Have a grant hold at all replicas; False if it can only hold at this one. Raises StoreUnavailable."""
        ...

    def announce(self, key: ApprovalKey) -> None:
        """Tell the other replicas of a new question, so that they withdraw an equal one for which nothing waits."""
        ...

    def set_rules(self, rules: object) -> None: ...

    async def close(self) -> None: ...


class ApprovalQuestion:
    """One question to users, shared by all equal requests. It counts against the first `asker`."""

    def __init__(self, id: str, key: ApprovalKey, asker: Hashable, asked_at: float, expires_at: float) -> None:
        self.id = id
        self.key = key
        self.asker = asker
        self.asked_at = asked_at
        self.expires_at = expires_at
        self.verdict: Verdict | None = None
        self._waiting: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        state = self.verdict.outcome if self.verdict else "open"
        return f"<ApprovalQuestion {self.id} {state}, {len(self._waiting)} waiting>"

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def join(self, callback: Callable[[], object]) -> None:
        """Call `callback` when there is an answer."""
        self._waiting.append(callback)

    def leave(self, callback: Callable[[], object]) -> None:
        """Undo `join`."""
        if callback in self._waiting:
            self._waiting.remove(callback)

    def settle(self, verdict: Verdict) -> None:
        """Set the answer, and call the callbacks in the order in which they joined."""
        self.verdict = verdict
        for callback in self._waiting:
            callback()


class Approvals:
    """The open questions and the grants of all principals. Times are readings of the clock `now`.

    `make_id` returns ids for questions, and is called again if an id is in use.
    """

    def __init__(self, now: Callable[[], float], make_id: Callable[[], str], valid_for_s: float) -> None:
        self.valid_for_s = valid_for_s
        self._now = now
        self._make_id = make_id
        self._open: dict[ApprovalKey, ApprovalQuestion] = {}
        self._grants: BoundedDict[ApprovalKey, ApprovalGrant] = BoundedDict(MAX_GRANTS)
        self._denied_at: BoundedDict[Hashable, tuple[float, ...]] = BoundedDict(_MAX_DENIED)

    def __len__(self) -> int:
        return len(self._open)

    def find(self, id: str) -> ApprovalQuestion | None:
        return next((question for question in self._open.values() if question.id == id), None)

    # --- requests --------------------------------------------------------------------------------------

    def use(self, key: ApprovalKey, session: Hashable) -> ApprovalGrant | None:
        """Return the grant for such a request, if there is one, which is used up by it or has one use less."""
        self._forget_expired_grants()
        for each in (key, for_any_arguments(key, key.session), for_any_arguments(key, session)):
            grant = use_grant(self._grants, each)
            if grant is not None:
                return grant
        return None

    def covers(self, key: ApprovalKey, session: Hashable) -> bool:
        """Return whether a grant holds for such requests with any arguments."""
        self._forget_expired_grants()
        return any(for_any_arguments(key, each) in self._grants for each in (key.session, session))

    def paused_s(self, key: ApprovalKey) -> float:
        """Return for how many seconds such requests are denied without a question, or 0."""
        times = self._denied_at.get(_subject_of(key)) or ()
        if key in self._open or len(times) < MAX_DENIALS:
            return 0.0
        return max(times[0] + DENIALS_WITHIN_S - self._now(), 0.0)

    def ask(self, key: ApprovalKey, asker: Hashable = None) -> ApprovalQuestion | None:
        """Return the open question about such a request, or a new one; None if the asker has too many.

        Without `asker`, the principal is the asker.
        """
        found = self._open.get(key)
        if found is not None:
            return found
        asker = key.principal if asker is None else asker
        if not self._has_room(asker):
            return None
        now = self._now()
        question = self._open[key] = ApprovalQuestion(self._new_id(), key, asker, now, now + self.valid_for_s)
        return question

    def allow_retry(self, key: ApprovalKey, state: bytes, grant: ApprovalGrant) -> ApprovalKey:
        """Grant the retry that continues an approved request, once; return the key of that grant."""
        continued = structs.replace(grant, expires_at=self._now() + self.valid_for_s, uses=1)
        retry = structs.replace(key, state=state)
        self.add(retry, continued)
        return retry

    # --- answers ---------------------------------------------------------------------------------------

    def decide(self, question: ApprovalQuestion, verdict: Verdict, session: Hashable) -> ApprovalKey | None:
        """Record a user's answer. `session` is the session that a session grant is for.

        Without a waiting request, the answer is kept for the repeated request. Returns the key of the grant that is
        for later requests, if there is one.
        """
        del self._open[question.key]
        if verdict.outcome == "denied":
            subject = _subject_of(question.key)
            self._denied_at[subject] = (*self._denied_at.pop(subject, ())[1 - MAX_DENIALS :], self._now())
        kept = None
        if verdict.is_allowed or not question.has_waiting:
            kept = self._keep(question, verdict, session)
        question.settle(verdict)
        return None if kept == question.key and question.has_waiting else kept

    def settle(self, question: ApprovalQuestion, grant: ApprovalGrant) -> None:
        """Answer a question by a grant that was given elsewhere, and add it if it is for one request."""
        del self._open[question.key]
        if grant.uses == 1 and grant.verdict.is_allowed:
            self.keep(question.key, grant)
        question.settle(grant.verdict)

    def keep(self, key: ApprovalKey, grant: ApprovalGrant) -> None:
        """Add a grant from elsewhere for the next request, as long as one waits for that."""
        self.add(key, structs.replace(grant, expires_at=self._now() + self.valid_for_s))

    def take(self, key: ApprovalKey) -> ApprovalGrant | None:
        """Return and forget the grant with this key."""
        return self._grants.pop(key, None)

    def add(self, key: ApprovalKey, grant: ApprovalGrant) -> None:
        self._forget_expired_grants()
        earlier = [each for each in self._grants if each.principal == key.principal]
        if len(earlier) >= MAX_GRANTS_OF_ONE_PRINCIPAL and key not in self._grants:
            del self._grants[earlier[0]]
        self._grants[key] = grant

    def list_open(self, *, is_waiting: bool) -> list[ApprovalQuestion]:
        """Return the open questions with a waiting request, or those without."""
        return [each for each in self._open.values() if each.has_waiting is is_waiting]

    def forget(self, question: ApprovalQuestion) -> None:
        """Withdraw a question without an answer."""
        if self._open.get(question.key) is question:
            del self._open[question.key]

    def expire(self) -> list[ApprovalQuestion]:
        """Deny the questions that were not answered in time, and return them."""
        now = self._now()
        return self._deny([each for each in self._open.values() if each.expires_at <= now], Verdict("expired"))

    def release(self, session: Hashable) -> list[ApprovalQuestion]:
        """Forget the grants for a session that has ended, and deny its questions; return those."""
        for key in [key for key in self._grants if key.session is session]:
            del self._grants[key]
        return self._deny([each for each in self._open.values() if each.key.session is session], _GONE)

    def drop(self, reason: str) -> list[ApprovalQuestion]:
        """Deny all questions, and forget all grants and denials; return the questions."""
        self._grants.clear()
        self._denied_at.clear()
        return self._deny([*self._open.values()], Verdict("dropped", reason=reason))

    # --- inside ----------------------------------------------------------------------------------------

    def _has_room(self, asker: Hashable) -> bool:
        """Return whether an asker may ask more; over the total limit, only an asker without open questions may."""
        count = sum(each.asker == asker for each in self._open.values())
        if len(self._open) >= MAX_OPEN:
            return count == 0 and len(self._open) < MAX_OPEN_OF_ALL
        return count < MAX_OF_ONE_ASKER

    def _new_id(self) -> str:
        while self.find(id := self._make_id()) is not None:
            pass
        return id

    def _keep(self, question: ApprovalQuestion, verdict: Verdict, session: Hashable) -> ApprovalKey:
        key, expires_at = question.key, self._now() + self.valid_for_s
        match verdict.scope if verdict.is_allowed else "once":
            case "hour":
                key, expires_at = for_any_arguments(key, key.session), self._now() + HOUR_S
            case "session":
                key, expires_at = for_any_arguments(key, session), math.inf
        self.add(key, ApprovalGrant(question.id, verdict, expires_at, uses=1 if key == question.key else math.inf))
        return key

    def _deny(self, questions: list[ApprovalQuestion], verdict: Verdict) -> list[ApprovalQuestion]:
        for each in questions:
            del self._open[each.key]
            each.settle(verdict)
        return questions

    def _forget_expired_grants(self) -> None:
        now = self._now()
        for key in [key for key, grant in self._grants.items() if grant.expires_at <= now]:
            del self._grants[key]


_GONE = Verdict("dropped", reason="its session has ended")


def _subject_of(key: ApprovalKey) -> Hashable:
    return key.principal, key.server, key.kind, key.name


def for_any_arguments(key: ApprovalKey, session: Hashable) -> ApprovalKey:
    """Return the key of a grant for any arguments in a session; None is in all of them."""
    return structs.replace(key, arguments=None, state=None, session=session)


def use_grant(grants: MutableMapping[ApprovalKey, ApprovalGrant], key: ApprovalKey) -> ApprovalGrant | None:
    """Return the grant with this key, if there is one, and take one of its uses."""
    grant = grants.get(key)
    if grant is None:
        return None
    if grant.uses > 1:
        grants[key] = structs.replace(grant, uses=grant.uses - 1)
    else:
        del grants[key]
    return grant
