"""The one way of a request to an upstream: steps in one order, compiled once for each view of a group.

`ORDER` is the only place where the order is written, and it is what runs; docs/rules.md shows it. What a feature does
is only a slot there, which a row of `features.table` fills. A group for which nothing is configured has the sending
itself as its chain. Each step calls `next`; it can answer by itself, refuse, or change what it passes on. A step that
changes arguments restarts: the steps before it that decide about arguments run again, by the config of that moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config, FeatureServer
from dynamic_mcp.errors import NotFound
from dynamic_mcp.features.table import FEATURES, Feature, feature_of_slot, find
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import INPUT_REQUIRED, RETRY_MEMBERS, StateRefused
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import (
    ApprovalCounts,
    CallPlan,
    Event,
    IdSigner,
    Next,
    Observers,
    Replicas,
    Request,
    Restart,
    UpstreamRequest,
)
from dynamic_mcp.proxy.turns import Turns
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.bounded import LONGEST_NAME, MOST_NAMES, BoundedDict
from dynamic_mcp.system.clock import Clock

if TYPE_CHECKING:
    from dynamic_mcp.policy.globs import Globs
    from dynamic_mcp.proxy.own_tools import OwnTool
    from dynamic_mcp.system.shared_store import SharedStore


class Services:
    """The services that the steps of one proxy use; those that are not configured are None or False.

    `view_for` returns what a client may see now, `roles_of` a principal's roles, and `note` takes events.
    `lists_changed` is to be called when a step shows other lists. `config` is that of clients without a workspace.
    Steps go by the time of `clock`; `state_folder` is where they share things with other processes of the user, if
    they may: those of a command, whose proxy ends with it, do not.
    """

    has_access_rules = False
    has_been_observed = False  # requests that began then are, to their ends
    own_tools: Mapping[str, OwnTool] = {}  # tools of features, by their names
    approvals: ApprovalCounts | None = None
    observers: Observers | None = None
    replicas: Replicas | None = None  # the other processes that serve the same clients
    shared_store: SharedStore | None = None  # what all replicas share; it changes with the config
    open_counts: Callable[[], SharedStore] | None = None  # where workers of one machine count calls together

    def __init__(
        self,
        view_for: Callable[[Client], View],
        roles_of: Callable[[Authentication], Sequence[str]],
        note: Callable[[Event], None],
        lists_changed: Callable[[], None],
        config: Config,
        clock: Clock,
        state_folder: Path | None = None,
    ) -> None:
        self.view_for = view_for
        self.roles_of = roles_of
        self.note = note
        self.lists_changed = lists_changed
        self.config = config
        self.clock = clock
        self.state_folder = state_folder

    @property
    def task_ids(self) -> IdSigner | None:
        """What signs the ids of tasks; None without other processes."""
        return None if self.replicas is None else self.replicas.task_ids

    @property
    def result_ids(self) -> IdSigner | None:
        """What signs the ids of kept results; None without other processes."""
        return None if self.replicas is None else self.replicas.result_ids


class ListChanger(Protocol):
    """Shows each client its own lists. Unchanged lists stay the same object."""

    def answer(self, answer: Answer, request: Request) -> Awaitable[Frame]:
        """Have a request answered by what its client is shown."""
        ...


class _BaseStep:
    """A feature's part in the calls of one proxy, made when a group first wants it."""

    # Whether it judges or replaces arguments, so that it runs again once a later step has changed them.
    decides = False

    def __init__(self, services: Services) -> None:
        self.services = services

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether requests of a group pass it: calls of a tool, by the server's name, or None for the rest."""
        return True

    async def prepare(self, config: Config) -> None:
        """Open what a config needs that is to be applied. Raises ConfigError, and then nothing has changed."""

    def apply(self, configs: Iterable[Config]) -> None:
        """Work for these configs from now on."""

    @property
    def lists(self) -> ListChanger | None:
        """The object that shows each client its own lists; None shows those of its view."""
        return None

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Raise DynamicMcpError for what may not be done; for what is done without a request to the upstream."""

    def recheck(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Raise DynamicMcpError for a request that has waited, and may not be sent by the view of this moment."""

    async def ask_ahead(self, request: Request, plan: CallPlan) -> None:
        """Ask at once about calls that a request is going to cause. Raises DynamicMcpError if none may be made."""

    def record_task(self, group: GroupView, id: str, tool: str) -> None:
        """Called when a call of a tool has become a task."""

    def record_update(self, group: Group, uri: str) -> None:
        """Called when a server has said that a resource has changed."""

    def share(self, store: SharedStore | None) -> None:
        """Called when the store that replicas share has become another one; its chains are compiled again."""

    def release(self, client: Client) -> None:
        """Called when a client has disconnected."""

    async def close(self) -> None:
        """Called once when the proxy closes; no call passes it any more."""


class Step(_BaseStep):
    """A step that passes on what it was given, or what it knows to be allowed."""

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Answer a call, mostly by `next`. Raises DynamicMcpError to refuse it.

        A step that does all by `bind`, and decides about nothing, is never called itself.
        """
        raise NotImplementedError

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        """Return the step for calls of one tool, by the server's name, or None for the rest of what a group is sent.

        What is the same for all of them can be looked up here, once.
        """
        run = self.__call__  # a lambda takes less time than a partial with keywords
        return lambda call: run(call, next)


class ChangingStep(_BaseStep):
    """A step that lets others change arguments, or that waits so long that the config may be another afterwards."""

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Answer a call, by `restart` where it has waited or the arguments are others, and else by `next`."""
        raise NotImplementedError

    def bind(self, group: GroupView, tool: str | None, next: Next, restart: Restart) -> Next:
        """Return the step for calls of one tool; see `Step.bind`."""
        run = self.__call__
        return lambda call: run(call, next, restart)


AnyStep = Step | ChangingStep
MakeStep = Callable[["Services"], AnyStep]

Answer = Callable[[Request], Awaitable[Frame]]
Wanted = Callable[["GroupView", "Services"], bool]


class StepRow(Struct, frozen=True):
    """A step in the order: its name and what happens, for people, and who does it.

    That is the feature that has a step for this `slot`, else a class of the kernel, as `module:Class`. With neither,
    it is no step of the chain. `is_wanted` says which groups may want it, before it is loaded; for a slot, it is
    those that have rules of the feature, unless this says otherwise.
    """

    name: str
    text: str
    step: str = ""
    is_wanted: Wanted | None = None
    slot: str = ""


def _has_rules(group: GroupView, services: Services) -> bool:
    return bool(group.call_rules) or services.has_access_rules or has_middleware(group, services)


def has_middleware(group: GroupView, services: Services) -> bool:
    """Return whether the config has plug-ins for a server."""
    return any(_compile_globs(each.servers).matches(group.name) for each in services.config.middleware)


@lru_cache(maxsize=64)
def _compile_globs(globs: tuple[str, ...]) -> Globs:
    from dynamic_mcp.policy.globs import Globs  # with the first plug-in

    return Globs(globs)


def _has_rules_of(feature: Feature, group: GroupView, services: Services) -> bool:
    return feature.name in group.call_rules


def _may_ask(group: GroupView, services: Services) -> bool:
    return services.has_access_rules or group.presentation.asks


def _is_observed(group: GroupView, services: Services) -> bool:
    return services.observers is not None or services.has_been_observed


def _lists_whole(group: GroupView, services: Services) -> bool:
    direct = group.presentation.direct
    return services.config.max_direct is not None and (direct.is_all or direct.is_auto)


def _is_of_feature(group: GroupView, services: Services) -> bool:
    return isinstance(group.config.upstream, FeatureServer)


# The way of a call, in its order.
ORDER = (
    StepRow(
        "form",
        "Parameters that a server may read in another way than the rules are refused.",
        "dynamic_mcp.proxy.call_form:CheckForm",
        _has_rules,
    ),
    StepRow(
        "overrides",
        "Shown names become the server's own; defaults and fixed arguments are added.",
        slot="overrides",
    ),
    StepRow(
        "mark",
        "On the way back, last of all: texts of a result are put between marks.",
        slot="mark results",
    ),
    StepRow(
        "redact",
        "Secrets and other matches are replaced in arguments.",
        slot="redact arguments",
    ),
    StepRow(
        "observe",
        "Audit, telemetry and metrics record the target of the call.",
        "dynamic_mcp.proxy.observed_calls:ObserveTarget",
        _is_observed,
    ),
    StepRow(
        "access",
        "The access rules decide.",
        "dynamic_mcp.proxy.authorization:AccessStep",
        lambda group, services: services.has_access_rules,
    ),
    StepRow(
        "plug-ins",
        "They may change arguments, which are redacted and decided again, or answer by themselves.",
        is_wanted=has_middleware,
        slot="plug-ins",
    ),
    StepRow("guards", "Arguments are judged.", slot="guards"),
    StepRow("limits", "The call is counted.", slot="limits"),
    StepRow(
        "approval",
        "A person is asked, where an access rule, `approve` or a guard says so. Changed arguments are decided again.",
        "dynamic_mcp.proxy.authorization:RefuseUnapproved",
        _may_ask,
        slot="approval",
    ),
    StepRow("cache", "A cached result answers the call.", slot="cache"),
    StepRow(
        "use",
        "Of a server whose tools are listed directly, calls are counted: the most used tools are listed first.",
        "dynamic_mcp.proxy.tool_uses:CountUses",
        _lists_whole,
    ),
    StepRow(
        "concurrent",
        "The call waits for a free place of its tool.",
        slot="concurrent",
    ),
    StepRow(
        "redact",
        "On the way back: secrets and other matches are replaced in the answer.",
        slot="redact answers",
    ),
    StepRow(
        "strip",
        "On the way back: terminal sequences and invisible characters are removed from the answer.",
        slot="strip results",
    ),
    StepRow(
        "stored script",
        "A stored script runs here; its calls take this whole way, each by itself.",
        is_wanted=_is_of_feature,
        slot="stored script",
    ),
    StepRow(
        "audit",
        "The call is written to the audit log right before it is sent.",
        "dynamic_mcp.proxy.observed_calls:ObserveSending",
        _is_observed,
    ),
    StepRow("upstream", "The server answers."),
    StepRow("result limit", "On the way back: a long text is cut, and kept whole as a resource."),
)


class _StepRow(Struct, frozen=True):
    """A row with a step: which groups may want it, and what loads its class."""

    is_wanted: Wanted
    load: Callable[[], type[AnyStep]]


def _list_steps() -> Iterator[tuple[int, _StepRow]]:
    """Yield the rows of the order that have a step; a slot has none if the program has no such feature."""
    for number, row in enumerate(ORDER):
        feature = feature_of_slot(row.slot) if row.slot else None
        if feature is not None:
            wanted = row.is_wanted or partial(_has_rules_of, feature)
            yield number, _StepRow(wanted, partial(feature.find, feature.steps[row.slot]))
        elif row.step and row.is_wanted is not None:
            yield number, _StepRow(row.is_wanted, partial(find, row.step))


_STEPS = dict(_list_steps())
# Rows up to the one that finds out the server's name of a tool.
_HEAD = 2
# The last step stands right before the upstream, after a call has waited for its turn.
_LAST = max(_STEPS)


class Chains:
    """The chains of one proxy, and the sending at their ends. `steps` replaces those of slots, by their names."""

    def __init__(self, services: Services, steps: Mapping[str, MakeStep] | None = None) -> None:
        self.services = services
        self._replaced = steps or {}
        self._turns = Turns()
        self._steps: dict[int, AnyStep] = {}
        self._compiled: WeakSet[GroupView] = WeakSet()
        self._version = 0

    def send(
        self,
        request: Request,
        group: GroupView,
        method: str,
        params: Mapping[str, Raw] | None,
        *,
        timeout_s: float,
        label: str = "",
        instance: Instance | None = None,
        notes: tuple[str, ...] = (),
    ) -> Awaitable[Frame]:
        """Send a request to a group's upstream, for the client of `request`.

        It goes to the client's instance, unless another `instance` has what it is about. Raises UpstreamError, and
        AccessDenied, ApprovalDenied, ApprovalNeeded and ApprovalPending, where nothing was sent.
        """
        chain = group.chain
        if chain is None:
            chain = self._compile(group)
        return chain(UpstreamRequest(request, group, method, params, timeout_s, label, instance, notes))

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Check what is about to be done without sending it. Raises what `send` would raise because of rules."""
        for step in self._find(group).values():
            step.check(request, group, method, params)

    def recheck(self, request: Request, group: str, method: str, params: Mapping[str, Raw] | None) -> None:
        """Decide again about a request that has waited for its server. Raises what `send` raises because of rules."""
        view = self.services.view_for(request.client)
        current = view.get(group)
        if current is None:
            raise NotFound("group", group, view.names, hint=view.names_in_words())
        for step in self._find(current).values():
            step.recheck(request, current, method, params)

    async def ask_ahead(self, request: Request, plan: CallPlan) -> None:
        """Have a person asked at once about calls that a request is going to cause.

        Raises what `send` would raise because nobody has allowed them.
        """
        steps = {row: step for call in plan.calls for row, step in self._find(call.group).items()}
        for row in sorted(steps):
            await steps[row].ask_ahead(request, plan)

    # --- what steps want to know -----------------------------------------------------------------------

    def find_list_changers(self) -> list[ListChanger]:
        """Return what shows clients other lists than their views have, in the order in which it answers."""
        self._list_openers(self.services.config)  # what is not open yet shows nothing
        return [lists for step in self._steps.values() if (lists := step.lists) is not None]

    async def prepare(self, config: Config) -> bool:
        """Open what a config needs that is to be applied, and tell whether it needs anything.

        Raises ConfigError, and then nothing has changed.
        """
        openers = self._list_openers(config)
        for step in openers:
            await step.prepare(config)
        return bool(openers)

    def apply(self, configs: Iterable[Config]) -> None:
        """Send by these configs from now on. To be called whenever a service has become another one, too."""
        configs = tuple(configs)
        for step in self._steps.values():
            step.apply(configs)
        self._open_shared()
        self.reset()

    def share(self, store: SharedStore | None) -> None:
        """Share what this store has with other replicas from now on; None shares nothing."""
        self.services.shared_store = store
        for step in self._steps.values():
            step.share(store)
        self._open_shared()
        self.reset()

    def reset(self) -> None:
        """Compile all chains again; requests that are on their way go on with theirs."""
        self._version += 1
        for group in self._compiled:
            group.chain = None
        self._compiled.clear()

    def record_task(self, group: GroupView, id: str, tool: str) -> None:
        for step in self._find(group).values():
            step.record_task(group, id, tool)

    def record_update(self, group: Group, frame: Frame) -> None:
        if self._steps:
            uri = wire.text(wire.member(frame.params, "uri")) or ""
            for step in self._steps.values():
                step.record_update(group, uri)

    def release(self, client: Client) -> None:
        for step in self._steps.values():
            step.release(client)

    async def close(self) -> None:
        for step in self._steps.values():
            await step.close()

    # --- compiling -------------------------------------------------------------------------------------

    def _compile(self, group: GroupView) -> Next:
        steps = self._find(group)
        if steps:
            head = [row for row in steps if row < _HEAD]
            chain = self._link(steps, head, group, None, _ToolChains(partial(self._compile_for, steps)))
        else:
            chain = self._send
        group.chain = chain
        self._compiled.add(group)
        return chain

    def _compile_for(
        self, steps: Mapping[int, AnyStep], group: GroupView, tool: str | None, *, after: int = _HEAD - 1
    ) -> Next:
        """Return the chain of one tool after a row, without the steps that have nothing to do for it."""
        wanted = [row for row, step in steps.items() if row > after and step.is_wanted(group, tool)]
        if _LAST in wanted:
            wanted.remove(_LAST)
            last = self._link(steps, [_LAST], group, tool, _send_now)
            return self._link(steps, wanted, group, tool, partial(self._send_by, last))
        return self._link(steps, wanted, group, tool, self._send)

    def _link(
        self, steps: Mapping[int, AnyStep], rows: Iterable[int], group: GroupView, tool: str | None, chain: Next
    ) -> Next:
        """Return a chain of the steps in these rows, before another chain."""
        for row in sorted(rows, reverse=True):
            step = steps[row]
            if isinstance(step, ChangingStep):
                chain = step.bind(group, tool, chain, partial(self._restart, row, self._version, chain))
            else:
                chain = step.bind(group, tool, chain)
        return chain

    def _restart(
        self, row: int, version: int, next: Next, call: UpstreamRequest, following: Next
    ) -> Awaitable[Frame]:
        """Have a call decided again by the steps before this row, and then go on, by the config of this moment.

        `version` is that of the config by which `next`, all that comes after the row, was compiled.
        """
        steps = self._find(call.group)
        if following is next and version != self._version:
            following = next = self._compile_for(steps, call.group, call.tool, after=row)
        chain = partial(self._go_on, row, self._version, next, following)
        again = [step for number, step in steps.items() if number < row and step.decides]
        for step in reversed(again):
            if isinstance(step, ChangingStep):
                chain = partial(step, next=chain, restart=_go_on_now)
            else:
                chain = partial(step, next=chain)
        return chain(structs.replace(call, decision=None))

    def _go_on(self, row: int, version: int, next: Next, following: Next, call: UpstreamRequest) -> Awaitable[Frame]:
        """Go on with a call that was decided again, unless the config has changed meanwhile."""
        if version == self._version:
            return following(call)
        return self._restart(row, version, next, call, following)

    def _find(self, group: GroupView) -> dict[int, AnyStep]:
        """Return the steps that a group wants, by their rows."""
        services = self.services
        return {number: self._step(number) for number, row in _STEPS.items() if row.is_wanted(group, services)}

    def _list_openers(self, config: Config) -> list[AnyStep]:
        """Return the steps that open something for a config."""
        return self._make_steps([each.opens for each in FEATURES if each.opens and each.is_wanted(config)])

    def _open_shared(self) -> None:
        """Make the steps that show what other replicas share."""
        if self.services.shared_store is not None:
            config = self.services.config
            self._make_steps([each.shares for each in FEATURES if each.shares and each.is_wanted(config)])

    def _make_steps(self, slots: Sequence[str]) -> list[AnyStep]:
        """Return the steps of these slots."""
        return [self._step(number) for number in _STEPS if ORDER[number].slot in slots] if slots else []

    def _step(self, row: int) -> AnyStep:
        step = self._steps.get(row)
        if step is None:
            make = self._replaced.get(ORDER[row].slot) or _STEPS[row].load()
            step = self._steps[row] = make(self.services)
        return step

    # --- sending ---------------------------------------------------------------------------------------

    def _send(self, call: UpstreamRequest) -> Awaitable[Frame]:
        """Send a request to the upstream: the chain of a group for which nothing is configured."""
        if call.request.client.hello.revision.is_stateless:
            return self._send_stateless(call, _send_now)
        target = call.group.group if call.instance is None else call.instance
        return target.request(call.method, call.params, call.timeout_s, call.request, call.label)

    def _send_by(self, last: Next, call: UpstreamRequest) -> Awaitable[Frame]:
        return self._send_stateless(call, last) if call.request.revision.is_stateless else last(call)

    async def _send_stateless(self, call: UpstreamRequest, last: Next) -> Frame:
        """Send a request of a modern client, whose answer may ask for input. Raises UnsafeQuestion."""
        if call.params is not None and not RETRY_MEMBERS.isdisjoint(call.params):
            answer = await self._send_retry(call, last)
        else:
            answer = await self._send_first(call, last)
        if not len(answer.result) or envelope.result_type(answer.result) != INPUT_REQUIRED:
            return answer
        from dynamic_mcp.proxy.asked_questions import prepare_input  # with the first question

        return prepare_input(call.group.name, call.request.client, answer)

    def _send_first(self, call: UpstreamRequest, last: Next) -> Awaitable[Frame]:
        return self._send_in_turn(call, last) if self._turns.are_needed(call.group, call.method) else last(call)

    async def _send_retry(self, call: UpstreamRequest, last: Next) -> Frame:
        """Send a retry to the upstream that it is for. Raises StateRefused if that has given no such state."""
        params = call.params or {}
        if await _instance(call).is_modern(call.request.client):
            return await last(call)
        if "requestState" in params:
            raise StateRefused("invalid")
        plain = {name: value for name, value in params.items() if name not in RETRY_MEMBERS}
        return await self._send_first(structs.replace(call, params=plain), last)

    def _send_in_turn(self, call: UpstreamRequest, last: Next) -> Awaitable[Frame]:
        def send(caller: Request) -> Awaitable[Frame]:
            return last(structs.replace(call, request=caller))

        return self._turns.run(call.request, call.group, _instance(call), call.timeout_s, send)


class _ToolChains:
    """The chains of a group with steps: one for each tool that is called, and one for all other requests."""

    def __init__(self, compile_for: Callable[[GroupView, str | None], Next]) -> None:
        self._compile_for = compile_for
        self._by_tool: BoundedDict[str | None, Next] = BoundedDict(MOST_NAMES)

    def __call__(self, call: UpstreamRequest) -> Awaitable[Frame]:
        """Send a request, whose tool is known, by the server's name, after the steps before."""
        tool = call.tool
        chain = self._by_tool.get(tool)
        if chain is None:
            chain = self._compile_for(call.group, tool)
            if tool is None or len(tool) <= LONGEST_NAME:
                self._by_tool[tool] = chain
        return chain(call)


def _go_on_now(call: UpstreamRequest, following: Next) -> Awaitable[Frame]:
    """Replaces `restart` in a call that was restarted, which checks at its end whether that is needed again."""
    return following(call)


def _send_now(call: UpstreamRequest) -> Awaitable[Frame]:
    target = call.group.group if call.instance is None else call.instance
    return target.request(call.method, call.params, call.timeout_s, call.request, call.label)


def _instance(call: UpstreamRequest) -> Instance:
    return call.instance or call.group.group.instance_for(call.request.client)
