"""Sessions that come and go and do everything at once, in an order that a seed decides."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import random
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from tests.history.checker import Rule, Violation, is_waiting_for_upstreams, judge, show
from tests.history.client import Client, RequestInterrupted
from tests.history.harness import Host
from tests.history.nonce_server import SKILLS
from tests.history.patience import patience
from tests.history.record import RESULT_URI, Expect, History, Json, Nonce, Operation, origins_in

# How often an update is tried again that a kill may have kept from a session, and how long one may take.
_UPDATE_TRIES, _UPDATE_WITHIN_S = 10, 2.0
# How many events later a question is answered late, and after which time at most.
_LATER_BY, _LATER_S = 200, 0.5
QUESTIONS = ("sampling/createMessage", "elicitation/create", "roots/list")
RUNS_WITHIN_S = 100.0
# The time between two looks at what upstreams have heard, and at lists that lack a group.
_LOOK_EVERY_S = 0.1
EXTENSIONS = ("skill", "app", "no app")
ALL = (
    *("echo", "work", "ask", "big", "task", "subscribe", "prompt", "complete", "search", "cancel", "probe", "tasks"),
    *EXTENSIONS,
)


@dataclass(frozen=True)
class Plan:
    """How large a run is, and what must hold in it. `slots` sessions are there at a time.

    `unused` are groups of the config that no session calls.
    `may_refuse` where an upstream may not learn what a client answers, because nobody knows whom it asks;
    `must_log` and `must_update` where every log line and every update must come, since all know whose it is.
    `private` are groups with an instance for each session: where there are some, only these ask, and refuse nothing.
    Of `cancels_late` calls are cancelled only once they have arrived: nothing orders two requests of HTTP.
    `knows_sessions` where a client is the session that it comes in, and not all those who say the same name.
    `leaves_calls` where sessions end with calls in flight, and `leaves_questions` where also with one that is asked.
    """

    seed: int
    groups: tuple[str, ...] = ("a",)
    unused: tuple[str, ...] = ()
    slots: int = 20
    lives: int = 2
    operations: int = 8
    clients: tuple[str, ...] = ("one", "two", "three")
    does: tuple[str, ...] = ALL
    may_refuse: bool = True
    must_log: bool = False
    must_update: bool = False
    patience_s: float = 20.0
    private: tuple[str, ...] = ()
    cancels_late: tuple[str, ...] = ()
    leaves_calls: bool = True
    leaves_questions: bool = True
    knows_sessions: bool = True

    @property
    def listed(self) -> tuple[str, ...]:
        """All groups of the config."""
        return (*self.groups, *self.unused)


class Run:
    """A run of a plan: what happened, and what all sessions know of each other."""

    def __init__(self, plan: Plan, history: History) -> None:
        self.plan = plan
        self.history = history
        self.tasks: list[tuple[str, str]] = []  # whose, and the id
        self.results: list[tuple[str, str]] = []
        self._references: list[weakref.ref[object]] = []
        self._violations: list[Violation] = []

    async def judge(self, host: Host) -> list[Violation]:
        """Run, end every session, and return what was wrong."""
        try:
            async with asyncio.timeout(RUNS_WITHIN_S), asyncio.TaskGroup() as slots:
                for slot in range(self.plan.slots):
                    slots.create_task(self._fill(slot, host))
        except (TimeoutError, ExceptionGroup) as exc:
            self._violations.append(Violation(Rule.STUCK, "run", describe(exc)))
        await settle(self.history, self.plan.patience_s)
        found = judge(self.history.events)
        remembered = await _remembered(self._references)
        self._violations += [Violation(Rule.REMEMBERED, "run", each) for each in remembered]
        return self._violations + found

    async def _fill(self, slot: int, host: Host) -> None:
        choose = random.Random(f"{self.plan.seed} {slot}")  # noqa: S311 repeatable
        for life in range(self.plan.lives):
            client_name = self.plan.clients[slot % len(self.plan.clients)]
            client = Client(
                self.history,
                f"s{slot}x{life}",
                client_name,
                self.plan.patience_s,
                shows_apps=choose.random() < 0.5,
            )
            await client.open(host)
            await Life(self, client, choose).live()
            self._references += await client.close()

    def foreign(self, owned: Sequence[tuple[str, str]], name: str, choose: random.Random) -> str | None:
        """Return something that is not this session's."""
        own = {id for owner, id in owned if owner == name}
        others = [id for owner, id in owned if owner != name and id not in own]
        return choose.choice(others) if others else None


class Life:
    """What one session does."""

    def __init__(self, run: Run, client: Client, choose: random.Random) -> None:
        self._run = run
        self._client = client
        self._choose = choose
        self._acts: dict[str, Callable[[str], Awaitable[None]]] = {
            "echo": self._echo,
            "work": self._work,
            "ask": self._ask,
            "big": self._big,
            "task": self._task,
            "subscribe": self._subscribe,
            "prompt": self._prompt,
            "complete": self._complete,
            "search": self._search,
            "cancel": self._cancel,
            "probe": self._probe,
            "tasks": self._list_tasks,
            "late": self._ask_late,
            "skill": self._skill,
            "app": self._app,
            "no app": self._call_unopened,
        }
        self._app_lock = asyncio.Lock()
        self._opened: dict[str, Nonce] = {}  # the groups whose pages were read, and by which request
        self._opened_after = 0  # so many kills

    async def live(self) -> None:
        """Do what the plan says, some of it at once, and leave some of it behind."""
        plan = self._run.plan
        left = plan.operations
        while left > 0:
            at_once = min(left, self._choose.randint(1, 4))
            left -= at_once
            async with asyncio.TaskGroup() as together:
                for _ in range(at_once):
                    name = self._choose.choice(plan.does)
                    asks = name in ("ask", "late")
                    group = self._choose.choice((plan.private if asks else ()) or plan.groups)
                    together.create_task(_unless_interrupted(self._acts[name](group)))
        await _unless_interrupted(self._leave_behind(self._choose.choice(plan.private or plan.groups)))

    # --- calls that are answered -----------------------------------------------------------------------

    async def _call(self, operation: Operation, group: str, tool: str, **arguments: Json) -> dict[str, Json]:
        params = self._client.call_params(operation, group, tool, **arguments)
        return await self._client.request(operation, "tools/call", params)

    async def _echo(self, group: str) -> None:
        await self._call(self._client.operation("echo"), group, "echo")

    async def _work(self, group: str) -> None:
        steps = self._choose.randint(1, 4)
        logs = steps if self._run.plan.must_log or group in self._run.plan.private else 0
        operation = self._with_token("work", logs=logs, steps=steps)
        await self._call(operation, group, "work", steps=steps)

    async def _ask(self, group: str) -> None:
        operation = self._client.operation("ask", may_be_refused=self._may_refuse(group))
        await self._call(operation, group, "ask", method=self._choose.choice(QUESTIONS))

    async def _ask_late(self, group: str) -> None:
        """Be asked, and answer when the daemon that asked has been killed, or after a while."""
        client, history = self._client, self._run.history
        operation = client.operation("ask", may_be_refused=self._may_refuse(group))
        client.late.add(operation.nonce)
        params = client.call_params(operation, group, "ask", method=self._choose.choice(QUESTIONS))
        answer = client.begin(operation, "tools/call", params)
        async with patience(self._run.plan.patience_s):
            await history.until(lambda: operation.nonce in client.held or answer.done())
        kills, later = history.kills, len(history.events) + self._choose.randrange(_LATER_BY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LATER_S):
                await history.until(lambda: history.kills > kills or len(history.events) > later)
        if history.kills > kills:
            await asyncio.wait([answer], timeout=self._run.plan.patience_s)
        client.answer_held(operation.nonce)
        await client.wait_for(answer)

    def _may_refuse(self, group: str) -> bool:
        return self._run.plan.may_refuse and group not in self._run.plan.private

    async def _big(self, group: str) -> None:
        operation = self._client.operation("big")
        answer = await self._call(operation, group, "big", lines=300)
        kept = RESULT_URI.search(str(answer))
        assert kept is not None, f"nothing was kept of {str(answer)[:500]}"
        uri = kept[0]
        self._run.results.append((self._client.name, uri))
        for _ in range(2):
            reading = self._client.operation("read", about=operation.nonce)
            await self._client.request(reading, "resources/read", {"uri": uri})
            await asyncio.sleep(0)

    async def _prompt(self, group: str) -> None:
        operation = self._client.operation("prompt")
        params = {"name": f"greet_{group}", "arguments": {"nonce": str(operation.nonce)}}
        await self._client.request(operation, "prompts/get", params)

    async def _complete(self, group: str) -> None:
        operation = self._client.operation("complete")
        argument = {"name": "nonce", "value": str(operation.nonce)}
        params = {"ref": {"type": "ref/prompt", "name": f"greet_{group}"}, "argument": argument}
        await self._client.request(operation, "completion/complete", params)

    async def _search(self, group: str) -> None:
        operation = self._client.operation("search", Expect.RESULT)
        arguments = {"group": group} if self._choose.random() < 0.3 else {"query": "does work"}
        await self._client.request(operation, "tools/call", {"name": "get_dynamic_tools", "arguments": arguments})

    async def _subscribe(self, group: str) -> None:
        """Subscribe, hear of an update, and sometimes unsubscribe."""
        kills = self._run.history.kills
        subscribing = self._client.operation("subscribe", Expect.RESULT)
        own = f"{group}://item/{subscribing.nonce}"
        uri = self._choose.choice((own, f"{group}://shared"))
        await self._client.request(subscribing, "resources/subscribe", {"uri": uri})
        await self._update(group, uri, kills)
        if uri == own and self._choose.random() < 0.5:
            leaving = self._client.operation("unsubscribe", Expect.RESULT)
            await self._client.request(leaving, "resources/unsubscribe", {"uri": uri})

    async def _update(self, group: str, uri: str, kills: int) -> None:
        """Let a resource be updated, and hear of it.

        After a kill the renewed subscription may reach the new instance later than the update, so that is repeated.
        """
        for tries_left in reversed(range(_UPDATE_TRIES)):
            heard = self._client.updates.count(uri)
            await self._call(self._client.operation("update"), group, "update", uri=uri)
            if not self._run.plan.must_update:
                return
            try:
                await self._client.hear_update(
                    uri, heard, _UPDATE_WITHIN_S if self._run.history.kills > kills else None
                )
            except AssertionError:
                if self._run.history.kills == kills or not tries_left:
                    raise
            else:
                return

    # --- skills and apps -------------------------------------------------------------------------------

    async def _skill(self, group: str) -> None:
        """Get a skill of the group from the common list, and read in it."""
        listed = await self._list("skills/list", self._run.plan.listed * len(SKILLS))
        skill = self._choose.choice([each for each in listed["skills"] if _origin(each) == group])
        root = skill["uri"].removesuffix("/SKILL.md")
        await self._get("skills/get", skill["uri"], group)
        await self._get("resources/directory/read", root, group)
        await self._get("resources/read", self._choose.choice(skill["resources"])["uri"], group)

    async def _app(self, group: str) -> None:
        """Read the page of the group, and call what only its app may call."""
        async with self._app_lock:
            page = await self._get("resources/read", await self._find_page(group), group)
            if not self._client.shows_apps:
                return
            if self._opened_after < self._run.history.kills:
                self._opened, self._opened_after = {}, self._run.history.kills
            self._opened[group] = page
            await self._call_of_app(f"{group}__refresh", page, origins=(group,))
            if self._run.plan.knows_sessions:  # by the name that the page knows, which one group must have
                is_clear = len(self._opened) == 1
                facts = {"origins": (group,)} if is_clear else {"expect": Expect.ERROR}
                await self._call_of_app("refresh", next(iter(self._opened.values())), **facts)

    async def _call_unopened(self, group: str) -> None:
        """Call what only apps may call without having opened one, and what does not exist."""
        async with self._app_lock:
            if self._client.shows_apps and (group in self._opened or not self._run.plan.knows_sessions):
                return
            twin = self._client.operation("no app", Expect.ERROR, subject="refrash")
            call = self._client.operation("no app", Expect.ERROR, subject="refresh", twin=twin.nonce)
            async with asyncio.TaskGroup() as both:
                for operation in (twin, call):
                    arguments = {"nonce": str(operation.nonce)}
                    params = {"name": f"{group}__{operation.subject}", "arguments": arguments}
                    both.create_task(_unless_interrupted(self._client.request(operation, "tools/call", params)))

    async def _find_page(self, group: str) -> str:
        """Return the URI of the group's page: as its tool links to it, or as it is listed."""
        groups, shows_apps = self._run.plan.listed, self._client.shows_apps
        tools = (await self._list("tools/list", groups * 2 if shows_apps else ()))["tools"]
        if shows_apps and self._choose.random() < 0.5:
            [uri] = [each["_meta"]["ui"]["resourceUri"] for each in tools if each["name"] == f"{group}__show"]
        else:
            pages = (await self._list("resources/list", groups))["resources"]
            [uri] = [each["uri"] for each in pages if _origin(each) == group]
        return str(uri)

    async def _call_of_app(self, name: str, page: Nonce, **facts: Json) -> None:
        operation = self._client.operation("refresh", after=page, **facts)
        arguments = {"nonce": str(operation.nonce)}
        await self._client.request(operation, "tools/call", {"name": name, "arguments": arguments})

    async def _get(self, method: str, uri: str, group: str) -> Nonce:
        operation = self._client.operation(method, origins=(group,))
        await self._client.request(operation, method, {"uri": uri})
        return operation.nonce

    async def _list(self, method: str, origins: tuple[str, ...]) -> Json:
        """List until all is there: a group that is slow to tell what it has is left out for a while."""
        async with patience(self._run.plan.patience_s):
            while True:
                operation = self._client.operation(method, Expect.RESULT, origins=origins)
                answer = await self._client.request(operation, method, {})
                if len(origins_in(json.dumps(answer).encode())) >= len(origins):
                    return answer["result"]
                await asyncio.sleep(_LOOK_EVERY_S)

    # --- tasks -----------------------------------------------------------------------------------------

    async def _task(self, group: str) -> None:
        """Begin a task, look at it, and wait for it or cancel it."""
        ends = self._choose.random() < 0.6
        operation = self._with_token("task")
        params = self._client.call_params(operation, group, "work" if ends else "hold", steps=3)
        answer = await self._client.request(operation, "tools/call", {**params, "task": {"ttl": 60000}})
        id = answer["result"]["task"]["taskId"]
        if not ends:
            self._run.tasks.append((self._client.name, id))
        await self._ask_about(operation.nonce, "tasks/get", id)
        if ends:
            await self._ask_about(operation.nonce, "tasks/result", id)
        elif self._choose.random() < 0.5:
            await self._ask_about(operation.nonce, "tasks/cancel", id)
            await self._ask_about(operation.nonce, "tasks/get", id)

    async def _ask_about(self, task: Nonce, method: str, id: str) -> None:
        await self._client.request(self._client.operation(method, about=task), method, {"taskId": id})

    async def _list_tasks(self, group: str) -> None:
        await self._client.request(self._client.operation("tasks/list", Expect.RESULT), "tasks/list", {})

    # --- what is not this session's --------------------------------------------------------------------

    async def _probe(self, group: str) -> None:
        """Ask for what another session has, and for what nobody ever had."""
        run, name = self._run, self._client.name
        if self._choose.random() < 0.5:
            foreign = run.foreign(run.results, name, self._choose)
            await self._try_both("resources/read", "uri", foreign, "dynamic-mcp://results/" + "0" * 32)
        else:
            foreign = run.foreign(run.tasks, name, self._choose)
            method = self._choose.choice(("tasks/get", "tasks/cancel", "tasks/result"))
            await self._try_both(method, "taskId", foreign, "held-000000000000")

    async def _try_both(self, method: str, member: str, foreign: str | None, nobodys: str) -> None:
        if foreign is None:
            return
        twin = self._client.operation("probe", Expect.ERROR, subject=nobodys)
        await self._client.request(twin, method, {member: nobodys})
        probe = self._client.operation("probe", Expect.ERROR, subject=foreign, twin=twin.nonce)
        await self._client.request(probe, method, {member: foreign})

    # --- what is given up ------------------------------------------------------------------------------

    async def _cancel(self, group: str) -> None:
        """Cancel a call that is at its upstream, or one that has hardly left."""
        operation = self._with_token("cancel")
        params = self._client.call_params(operation, group, "hold")
        answer = self._client.begin(operation, "tools/call", params)
        if self._choose.random() < 0.7 or group in self._run.plan.cancels_late:
            await self._reach_upstream(operation, answer)
        self._client.cancel(operation)

    async def _leave_behind(self, group: str) -> None:
        """Leave calls, a question, a task and a subscription in flight."""
        client, plan = self._client, self._run.plan
        if plan.leaves_calls:
            held = self._with_token("left", may_be_left=True)
            await self._reach_upstream(
                held, client.begin(held, "tools/call", client.call_params(held, group, "hold"))
            )
        if plan.leaves_questions and "ask" in plan.does and self._choose.random() < 0.5:
            client.may_answer = lambda: False
            asking = client.operation("left asking", may_be_refused=True, may_be_left=True)
            params = client.call_params(asking, group, "ask", method=QUESTIONS[0])
            await self._reach_upstream(asking, client.begin(asking, "tools/call", params))
        if "task" in self._run.plan.does:
            task = self._with_token("left task")
            params = client.call_params(task, group, "work", steps=20)
            await client.request(task, "tools/call", {**params, "task": {}})
        if "subscribe" in self._run.plan.does:
            subscribing = client.operation("subscribe", Expect.RESULT)
            uri = f"{group}://item/{subscribing.nonce}"
            await client.request(subscribing, "resources/subscribe", {"uri": uri})

    def _with_token(self, name: str, **facts: Json) -> Operation:
        operation = self._client.operation(name, **facts)
        return replace(operation, token=operation.nonce.number)

    async def _reach_upstream(self, operation: Operation, answer: asyncio.Future[dict[str, Json]]) -> None:
        async with patience(self._run.plan.patience_s):
            await self._run.history.reach_upstream(operation.nonce, answer)


def _origin(entry: Json) -> str | None:
    """Return the server that an entry of a list is of, if it says so."""
    return next(iter(origins_in(json.dumps(entry).encode())), None)


async def check(plan: Plan, history: History, host: Host) -> None:
    """Run a plan, and fail with its seed and its history when anything is wrong."""
    violations = await Run(plan, history).judge(host)
    assert not violations, show(violations, history.events, plan.seed)


async def settle(history: History, within_s: float) -> None:
    """Wait until upstreams have heard who has left; whoever judges then finds what they have not.

    A look stops the loop that the proxy runs in, and so does a collection of garbage: what bounds the wait is how
    often the loop went on in between, and not a clock that runs meanwhile.
    """
    for _ in range(math.ceil(within_s / _LOOK_EVERY_S)):
        if not is_waiting_for_upstreams(history.events):
            return
        await asyncio.sleep(_LOOK_EVERY_S)


async def _unless_interrupted(work: Awaitable[object]) -> None:
    with contextlib.suppress(RequestInterrupted):
        await work


async def _remembered(references: Sequence[weakref.ref[object]]) -> list[str]:
    """Name what is still held, once what ends on its own has had time to."""
    for _ in range(20):
        if not (alive := _alive(references)):
            break
        await asyncio.sleep(0.05)
    return alive


def _alive(references: Sequence[weakref.ref[object]]) -> list[str]:
    gc.collect()
    return [f"a {type(each).__name__}" for reference in references if (each := reference()) is not None]


def describe(exc: BaseException) -> str:
    """Say what went wrong, and where."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(describe(each) for each in exc.exceptions)
    frames, at = [], exc.__traceback__
    while at is not None:
        frames.append(f"{at.tb_frame.f_code.co_name}:{at.tb_lineno}")
        at = at.tb_next
    return f"{exc!r} in {' '.join(frames)}"
