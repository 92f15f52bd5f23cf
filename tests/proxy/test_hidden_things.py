"""What access rules hide from a client does not exist for it, whatever it asks, and in whatever words."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.config.access import AccessKind, AccessRule, Condition, Effect
from dynamic_mcp.config.types import DirectTools
from tests.examples import examples
from tests.proxy.governed import EVERYTHING, Asker, Plan, World, two_worlds
from tests.proxy.questions import (
    LISTS,
    OTHERS,
    Question,
    prompt_questions,
    resource_questions,
    spellings,
    tool_questions,
    uri_spellings,
)

SERVERS = ("*", "a", "a*", "a__b", "z", "?", "nobody")
TOOLS = ("*", "read_*", "delete_x", "DELETE_X", "b__c", "c", "*c", "a__b__c", "nothing")
PROMPTS = ("*", "greet", "h*", "b__*", "nothing")
URIS = ("*", "x://*", "x://a/*", "x://shared", "x://a/items/*", "y://*", "x://a/one")


def _globs(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)


def _rule(number: int) -> st.SearchStrategy[AccessRule]:
    return st.builds(
        AccessRule,
        id=st.just(f"rule {number}"),
        effect=st.sampled_from([Effect.ALLOW, Effect.ALLOW, Effect.ASK, Effect.DENY, Effect.DENY]),
        servers=_globs(SERVERS),
        tools=st.none() | _globs(TOOLS),
        prompts=st.none() | _globs(PROMPTS),
        resources=st.none() | _globs(URIS),
        only=st.sampled_from([None, None, "read", "write"]),
        arguments=st.just(()) | st.just((Condition("$.level", values=(1,)),)),
    )


DIRECT_TOOLS = st.sampled_from([DirectTools(), DirectTools(is_all=True), DirectTools(globs=("read_x",))])
PLANS = st.builds(
    Plan,
    rules=st.tuples(*map(_rule, range(3))) | st.tuples(*map(_rule, range(1))),
    default=st.sampled_from([Effect.ALLOW, Effect.DENY]),
    direct=st.fixed_dictionaries(dict.fromkeys(EVERYTHING, DIRECT_TOOLS)),
    split_calls=st.booleans(),
)
GROUPS = (*EVERYTHING, "nobody")


def _names(kind: str) -> list[str]:
    return sorted({name for offers in EVERYTHING.values() for name in getattr(offers, kind)})


URIS_ASKED = [*_names("readable"), *_names("templates"), "x://nothing"]


def _all_questions() -> list[Question]:
    """Return the questions of a client that sees all groups."""
    tools, prompts = [*_names("tools"), "a__b__c", "nothing"], [*_names("prompts"), "nothing"]
    return [
        *OTHERS,
        *(each for group in GROUPS for name in tools for each in tool_questions(group, name)),
        *(each for name in tools for way in spellings(name) for each in tool_questions("a", way)),
        *(each for group in GROUPS for name in prompts for each in prompt_questions(group, name)),
        *(each for group in GROUPS for uri in URIS_ASKED for each in resource_questions(group, uri)),
        *(each for uri in URIS_ASKED for way in uri_spellings(uri) for each in resource_questions("a", way)),
    ]


KINDS = {
    "tools/call": AccessKind.TOOL,
    "prompts/get": AccessKind.PROMPT,
    "resources/read": AccessKind.RESOURCE,
    "resources/subscribe": AccessKind.RESOURCE,
}


def _plain(group: str) -> list[Question]:
    """Return the questions of a client that sees one group alone, by the names that the server gives."""
    uris = [each for uri in URIS_ASKED for each in uri_spellings(uri)]
    return [
        *(("tools/call", {"name": name, "arguments": {}}) for each in _names("tools") for name in spellings(each)),
        *(question for name in _names("prompts") for question in prompt_questions(group, name)),
        *(question for uri in uris for question in resource_questions(group, uri)),
        ("vendor/unknown", {}),
        ("tasks/get", {"taskId": "x"}),
        ("tools/call", {}),
    ]


async def _ask(client: Asker, questions: list[Question]) -> list[bytes]:
    """Return the answers to the lists, one after the other, and then to all questions at once."""
    hello = await client.initialize()
    listed = [await client.ask(method, params) for method, params in LISTS]
    return [hello, *listed, *await asyncio.gather(*(client.ask(method, params) for method, params in questions))]


def _differences(questions: list[Question], first: list[bytes], second: list[bytes]) -> list[object]:
    asked: list[Question] = [("initialize", {}), *LISTS, *questions]
    return [each for each in zip(asked, first, second, strict=True) if each[1] != each[2]]


DIRECT = DirectTools(is_all=True)
FEW = Plan(
    (
        AccessRule("a", Effect.ALLOW, ("a",), ("read_*", "b__c"), ("greet",), ("x://a/*",)),
        AccessRule("b", Effect.DENY, ("z",)),
    ),
    direct={"a": DIRECT},
)
MOST = Plan(
    (
        AccessRule("a", Effect.DENY, ("a__b",)),
        AccessRule("b", Effect.DENY, ("*",), ("Delete_*",), ("h*",), ("x://shared", "x://a/items/*")),
        AccessRule("c", Effect.ASK, ("a",), ("c",), None, ("y://*",)),
    ),
    default=Effect.ALLOW,
    direct={"z": DIRECT, "a": DirectTools(globs=("delete_x",))},
    split_calls=True,
)


# An example takes a second, since a list is read again for an unknown name, and at most once in that time.
@examples(6)
@given(PLANS, st.booleans())
@example(FEW, True)
@example(MOST, False)
async def test_a_client_cannot_tell_what_is_hidden_from_what_does_not_exist(plan: Plan, is_modern: bool) -> None:
    questions = _all_questions()
    async with two_worlds(plan) as worlds:
        answers = [await _ask(world.join(is_modern=is_modern), questions) for world in worlds]
        assert _differences(questions, *answers) == []
        _check_use(worlds[0], plan)


@examples(6)
@given(PLANS, st.booleans(), st.sampled_from(GROUPS))
@example(FEW, False, "a")
@example(MOST, True, "a")
@example(MOST, False, "a__b")
async def test_a_client_of_one_group_cannot_tell_either(plan: Plan, is_modern: bool, only: str) -> None:
    questions = _plain(only)
    async with two_worlds(plan) as worlds:
        answers = [await _ask(world.join(only=only, is_modern=is_modern), questions) for world in worlds]
        assert _differences(questions, *answers) == []
        _check_use(worlds[0], plan)


DECISIONS = st.sampled_from(["", "once", "deny"])


@examples(40)
@given(PLANS, st.booleans(), st.sampled_from([0, 1]), DECISIONS)
@example(FEW, False, 0, "")
@example(MOST, True, 1, "")
@example(MOST, False, 0, "once")
@example(MOST, False, 0, "deny")
async def test_lists_show_what_may_be_used_and_calls_decide_by_the_same_rules(
    plan: Plan, is_modern: bool, level: int, decision: str
) -> None:
    async with two_worlds(plan) as (world, _):
        client = world.join(is_modern=is_modern, decision=decision)
        await client.initialize()
        forms = 0
        for group in filter(plan.has_group, EVERYTHING):
            find = {"name": "get_dynamic_tools", "arguments": {"group": group, "detail": "names"}}
            listed = json.loads(await client.ask("tools/call", find))["result"]["content"][0]["text"]
            shown = [each["name"] for each in json.loads(listed)["tools"]]
            assert shown == [name for name in EVERYTHING[group].tools if plan.has(group, AccessKind.TOOL, name)]
            for name in shown:
                arguments = {"group": group, "name": name, "args": {"level": level}}
                verb = _verb(plan)
                answer = await client.ask("tools/call", {"name": verb, "arguments": arguments})
                expected = plan.decide(group, AccessKind.TOOL, name, level=level)
                is_asked = expected is Effect.ASK and bool(decision) and not is_modern
                forms += is_asked
                expected = Effect.ALLOW if is_asked and decision == "once" else expected
                assert _effect(answer, f"{name} of {group}") is expected, (group, name, answer)
        assert len(client.forms) == forms, "a person is asked about each call whose rule says so, and no other"


@examples(40)
@given(PLANS, st.booleans(), st.sampled_from(["", "deny"]))
@example(FEW, True, "")
@example(MOST, False, "")
@example(MOST, False, "deny")
async def test_listed_prompts_and_resources_can_be_used_as_the_rules_say(
    plan: Plan, is_modern: bool, decision: str
) -> None:
    async with two_worlds(plan) as (world, _):
        client = world.join(is_modern=is_modern, decision=decision)
        await client.initialize()
        for kind, method, member in (
            (AccessKind.PROMPT, "prompts/list", "name"),
            (AccessKind.RESOURCE, "resources/list", "uri"),
        ):
            listed = json.loads(await client.ask(method, {}))["result"][f"{kind.value}s"]
            use = "prompts/get" if kind is AccessKind.PROMPT else "resources/read"
            answers = [await client.ask(use, {member: each[member]}) for each in listed]
            assert Counter(map(_outcome, answers)) == Counter(_outcomes(plan, kind))


def _outcomes(plan: Plan, kind: AccessKind) -> Iterator[str]:
    """Yield what should come of using each thing of a kind that exists."""
    for group in filter(plan.has_group, EVERYTHING):
        for name in getattr(EVERYTHING[group], f"{kind.value}s"):
            if plan.has(group, kind, name):
                effect = plan.decide(group, kind, name, level=0)
                yield f"{name} of {group}" if effect is Effect.ALLOW else effect.value


def _outcome(answer: bytes) -> str:
    found = re.search(rb'"text": "([^"]* of [^"]*)"', answer)
    return found[1].decode() if found else _effect(answer, "\0").value


def _verb(plan: Plan) -> str:
    """Return the tool to call a tool with, whose annotations say nothing."""
    return "call_dynamic_tool_write" if plan.split_calls else "call_dynamic_tool"


def _effect(answer: bytes, success: str) -> Effect:
    """Return what an answer says of the decision."""
    if success.encode() in answer:
        return Effect.ALLOW
    is_asked = b"needs approval" in answer or b"the user denied it" in answer
    return Effect.ASK if is_asked else Effect.DENY


def _check_use(world: World, plan: Plan) -> None:
    """Check that no upstream was asked for what is hidden."""
    for server, method, key in world.used:
        if method in KINDS:
            assert plan.has(server, KINDS[method], key), (server, method, key)
