"""Which tools a script names, read from its text."""

from __future__ import annotations

import gc
import sys
import threading

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


class Garbage:
    """Is collected in the middle of something else, and lets other threads run then."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(20):
            pass


def test_scripts_that_are_read_at_once_are_each_read() -> None:
    code = "\n".join(f'x{number} = call("up", "echo", {{"n": [{number}, [[]]]}})' for number in range(30))
    found: list[int] = []

    def read_often() -> None:
        for _ in range(40):
            for _ in range(10):
                Garbage()
            found.append(len(read_names(code).calls))

    threads = [threading.Thread(target=read_often) for _ in range(4)]
    usual_s, usual = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(usual_s)
        gc.set_threshold(*usual)
    assert found == [30] * 160
