"""Which tools a script names, read from its text."""

from __future__ import annotations

import pytest

from dynamic_mcp.features.scripts.names import read_names


def _pairs(code: str) -> list[tuple[str, str, int]]:
    return [(each.group, each.name, each.line) for each in read_names(code).calls]


def test_named_calls_are_read_in_their_order_with_their_lines() -> None:
    code = (
        'a = await call("one", "x")\n[await call(name="y", group="two", args={}) for _ in a]\nreturn call("one", "x")'
    )
    assert _pairs(code) == [("one", "x", 1), ("two", "y", 2), ("one", "x", 3)]
    assert not read_names(code).has_others


def test_calls_of_one_line_are_in_the_order_in_which_they_are_written() -> None:
    assert _pairs('await call("a", "1", await call("b", "2")), await call("c", "3")') == [
        ("a", "1", 1),
        ("b", "2", 1),
        ("c", "3", 1),
    ]


def test_names_in_texts_and_comments_are_no_calls() -> None:
    assert _pairs('# call("a", "b")\nx = \'call("a", "b")\'') == []


@pytest.mark.parametrize(
    "code",
    [
        'call(group, "x")',
        'call("a", f"{name}")',
        'call("a")',
        "call(*names)",
        "call(**names)",
        "do = call",
        'list(map(call, ["a"], ["b"]))',
        "eval(text)",
        "this is no script",
    ],
)
def test_a_script_may_call_more_than_it_names(code: str) -> None:
    assert read_names(f"{code}\n").has_others


@pytest.mark.parametrize(
    "code",
    [
        "call = print",
        "def call(group, name): pass",
        "class call: pass",
        "import asyncio as call",
        "from math import *",
        "for call in []: pass",
        "f = lambda call: call('a', 'b')",
        "try: pass\nexcept ToolError as call: pass",
        "match input:\n    case {**call}: pass",
        "match input:\n    case [*call]: pass",
        "match input:\n    case call: pass",
        "del call",
        "globals()['call'] = print",
    ],
)
def test_a_script_that_may_redefine_call_is_known(code: str) -> None:
    assert read_names(code).redefines


@pytest.mark.parametrize(
    "code",
    [
        "(" * 60_000,
        "-" * 60_000,
        "not " * 15_000 + "1",
        "lambda:" * 9_000,
        "{0:" * 20_000,
        "a if a else " * 5_000,
        "a." * 30_000 + "a",
        "f'{" * 20_000,
        'call("a", "b")\0',
        '"\\N{nothing}"',
        "call('a', 'b');" * 10_000,
    ],
)
def test_a_text_that_cannot_be_read_names_nothing(code: str) -> None:
    names = read_names(code)
    assert names.calls == ()
    assert names.redefines


def test_a_long_text_is_read_up_to_its_bound() -> None:
    assert len(read_names("call('a', 'b');" * 700).calls) == 700
    assert len(read_names(f"call('a', 'b')  # {'a' * 60_000}").calls) == 1


@pytest.mark.parametrize("part", ["{a}", "{a!r:{b}}"])
def test_a_text_that_would_hold_up_the_program_is_not_read(part: str) -> None:
    names = read_names(f"call('a', 'b')\nf'{part * (60_000 // len(part))}'")
    assert names.calls == ()
    assert names.redefines


def test_texts_with_lone_surrogates_are_names_like_others() -> None:
    assert _pairs('call("\\ud800", "b")') == [("\ud800", "b", 1)]
