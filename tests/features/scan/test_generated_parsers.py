"""Parsers with whatever flags there may be print their help, which is read and compared with what they take."""

from __future__ import annotations

import argparse
import string
from typing import Any

import click
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from dynamic_mcp.features.scan.facts import CommandFact
from dynamic_mcp.features.scan.help.text import read_text

_LETTERS = string.ascii_lowercase + string.digits
_WORDS = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=9), min_size=1, max_size=25)
_NAMES = st.from_regex(r"[a-z][a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True).filter(
    lambda name: name not in ("help", "version") and not name.startswith("no-")
)
_VALUES = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,7}", fullmatch=True), min_size=2, max_size=5, unique=True)


class Option(Struct, frozen=True):
    """A flag as a program declares it."""

    name: str
    letter: str
    type: str
    values: tuple[str, ...]
    text: str


@st.composite
def options(draw: st.DrawFn) -> list[Option]:
    names = draw(st.lists(_NAMES, min_size=1, max_size=12, unique=True))
    letters = draw(st.lists(st.sampled_from(string.ascii_letters.replace("h", "")), unique=True, max_size=len(names)))
    made = []
    for number, name in enumerate(names):
        kind = draw(st.sampled_from(["boolean", "string", "integer", "number", "enum", "path"]))
        values = tuple(draw(_VALUES)) if kind == "enum" else ()
        letter = letters[number] if number < len(letters) else ""
        made.append(Option(name, letter, kind, values, " ".join(draw(_WORDS))))
    return made


def _shape(fact: CommandFact) -> set[tuple[frozenset[str], str | None, tuple[str, ...]]]:
    return {
        (frozenset(flag.names), flag.value.type, flag.value.values)
        for flag in fact.flags
        if flag.value is not None and "--help" not in flag.names
    }


def _truth(wanted: list[Option]) -> set[tuple[frozenset[str], str | None, tuple[str, ...]]]:
    return {(frozenset(_names(each)), each.type, each.values) for each in wanted}


def _names(option: Option) -> list[str]:
    return [*([f"-{option.letter}"] if option.letter else []), f"--{option.name}"]


_METAVARS = {"string": "TEXT", "integer": "INT", "number": "FLOAT", "path": "FILE"}


def _argparse_help(wanted: list[Option], width: int) -> str:
    def formatter(prog: str) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(prog, width=width)

    parser = argparse.ArgumentParser("tool", description="Does things.", formatter_class=formatter)
    for each in wanted:
        more: dict[str, Any] = {"metavar": _METAVARS.get(each.type)}  # Any: what argparse takes
        if each.type == "boolean":
            more = {"action": "store_true"}
        elif each.type == "enum":
            more = {"choices": each.values}
        parser.add_argument(*_names(each), help=each.text, **more)
    return parser.format_help()


_TYPES: dict[str, click.ParamType[Any]] = {
    "string": click.STRING,
    "integer": click.INT,
    "number": click.FLOAT,
    "path": click.Path(),
}


def _click_help(wanted: list[Option], width: int) -> str:
    params = [
        click.Option(
            _names(each),
            is_flag=each.type == "boolean",
            type=click.Choice(each.values) if each.values else _TYPES.get(each.type),
            help=each.text,
        )
        for each in wanted
    ]
    command = click.Command("tool", params=[*params], help="Does things.")
    return command.get_help(click.Context(command, info_name="tool", terminal_width=width, max_content_width=width))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(options(), st.integers(70, 220))
def test_each_flag_of_an_argparse_parser_is_read_with_its_type(wanted: list[Option], width: int) -> None:
    assert _shape(read_text(_argparse_help(wanted, width))) == _truth(wanted)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(options(), st.integers(70, 220))
def test_each_flag_of_a_click_command_is_read_with_its_type(wanted: list[Option], width: int) -> None:
    assert _shape(read_text(_click_help(wanted, width))) == _truth(wanted)


@given(st.text(max_size=2000))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert read_text("Usage: " + text).source == "--help"


@given(
    st.lists(
        st.sampled_from(
            ["-", "--a", "[", "]", "<x>", "=", " ", "  ", "\n", "...", "|", "{a,b}", "Options:", "usage:", "N"]
        ),
        max_size=60,
    )
)
def test_no_mix_of_what_help_texts_have_breaks_the_reader(parts: list[str]) -> None:
    for flag in read_text("".join(parts)).flags:
        assert flag.names
        assert all(name.startswith("-") for name in flag.names)
