"""The documented order of the steps is the one in which they run, and without rules none of them is loaded."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path

import pytest
from msgspec import Raw, structs

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.errors import NotFound
from dynamic_mcp.features.cache.rules import CacheRules, KeepRule
from dynamic_mcp.features.guards.guards import GuardRules
from dynamic_mcp.features.limits.limits import ConcurrencyLimit, LimitRules, RateLimit
from dynamic_mcp.features.overrides.overridden_tool import OverriddenTool
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.redaction.redactor import Redactor
from dynamic_mcp.features.result_texts.config import ResultTexts
from dynamic_mcp.features.result_texts.rules import ResultRules
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.proxy.call_form import check_form
from dynamic_mcp.proxy.chain import ORDER, Chains, ChangingStep, Services
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Next, Observation, Observer, Observers, Request, Restart, UpstreamRequest
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.clock import LoopClock
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config, text_of
from tests.features.overrides.overridden import rules_of
from tests.policy.rules import access_of, person

NAMES = [row.name for row in ORDER]
ANSWER = "redact of the answer"
# On the way back, in their order.
BACK = ["strip", ANSWER, "mark"]
PRESENTATION = group_config("up").presentation


class Steps(list[str]):
    """What has run, in its order; what runs again after a person was asked counts once."""

    def note(self, step: str) -> None:
        if step not in self:
            self.append(step)

    def note_access(self, arguments: str) -> None:
        self.note("access")


class NotedGuards(GuardRules):
    def __init__(self, steps: Steps) -> None:
        super().__init__((), "up")
        self.steps = steps

    def judges(self, tool: str) -> bool:
        return True

    def judge(self, tool: str, arguments: Raw | None, *, shown_name: Callable[[str], str] = str) -> Decision | None:
        self.steps.note("guards")
        return super().judge(tool, arguments, shown_name=shown_name)


class NotedName:
    """The key of a count, which notes that it is looked up."""

    def __init__(self, steps: Steps, step: str) -> None:
        self._steps = steps
        self._step = step

    def __hash__(self) -> int:
        self._steps.note(self._step)
        return id(self)


class NotedRate(RateLimit, frozen=True):
    """Notes that a call is counted."""

    steps: Steps

    def name_for(self, person: Hashable, tool: str) -> Hashable:
        return NotedName(self.steps, "limits")


class NotedRoom(ConcurrencyLimit, frozen=True):
    """Notes that a call takes a place."""

    steps: Steps

    def name_for(self, person: Hashable, tool: str) -> Hashable:
        return NotedName(self.steps, "concurrent")


class NotedLimits(LimitRules):
    def __init__(self, steps: Steps) -> None:
        super().__init__((), "up")
        self.steps = steps

    def rates_for(self, tool: str) -> tuple[RateLimit, ...]:
        return (NotedRate("a rate", "limits[0]", False, True, False, 1e-6, 1.0, self.steps),)

    def concurrency_for(self, tool: str) -> tuple[ConcurrencyLimit, ...]:
        return (NotedRoom("a room", "limits[1]", False, True, False, 5, self.steps),)


class NotedCache(CacheRules):
    def __init__(self, steps: Steps) -> None:
        super().__init__(PRESENTATION, "up")
        self.steps = steps

    def for_tool(self, name: str) -> KeepRule | None:
        return KeepRule("a rule", "up", ttl_s=1.0, per_person=False, max_bytes=0)

    def digest_of_reader(self, name: str, definition: Raw) -> bytes | None:
        self.steps.note("cache")
        return None


class NotedRedactor(Redactor):
    def __init__(self, steps: Steps) -> None:
        super().__init__(())
        self.steps = steps

    def has_for_arguments(self, tool: str | None) -> bool:
        return True

    def has_for_answers(self, tool: str | None) -> bool:
        return True

    def redact_arguments(self, tool: str | None, arguments: Raw | None) -> Raw | None:
        self.steps.note("redact")
        return super().redact_arguments(tool, arguments)

    def redact_answer(self, tool: str | None, payload: Raw) -> Raw:
        self.steps.note(ANSWER)
        return super().redact_answer(tool, payload)


class NotedResults(ResultRules):
    def __init__(self, steps: Steps) -> None:
        super().__init__(ResultTexts(strip=("ansi",), mark=True), "up")
        self.steps = steps

    def strip(self, payload: Raw) -> Raw:
        self.steps.note("strip")
        return super().strip(payload)

    def mark_text(self, text: str) -> str:
        self.steps.note("mark")
        return super().mark_text(text)


class NotedTool(OverriddenTool):
    def __init__(self, steps: Steps) -> None:
        super().__init__("echo", "echo", wire.EMPTY_OBJECT)
        self.steps = steps

    def restore(self, given: Raw | None) -> Raw | None:
        self.steps.note("overrides")
        return super().restore(given)


class NotedChange(ChangingStep):
    """A plug-in, or a person who allows everything, perhaps with other parameters."""

    def __init__(
        self, services: Services, *, name: str, steps: Steps, changed: Mapping[str, Raw] | None = None
    ) -> None:
        super().__init__(services)
        self.name = name
        self.steps = steps
        self.changed = changed

    async def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Frame:
        self.steps.note(self.name)
        return await restart(call if self.changed is None else structs.replace(call, params=self.changed), next)


class NotedObservation(Observation):
    """Hears of the target, and of the decision about it."""

    steps: Steps = Steps()

    def note_target(self, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        self.steps.note("observe")
        super().note_target(group, method, params)

    def note_decision(self, decision: Decision) -> None:
        self.steps.note_access(bytes((self.params or {})["arguments"]).decode())
        super().note_decision(decision)


class NotedSending(Observer):
    """Stands where the audit log does."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        self.steps.note("audit")
        return message


class NotedGroup(GroupView):
    """A group with a rule of each kind."""

    def __init__(self, view: GroupView, steps: Steps) -> None:
        super().__init__(view.group, view.presentation, view.rules)
        self.steps = steps
        self.call_rules |= {
            "guards": NotedGuards(steps),
            "limits": NotedLimits(steps),
            "redaction": NotedRedactor(steps),
            "result_texts": NotedResults(steps),
            "cache": NotedCache(steps),
        }

    def find_shown(self, tool: str) -> OverriddenTool | None:
        return NotedTool(self.steps)


async def pass_all(
    steps: Steps,
    *,
    params: Mapping[str, Raw] | None = None,
    by_person: Mapping[str, Raw] | None = None,
    by_plugin: Mapping[str, Raw] | None = None,
    group: type[NotedGroup] = NotedGroup,
) -> object:
    """Have a call pass rules of all kinds, and return the params that are sent.

    A person and a plug-in change them to these.
    """
    sent: list[object] = []

    def answer(params: object) -> object:
        steps.note("upstream")
        sent.append(upstream.heard("tools/call")[-1]["params"])
        return {"content": [{"type": "text", "text": "fine"}]}

    upstream = FakeUpstream({"tools/call": answer}, tools=("echo",))
    config = config_of(
        group_config("up", rules=rules_of(other={"title": "Other"})),
        access=access_of(roles={"dev": [{"effect": "ask"}]}),
    )
    proxy = Proxy(config, opener=Opener(up=[upstream]))
    with_plugin = structs.replace(config, middleware=(Plugin("any"),))
    services = Services(proxy.view_for, proxy.roles_of, lambda event: None, lambda: None, with_plugin, LoopClock())
    services.has_access_rules = True
    services.observers = Observers([NotedSending(steps)])
    try:
        client = Client(proxy, authentication=person("ann", "dev"), only="up")
        view = proxy.view_for(client.session)
        request = Request("tools/call", wire.EMPTY_OBJECT, client.session, view)
        observation = NotedObservation(services.observers, request, 0.0, 0.0, steps=steps)
        request = structs.replace(request, observation=observation)
        changes = {"plug-ins": by_plugin, "approval": by_person}
        changing = {
            name: partial(NotedChange, name=name, steps=steps, changed=each) for name, each in changes.items()
        }
        noted, chains = group(view["up"], steps), Chains(services, changing)
        given = params or {"name": Raw(b'"echo"'), "arguments": wire.EMPTY_OBJECT}
        await chains.send(request, noted, "tools/call", given, timeout_s=5)
        steps.clear()  # of the first call, for which the chain was compiled
        await chains.send(request, noted, "tools/call", given, timeout_s=5)
    finally:
        await proxy.close()
    return sent[-1]


class EmptyGroup(NotedGroup):
    """A group that shows no tool any more."""

    def find_shown(self, tool: str) -> OverriddenTool | None:
        return None


async def test_a_tool_that_is_not_shown_any_more_is_not_called_by_its_name() -> None:
    steps = Steps()

    with pytest.raises(NotFound, match="echo"):
        await pass_all(steps, group=EmptyGroup)

    assert steps == []


async def test_parameters_that_can_be_read_in_two_ways_are_refused_before_any_rule_is_asked() -> None:
    steps = Steps()

    with pytest.raises(wire.Malformed, match="`Name` is not a parameter"):
        await pass_all(steps, params={"name": Raw(b'"echo"'), "Name": Raw(b'"delete"')})

    assert steps == ["observe"]  # so that the audit log can say what it was about


@pytest.mark.parametrize("depth", range(900, 1000, 5))
def test_a_reference_is_checked_whatever_is_in_it(depth: int) -> None:
    check_form({"ref": Raw(b'{"type":"ref/prompt","name":"a","n":%s}' % (b"1" * 5000))})
    with contextlib.suppress(wire.Malformed):  # if it is nested too deeply, which depends on what has called this
        check_form({"ref": Raw(b'{"type":"ref/prompt","name":"a","x":' + b"[" * depth + b"]" * depth + b"}")})
    with pytest.raises(wire.Malformed, match="duplicate key"):
        check_form({"ref": Raw(b'{"name":"a","n":%s,"name":"b"}' % (b"1" * 5000))})


async def test_the_steps_run_in_the_order_of_the_table() -> None:
    steps = Steps()
    await pass_all(steps)
    # the first shows nothing, and calls are counted of servers only that are listed directly
    rows = [row for row in ORDER[1:] if row.name not in ("use", "stored script")]  # the latter are no servers of ours
    there = [row.name for row in rows if not row.text.startswith("On the way back")]
    assert steps == [*there, *BACK]
    assert [name for name in NAMES if name in ("mark", "strip")] == ["mark", "strip"]
    assert NAMES.index("strip") > len(NAMES) - 1 - NAMES[::-1].index("redact")


class EveryStep(Steps):
    """What has run, as often as it has."""

    def note(self, step: str) -> None:
        self.append(step)

    def note_access(self, arguments: str) -> None:
        self.note(f"access to {arguments}")


CHANGED = {"name": Raw(b'"echo"'), "arguments": Raw(b'{"by":"another"}')}


async def test_what_a_person_changes_is_redacted_decided_and_judged_again() -> None:
    steps = EveryStep()

    sent = await pass_all(steps, by_person=CHANGED)

    assert sent == {"name": "echo", "arguments": {"by": "another"}}
    after = steps[steps.index("approval") + 1 : steps.index("audit")]
    assert after == ["redact", "observe", 'access to {"by":"another"}', "guards", "cache", "concurrent"]


async def test_what_a_plug_in_changes_is_redacted_and_decided_again() -> None:
    steps = EveryStep()

    sent = await pass_all(steps, by_plugin=CHANGED)

    assert sent == {"name": "echo", "arguments": {"by": "another"}}
    after = steps[steps.index("plug-ins") + 1 : steps.index("guards")]
    assert after == ["redact", "observe", 'access to {"by":"another"}']


async def test_what_a_person_writes_that_servers_could_read_in_two_ways_is_not_sent() -> None:
    steps = EveryStep()

    with pytest.raises(wire.Malformed, match="`Name` is not a parameter"):
        await pass_all(steps, by_person={**CHANGED, "Name": Raw(b'"delete"')})

    assert "upstream" not in steps


async def test_a_result_is_redacted_after_it_is_written_down_and_before_it_is_cut() -> None:
    steps = Steps()

    def answer(params: object) -> object:
        steps.note("upstream")
        return {"content": [{"type": "text", "text": "secret " * 1000}]}

    rules = {"redact": (Redact("r0", pattern="secret", replacement="[x]"),)}
    config = config_of(
        group_config("up", rules=rules, answers=CallHandling(limit=1000, validate=None, compact=False)),
    )
    proxy = Proxy(config, opener=Opener(up=[FakeUpstream({"tools/call": answer}, tools=("echo",))]))
    proxy.observers = Observers([NotedSending(steps)])
    try:
        client = Client(proxy)
        await client.initialize()
        result = await client.call("up", "echo", {})
        (uri,) = [each["uri"] for each in result["content"] if each["type"] == "resource_link"]
        kept = (await client.request("resources/read", {"uri": uri}))["result"]["contents"][0]["text"]
    finally:
        await proxy.close()
    assert steps == ["audit", "upstream"]
    assert "secret" not in text_of(result)
    assert kept.count("[x]") == 1000  # what is kept was cut after the texts were replaced


WITHOUT_RULES = """
import asyncio, sys
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config

async def main():
    upstream = FakeUpstream({"tools/call": {"content": []}}, tools=("echo",))
    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[upstream]))
    client = Client(proxy)
    await client.initialize()
    assert await client.call("up", "echo", {}) == {"content": []}
    await proxy.close()

asyncio.run(main())
print(*sys.modules)
"""


def test_a_call_without_rules_loads_nothing_of_them() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", WITHOUT_RULES], capture_output=True, text=True, check=True, cwd=root)
    loaded = run.stdout.split()
    assert "dynamic_mcp.proxy.proxy" in loaded
    rules = (
        "dynamic_mcp.policy",
        "dynamic_mcp.middleware",
        "dynamic_mcp.features.plugins",
        "dynamic_mcp.features.approvals",
        "dynamic_mcp.proxy.authorization",
        "dynamic_mcp.proxy.call_",
        "dynamic_mcp.proxy.hidden",
        "dynamic_mcp.proxy.observed_calls",
        *(f"dynamic_mcp.features.{feature.name}" for feature in FEATURES),
    )
    assert [each for each in loaded if each == "re2" or each.startswith(rules)] == []
