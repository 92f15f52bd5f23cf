"""What access rules hide from a client does not exist for it, whatever it asks, and in whatever words."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dynamic_mcp.config.access import Condition, Effect, Kind, Rule
from dynamic_mcp.config.resolved import Exposure
from tests.proxy.governed import EVERYTHING, Plan, two_worlds
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


def _rule(number: int) -> st.SearchStrategy[Rule]:
    return st.builds(
        Rule,
        id=st.just(f"rule {number}"),
        effect=st.sampled_from([Effect.ALLOW, Effect.ALLOW, Effect.ASK, Effect.DENY, Effect.DENY]),
        servers=_globs(SERVERS),
        tools=st.none() | _globs(TOOLS),
        prompts=st.none() | _globs(PROMPTS),
        resources=st.none() | _globs(URIS),
        arguments=st.just(()) | st.just((Condition("$.level", values=(1,)),)),
    )


EXPOSURES = st.sampled_from(
    [Exposure(direct=False, pinned=()), Exposure(direct=True, pinned=()), Exposure(direct=False, pinned=("read_x",))]
)
PLANS = st.builds(
    Plan,
    rules=st.tuples(*map(_rule, range(3))) | st.tuples(*map(_rule, range(1))),
    default=st.sampled_from([Effect.ALLOW, Effect.DENY]),
    exposures=st.fixed_dictionaries(dict.fromkeys(EVERYTHING, EXPOSURES)),
    split_calls=st.booleans(),
)
GROUPS = (*EVERYTHING, "nobody")


def _names(kind: str) -> list[str]:
    return sorted({name for offers in EVERYTHING.values() for name in getattr(offers, kind)})


TOOL_QUESTIONS = st.builds(
    lambda group, name, spelling, place: tool_questions(group, spellings(name)[spelling])[place],
    st.sampled_from(GROUPS),
    st.sampled_from([*_names("tools"), "a__b__c", "nothing"]),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6]),
    st.integers(0, 14),
)
PROMPT_QUESTIONS = st.builds(
    lambda group, name, spelling, place: prompt_questions(group, spellings(name)[spelling])[place],
    st.sampled_from(GROUPS),
    st.sampled_from([*_names("prompts"), "nothing"]),
    st.sampled_from([0, 0, 0, 1, 2, 4]),
    st.integers(0, 3),
)
RESOURCE_QUESTIONS = st.builds(
    lambda group, uri, spelling, place: (found := resource_questions(group, uri_spellings(uri)[spelling]))[
        place % len(found)
    ],
    st.sampled_from(GROUPS),
    st.sampled_from([*_names("readable"), *_names("templates"), "x://nothing"]),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    st.integers(0, 11),
)
QUESTIONS = st.sampled_from(LISTS + OTHERS) | TOOL_QUESTIONS | PROMPT_QUESTIONS | RESOURCE_QUESTIONS
ASKED = st.lists(QUESTIONS, min_size=5, max_size=30)


def _plain(group: str) -> list[Question]:
    """Return the questions of a client that sees one group alone, by the names that the server gives."""
    uris = [each for uri in _names("readable") for each in uri_spellings(uri)] + _names("templates")
    return [
        *LISTS,
        *(("tools/call", {"name": name, "arguments": {}}) for each in _names("tools") for name in spellings(each)),
        *(question for name in _names("prompts") for question in prompt_questions(group, name)),
        *(question for uri in uris for question in resource_questions(group, uri)),
        ("vendor/unknown", {}),
        ("tasks/get", {"taskId": "x"}),
        ("tools/call", {}),
        ("prompts/get", {"name": 5}),
        ("resources/read", {"uri": 5}),
    ]


@settings(max_examples=60)
@given(PLANS, st.booleans(), ASKED)
async def test_a_client_cannot_tell_what_is_hidden_from_what_does_not_exist(
    plan: Plan, is_modern: bool, questions: list[Question]
) -> None:
    async with two_worlds(plan) as worlds:
        hiding, lacking = (world.join(is_modern=is_modern) for world in worlds)
        assert await hiding.initialize() == await lacking.initialize()
        for method, params in questions:
            assert await hiding.ask(method, params) == await lacking.ask(method, params), (method, params)


@settings(max_examples=40)
@given(PLANS, st.booleans(), st.sampled_from(GROUPS), st.data())
async def test_a_client_of_one_group_cannot_tell_either(
    plan: Plan, is_modern: bool, only: str, data: st.DataObject
) -> None:
    questions = data.draw(st.lists(st.sampled_from(_plain(only)), max_size=20))
    async with two_worlds(plan) as worlds:
        hiding, lacking = (world.join(only=only, is_modern=is_modern) for world in worlds)
        assert await hiding.initialize() == await lacking.initialize()
        for method, params in questions:
            assert await hiding.ask(method, params) == await lacking.ask(method, params), (method, params)


@settings(max_examples=60)
@given(PLANS, st.booleans(), st.none() | st.sampled_from(GROUPS), ASKED, st.data())
async def test_nothing_hidden_is_used(
    plan: Plan, is_modern: bool, only: str | None, questions: list[Question], data: st.DataObject
) -> None:
    own = data.draw(st.lists(st.sampled_from(_plain(only or "a")), max_size=20))
    async with two_worlds(plan) as (world, _):
        client = world.join(only=only, is_modern=is_modern)
        await client.initialize()
        for method, params in questions + own:
            await client.ask(method, params)
        for server, method, key in world.used:
            if method == "tools/call":
                assert plan.has(server, Kind.TOOL, key)
            elif method == "prompts/get":
                assert plan.has(server, Kind.PROMPT, key)
            elif method in ("resources/read", "resources/subscribe"):
                assert plan.has(server, Kind.RESOURCE, key)
