"""Asks a user before a request whose rule says so: by a form in the client, or by the queue that commands answer.

A request waits for a bounded time and holds no server resources meanwhile. An approval is used before the request
is sent. A restart, a changed config, an error or a missing answer allows nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from msgspec import Raw, structs

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import (
    ApprovalDenied,
    ApprovalNeeded,
    ApprovalPending,
    DynamicMcpError,
    InvalidArguments,
    NotFound,
)
from dynamic_mcp.features.approvals.config import Channel, settings_of
from dynamic_mcp.features.approvals.forms import ElicitationForms, build_form
from dynamic_mcp.features.approvals.notices import ApprovalNotices
from dynamic_mcp.features.approvals.pending import PendingApproval
from dynamic_mcp.features.approvals.plans import describe_plan, message_of
from dynamic_mcp.features.approvals.questions import (
    DENIALS_WITHIN_S,
    MAX_DENIALS,
    ApprovalGrant,
    ApprovalKey,
    ApprovalQuestion,
    Approvals,
    GrantSharing,
    Verdict,
    for_any_arguments,
    use_grant,
)
from dynamic_mcp.features.approvals.queue import ApprovalServer, CallSharing, Queue, Receive
from dynamic_mcp.features.approvals.store import ApprovalDecision, QueuedApproval, Scope, make_id
from dynamic_mcp.features.approvals.subject import Right, Subject, digest_of_state, identify, state_digest
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.own_meta import APPROVAL
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.policy.call_rules import judging_rules
from dynamic_mcp.proxy.request import (
    ApprovalCounts,
    ApprovalNote,
    CallPlan,
    Event,
    Next,
    PlannedCall,
    Request,
    UpstreamRequest,
)
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.system.shared_store import StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

MakeGrantSharing = Callable[
    [object, Callable[[], object], Callable[[Callable[[ApprovalKey], bool]], object]], GrantSharing
]
"""Makes it of all that decides who is asked, and of what is called when others have granted, or ask about, a call."""
FindRight = Callable[[UpstreamRequest, Decision], Right | None]

_REMOVED = "it was decided elsewhere"


class HumanApproval:
    """Asks users for one proxy. `note` takes events; without `open_server` there is no queue.

    `notices` notify a user of calls in the queue. `counts` counts the outcomes of questions. The proxy of a command
    ends with the command, so it allows calls only once.
    """

    def __init__(
        self,
        config: Config,
        note: Callable[[Event], None],
        *,
        make_id: Callable[[], str] = make_id,
        open_server: Callable[[Receive], ApprovalServer] | None = None,
        notices: ApprovalNotices | None = None,
        clock: Clock | None = None,
        is_command: bool = False,
    ) -> None:
        self.counts = ApprovalCounts()
        self._config, self._settings = config, settings_of(config)
        self._note = note
        self._is_command = is_command
        self._clock = clock or LoopClock()
        self._approvals = Approvals(self._clock.now, make_id, self._settings.valid_for_s)
        self._notices = notices
        self._queue = None
        if open_server is not None:
            self._queue = Queue(open_server(self._receive), notify=self._notify_user, config=str(config.file))
        self._forms = ElicitationForms(self._clock)
        self._plans: weakref.WeakSet[CallPlan] = weakref.WeakSet()
        self._shared: GrantSharing | None = None
        self._subjects: dict[str, Subject] = {}
        self._expiries: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet(log)
        self._moves = TaskSet(log)  # of grants to other replicas and from there

    def __repr__(self) -> str:
        return f"<HumanApproval {len(self._approvals)} pending>"

    def apply(self, config: Config) -> None:
        """Use this config from now on; if the rules have changed, open questions and approvals are dropped."""
        has_changed = rules_of(config) != rules_of(self._config)
        self._config, self._settings = config, settings_of(config)
        self._approvals.valid_for_s = self._settings.valid_for_s
        if has_changed:
            self._close(self._approvals.drop("the config has changed"), "the config has changed")
            for plan in self._plans:
                plan.grants.clear()
            if self._shared is not None:
                self._shared.set_rules(rules_of(config))

    def share(
        self, make_calls: Callable[[ApprovalServer], CallSharing] | None, make_grants: MakeGrantSharing | None
    ) -> None:
        """Have calls decided, and grants used, at any replica from now on, or at this one alone."""
        if self._queue is not None:
            self._queue.share(make_calls)
        old, self._shared = self._shared, None
        if make_grants is not None:
            self._shared = make_grants(rules_of(self._config), self._use_new_grants, self._withdraw)
        if old is not None:
            self._tasks.create(old.close(), name="end of shared grants")

    def release(self, client: Client) -> None:
        """Forget the approvals for the session of a disconnected client."""
        self._close(self._approvals.release(client), "the session has ended")

    async def close(self) -> None:
        """Deny all waiting calls."""
        self._close(self._approvals.drop("dynamic-mcp has ended"), "dynamic-mcp has ended")
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self._moves.wait()
        if self._shared is not None:
            await self._shared.close()
        if self._queue is not None:
            await self._queue.close()
        if self._notices is not None:
            await self._notices.close()

    # --- requests --------------------------------------------------------------------------------------

    async def send(self, call: UpstreamRequest, decision: Decision, right: Right | None, next: Next) -> Frame:
        """Send a request once a user has allowed it, with the user's changes to the arguments.

        `right` says why the client may do it at all, if there are access rules. Raises ApprovalDenied,
        ApprovalNeeded and ApprovalPending.
        """
        since = self._clock.now()
        try:
            subject = await identify(call, decision.rule, right)
            grant = await self._find_grant(call, subject) or await self._ask(call, subject)
        except (ApprovalDenied, ApprovalNeeded) as exc:
            _observe_refusal(call, exc.reason)
            raise
        verdict = grant.verdict
        self._observe(call, subject, grant.id, verdict, self._clock.now() - since)
        if not verdict.is_allowed:
            raise _denial(subject, verdict)
        self._emit("approval.consumed", grant.id, subject, call.request.client)
        if verdict.arguments is not None:
            call = _with_arguments(call, verdict.arguments)
        answer = await next(call)
        if call.request.revision.is_stateless and envelope.result_type(answer.result) == envelope.INPUT_REQUIRED:
            state = digest_of_state(wire.member(answer.result, "requestState"))
            await self._share_grant(self._approvals.allow_retry(subject.key, state, grant), subject.group_name)
        if verdict.arguments is None:
            return answer
        return _with_note(answer, grant.id, call.group.present_arguments(subject.key.name, verdict.arguments))

    async def ask_ahead(self, request: Request, plan: CallPlan, find_right: FindRight) -> None:
        """Ask once about all that is planned; nothing where no approval for any arguments may be given.

        Raises ApprovalDenied, ApprovalNeeded and ApprovalPending.
        """
        if not self._settings.remember:
            return
        found = [(await self._identify_planned(request, call, find_right), call.most) for call in plan.calls]
        planned = [(subject, most) for subject, most in found if subject is not None]
        if not planned:
            return
        since, subject = self._clock.now(), describe_plan(request, plan, planned)
        message = UpstreamRequest(request, subject.group, request.method, wire.members(request.params), 0.0)
        try:
            self._find_channels(message, subject)
        except (ApprovalDenied, ApprovalNeeded):
            return  # nobody can be asked about the whole, but perhaps about single calls
        try:
            grant = await self._use(subject.key, request.client) or await self._ask(message, subject)
        except (ApprovalDenied, ApprovalNeeded) as exc:
            _observe_refusal(message, exc.reason)
            raise
        self._observe(message, subject, grant.id, grant.verdict, self._clock.now() - since)
        if not grant.verdict.is_allowed:
            raise _denial(subject, grant.verdict)
        for each, most in planned:
            plan.grants[for_any_arguments(each.key, None)] = structs.replace(grant, uses=most)
        self._plans.add(plan)

    async def _identify_planned(self, request: Request, call: PlannedCall, find_right: FindRight) -> Subject | None:
        """Return the subject of a planned call; None if it needs no question, or cannot be made."""
        message = message_of(request, call.group, call.tool)
        try:
            subject = await identify(message, call.decision.rule, find_right(message, call.decision))
        except DynamicMcpError:
            return None
        catalog = call.group.group.catalog
        is_known = catalog is not None and call.tool in catalog.entries(ListKind.TOOLS)
        key = subject.key
        is_answered = self._covers(key, request.client) or self._approvals.paused_s(key) > 0
        return None if is_answered or not is_known else subject

    async def _find_grant(self, message: UpstreamRequest, subject: Subject) -> ApprovalGrant | None:
        """Return an earlier answer. Raises ApprovalDenied for the retry of a call that was not approved."""
        state, plan = state_digest(message.params or {}), message.request.plan
        key, client = structs.replace(subject.key, state=state), message.request.client
        grant = self._approvals.use(key, client)
        if grant is None and state is None and plan is not None:
            grant = use_grant(plan.grants, for_any_arguments(subject.key, None))
        if grant is None and self._shared is not None:
            grant = await self._shared.use(key, client)
        if grant is None and state is not None:
            raise ApprovalDenied(subject.label, "it continues a call that was not approved; make that call again")
        return grant

    def _covers(self, key: ApprovalKey, client: Client) -> bool:
        is_shared = self._shared is not None and self._shared.covers(key, client)
        return is_shared or self._approvals.covers(key, client)

    async def _use(self, key: ApprovalKey, client: Client) -> ApprovalGrant | None:
        """Return the grant for a request of a client, if this replica or another has one."""
        grant = self._approvals.use(key, client)
        return grant if grant is not None or self._shared is None else await self._shared.use(key, client)

    async def _ask(self, message: UpstreamRequest, subject: Subject) -> ApprovalGrant:
        """Ask a user and return the answer. Raises ApprovalDenied, ApprovalNeeded and ApprovalPending."""
        if paused_s := self._approvals.paused_s(subject.key):
            raise ApprovalDenied(subject.label, _describe_pause(paused_s))
        form, channels = self._find_channels(message, subject)
        question = self._approvals.ask(subject.key, _asker(message.request))
        if question is None:
            raise ApprovalDenied(subject.label, "too many other calls wait for a user")
        self._begin(question, subject, message.request.client)
        pending = PendingApproval(message, subject, question, self._settings, self._clock, form=form)
        reporting = self._tasks.create(pending.report_progress(), name="progress of an approval")
        try:
            await self._wait(pending, channels)
        finally:
            reporting.cancel()
            pending.close()
            if question.verdict is None and not question.has_waiting and not self._is_queued(question):
                self._close([question], "the client has disconnected")
                self._approvals.forget(question)
        return await self._outcome(pending)

    def _find_channels(self, message: UpstreamRequest, subject: Subject) -> tuple[Frame | None, list[Channel]]:
        """Return the form that the client can show, and the channels. Raises ApprovalNeeded and ApprovalDenied."""
        client, wanted = message.request.client, self._settings.channels
        can_show = "client" in wanted and self._forms.can_show(client)
        offered = subject.limit_scopes(self._offered)
        form = build_form(subject, offered, message.request.revision) if can_show else None
        has = {"client": form is not None, "queue": self._queue is not None}
        channels = [channel for channel in wanted if has[channel]]
        if not channels and can_show:
            raise ApprovalDenied(subject.label, "a form cannot show so many arguments, and there is no queue")
        if not channels:
            raise self._needed(subject)
        return form, channels

    def _is_queued(self, question: ApprovalQuestion) -> bool:
        return self._queue is not None and self._queue.has(question)

    async def _wait(self, pending: PendingApproval, channels: Sequence[Channel]) -> None:
        """Ask through one channel after the other until there is an answer or the time is up."""
        question, offered = pending.question, pending.subject.limit_scopes(self._offered)
        for channel in channels:
            if question.verdict is None and channel == "client":
                await self._forms.show(pending, offered, partial(self._decide, question))
            elif question.verdict is None and self._queue is not None:
                left_s = question.expires_at - self._clock.now()
                if await self._queue.put(question, pending.subject, offered, left_s, hold_s=pending.left_s):
                    await pending.until_decided()

    async def _outcome(self, pending: PendingApproval) -> ApprovalGrant:
        question, subject, message = pending.question, pending.subject, pending.message
        verdict = question.verdict
        self._observe(message, subject, question.id, None, self._clock.now() - pending.since)
        if verdict is None:
            if self._is_queued(question):
                is_local = subject.principal == LOCAL
                expires = time.time() + question.expires_at - self._clock.now()
                raise ApprovalPending(subject.label, question.id, expires, is_local=is_local)
            if pending.is_over:
                raise ApprovalDenied(subject.label, "there was no answer in time")
            raise self._needed(subject)
        if not verdict.is_allowed:
            return ApprovalGrant(question.id, verdict, question.expires_at)
        if not subject.is_current(message):
            raise ApprovalDenied(subject.label, "it has changed since the user was asked")
        grant = await self._use(subject.key, message.request.client)
        if grant is None:
            raise ApprovalDenied(subject.label, "the approval was used by another call with the same arguments")
        return grant

    # --- questions -------------------------------------------------------------------------------------

    @property
    def _offered(self) -> tuple[Scope, ...]:
        return ("once",) if self._is_command else ("once", *self._settings.remember)

    def _needed(self, subject: Subject) -> ApprovalNeeded:
        """Return the refusal for a client that cannot be asked; a command gets a hint how to make the call."""
        from_tool = "make the call from your AI tool, and answer it with `dynamic-mcp approve`"
        on_terminal = "run it on a terminal, or " if "client" in self._settings.channels else ""
        return ApprovalNeeded(subject.label, hint=f"{on_terminal}{from_tool}" if self._is_command else "")

    def _begin(self, question: ApprovalQuestion, subject: Subject, client: Client) -> None:
        if question.id not in self._subjects:
            self._subjects[question.id] = subject
            self.counts.pending += 1
            self._expiries[question.id] = self._tasks.create(self._expire(question), name="expiry of an approval")
            self._emit("approval.requested", question.id, subject, client)
            if self._shared is not None:
                self._shared.announce(question.key)

    async def _expire(self, question: ApprovalQuestion) -> None:
        while question.verdict is None:
            await self._clock.sleep(max(question.expires_at - self._clock.now(), 0.001))
            self._close(self._approvals.expire(), "it has expired")

    def _receive(self, decision: ApprovalDecision) -> asyncio.Task[None] | None:
        """Accept a decision from the queue; return what ends once other replicas know it, if they have to.

        Raises DynamicMcpError if it does not count.
        """
        question = self._approvals.find(decision.id)
        if question is None:
            raise NotFound("approval", decision.id)
        subject = self._subjects[question.id]
        if decision.verdict == "deny":
            denied = Verdict("denied", by=decision.by, channel="queue", reason=decision.reason)
            return self._decide(question, denied, None)
        client = subject.client()
        has_gone = client is None or client.is_closed
        if decision.scope not in subject.limit_scopes(self._offered) or (decision.scope == "session" and has_gone):
            raise InvalidArguments(f"it cannot be allowed for `{decision.scope}`", hint="allow it once")
        edited = Raw(decision.arguments) if decision.arguments else None
        if edited is not None and decision.scope != "once":
            raise InvalidArguments("changed arguments can be allowed once only")
        if edited is not None:
            subject.check_edit(edited)
        verdict = Verdict("allowed", scope=decision.scope, by=decision.by, channel="queue", arguments=edited)
        return self._decide(question, verdict, client)

    def _decide(
        self, question: ApprovalQuestion, verdict: Verdict, session: Client | None
    ) -> asyncio.Task[None] | None:
        subject = self._subjects[question.id]
        kept = self._approvals.decide(question, verdict, session)
        self._end(question, verdict, session)
        if kept is None or self._shared is None:
            return None
        return self._moves.create(self._share_grant(kept, subject.group_name), name="a grant for all replicas")

    def _end(self, question: ApprovalQuestion, verdict: Verdict, session: Client | None) -> None:
        subject = self._subjects[question.id]
        self._close([question], _REMOVED)
        waited_s = self._clock.now() - question.asked_at
        more = {"outcome": verdict.outcome, "by": verdict.by, "channel": verdict.channel, "scope": verdict.scope}
        self._emit("approval.decided", question.id, subject, session, **more, waited_s=round(waited_s, 3))

    # --- other replicas --------------------------------------------------------------------------------

    async def _share_grant(self, key: ApprovalKey, group: str) -> None:
        """Move a grant of this replica to where all have it. One for a single request is never at both places."""
        grant = None if self._shared is None else self._approvals.take(key)
        if self._shared is None or grant is None:
            return
        is_single = grant.uses == 1
        if not is_single:
            self._approvals.add(key, grant)  # until the copy of what all have has it
        try:
            is_kept = await self._shared.add(key, grant, group=group, left_s=grant.expires_at - self._clock.now())
        except StoreUnavailable as exc:
            log.warning("the approval %s holds at this replica alone: %s", grant.id, exc)
            is_kept = exc.may_have_run and is_single
        if is_single and not is_kept:
            self._approvals.add(key, grant)
        elif not is_single and is_kept:
            self._approvals.take(key)

    def _use_new_grants(self) -> None:
        """Called when users may have allowed, or denied, at another replica what waits here."""
        for question in self._approvals.list_open(is_waiting=True):
            client = self._subjects[question.id].client()
            if client is not None and self._shared is not None and self._shared.has(question.key, client):
                self._moves.create(self._use_new_grant(question, client), name="a grant of another replica")

    def _withdraw(self, is_asked: Callable[[ApprovalKey], bool]) -> None:
        """Called when another replica asks about a call, to which its client has turned with it."""
        for question in self._approvals.list_open(is_waiting=False):
            if is_asked(question.key):
                self._approvals.forget(question)
                self._close([question], "another replica asks about it now")

    async def _use_new_grant(self, question: ApprovalQuestion, client: Client) -> None:
        subject = self._subjects[question.id]
        grant = None if self._shared is None else await self._shared.use(question.key, client)
        if grant is None:
            return
        if question.verdict is None and question.has_waiting:
            self._approvals.settle(question, grant)
            self._end(question, grant.verdict, client)
        elif grant.uses == 1:  # it waits for the next request
            self._approvals.keep(question.key, grant)
            await self._share_grant(question.key, subject.group_name)

    def _close(self, questions: list[ApprovalQuestion], why: str) -> None:
        """Remove closed questions from the queue, and record their outcomes."""
        for question in questions:
            subject = self._subjects.pop(question.id)
            self._expiries.pop(question.id).cancel()
            if self._queue is not None:
                self._queue.remove(question, why)
            outcome = question.verdict.outcome if question.verdict is not None else "withdrawn"
            self.counts.pending -= 1
            self.counts.outcomes[outcome] += 1
            if outcome in ("expired", "dropped", "withdrawn"):
                self._emit("approval.expired", question.id, subject, None, outcome=outcome, reason=why)

    def _notify_user(self, pending: QueuedApproval) -> None:
        if self._notices is not None:
            self._notices.notify(self._settings, pending)

    # --- observers -------------------------------------------------------------------------------------

    def _emit(self, name: str, id: str, subject: Subject, client: Client | None, **more: object) -> None:
        key = subject.key
        about = {"id": id, "group": subject.group_name, "kind": key.kind, "name": key.name, "rule": key.rule}
        who = {"issuer": key.principal.issuer, "subject": key.principal.subject}
        self._note(Event(name, {**about, **who, **more}, client))

    def _observe(
        self, message: UpstreamRequest, subject: Subject, id: str, verdict: Verdict | None, waited_s: float
    ) -> None:
        observation = message.request.observation
        if observation is None:
            return
        if verdict is None:
            observation.approval = ApprovalNote(id, "pending", waited_s=waited_s)
            return
        original = None if verdict.arguments is None else subject.arguments
        observation.approval = ApprovalNote(
            id, verdict.outcome, verdict.by, verdict.channel, waited_s, original, verdict.reason
        )


def rules_of(config: Config) -> object:
    """Return everything that decides which calls need approval."""
    judging = ((name, judging_rules(each)) for name, each in config.presentations.items())
    return config.access, settings_of(config), {name: rules for name, rules in judging if rules}


def _observe_refusal(message: UpstreamRequest, reason: str) -> None:
    """Tell observers why a request was refused without asking a user."""
    observation = message.request.observation
    if observation is not None:
        note = observation.approval or ApprovalNote("", "")
        observation.approval = structs.replace(note, outcome="denied", reason=reason)


def _asker(request: Request) -> Hashable:
    """Return the key that limits open questions: a principal, or each client of the local user."""
    return weakref.ref(request.client) if request.principal == LOCAL else request.principal


def _describe_pause(paused_s: float) -> str:
    within, left = round(DENIALS_WITHIN_S / 60), math.ceil(paused_s / 60)
    denied = f"users have denied it {MAX_DENIALS} times within {within} minutes"
    return f"{denied}; for {left} min more, it is denied without asking"


def _denial(subject: Subject, verdict: Verdict) -> ApprovalDenied:
    match verdict.outcome:
        case "expired":
            return ApprovalDenied(subject.label, "there was no answer in time")
        case "dropped":
            return ApprovalDenied(subject.label, verdict.reason)
        case _:
            return ApprovalDenied(subject.label, f"the user denied it{verdict.reason and f': {verdict.reason}'}")


def _with_arguments(message: UpstreamRequest, edited: Raw) -> UpstreamRequest:
    params = {**(message.params or {}), "arguments": edited}
    if message.request.observation is not None:
        message.request.observation.params = params
    return structs.replace(message, params=params)


def _with_note(answer: Frame, id: str, edited: Raw) -> Frame:
    """Add a note to an answer that a user changed the arguments."""
    if not len(answer.result):
        return answer
    note = {"id": id, "status": "changed", "note": "the user has changed the arguments", "arguments": edited}
    try:
        return structs.replace(answer, result=wire.with_member(answer.result, note, "_meta", APPROVAL))
    except wire.Malformed:  # a `_meta` that is not an object stays unchanged
        return answer
