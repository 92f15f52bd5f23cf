"""The words of a command line: what a call gives never becomes a flag."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag
from dynamic_mcp.upstream.cli.argv import MAX_BYTES, MAX_WORD_BYTES, BadArguments, build
from dynamic_mcp.upstream.cli.transport import make_tool
from tests.examples import examples
from tests.upstream.cli.programs import MIRROR, command, line

FLAGS = [
    {"name": "--all", "type": "boolean"},
    {"name": "-quiet", "type": "boolean", "style": "equals"},
    {"name": "--count", "type": "integer", "minimum": -5, "maximum": 10},
    {"name": "--ratio", "type": "number"},
    {"name": "--sort", "type": "enum", "values": ["name", "-time"]},
    {"name": "--text", "type": "string", "repeatable": True},
    {"name": "--file", "type": "path"},
    {"name": "--at", "type": "string", "literal": True},
    {"name": "-S", "type": "string", "as": "search"},
    {"name": "-n", "type": "integer", "as": "number", "style": "separate"},
    {"name": "--arg", "type": "pairs"},
]
BOTH = command(
    path=["do", "it"],
    fixed=["--safe"],
    separator=True,
    flags=FLAGS,
    positionals=[{"name": "rev", "before_separator": True}, {"name": "paths", "repeatable": True, "type": "path"}],
)
PLAIN = command(flags=FLAGS, positionals=[{"name": "words", "repeatable": True}])
WRAPPED = command(flags=FLAGS, positionals=[{"name": "word", "wrap": ["(", ")"], "literal": True}])


def words(arguments: dict[str, Any], of: Command = BOTH, **more: bool) -> list[str]:  # Any: JSON
    return list(build(of, arguments, **more).argv)


def refusal(arguments: dict[str, Any], of: Command = BOTH) -> str:
    with pytest.raises(BadArguments) as caught:
        build(of, arguments)
    return str(caught.value)


def test_words_come_in_the_order_of_the_pack() -> None:
    given = {"paths": ["a", "-b"], "rev": "main", "count": 3, "all": True, "text": ["x", "-y"], "search": "-z"}

    assert words(given) == [
        *("do", "it", "--all", "--count=3", "--text=x", "--text=-y", "-S-z", "--safe"),
        *("main", "--", "a", "-b"),
    ]


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({"all": True}, ["--all"]),
        ({"all": False}, []),
        ({"all": None}, []),
        ({"quiet": True}, ["-quiet=true"]),
        ({"quiet": False}, ["-quiet=false"]),
        ({"count": 0}, ["--count=0"]),
        ({"count": -5}, ["--count=-5"]),
        ({"count": 3.0}, ["--count=3"]),
        ({"ratio": 0.5}, ["--ratio=0.5"]),
        ({"ratio": 1e300}, ["--ratio=1e+300"]),
        ({"sort": "-time"}, ["--sort=-time"]),
        ({"text": []}, []),
        ({"text": [""]}, ["--text="]),
        ({"text": ["a b\n'\"$(x);|&"]}, ["--text=a b\n'\"$(x);|&"]),
        ({"at": "@x"}, ["--at=@x"]),
        ({"at": "-"}, ["--at=-"]),
        ({"number": 5}, ["-n", "5"]),
        ({"arg": {"a": "1", "b": ""}}, ["--arg", "a", "1", "--arg", "b", ""]),
    ],
)
def test_a_flag_is_written_as_the_pack_says(arguments: dict[str, Any], flags: list[str]) -> None:
    assert words(arguments, PLAIN) == flags


@pytest.mark.parametrize("text", ["-x", "--output=x", "--", "--upl", "-", "---"])
def test_a_word_that_the_program_could_take_for_a_flag_is_refused(text: str) -> None:
    assert "`rev` must not" in refusal({"rev": text})
    assert "`words` must not" in refusal({"words": ["a", text]}, PLAIN)
    assert "`arg` must not" in refusal({"arg": {text: "a"}}, PLAIN)
    assert "`arg` must not" in refusal({"arg": {"a": text}}, PLAIN)


@pytest.mark.parametrize("text", ["-x", "--output=x", "--"])
def test_behind_the_separator_a_word_is_no_flag(text: str) -> None:
    assert words({"paths": [text]})[-2:] == ["--", text]


def test_a_wrapped_text_may_begin_as_it_likes() -> None:
    assert words({"word": "-1"}, WRAPPED) == ["(-1)"]


def test_a_negative_number_is_no_word_of_its_own() -> None:
    assert "`number` must not begin with `-`" in refusal({"number": -5}, PLAIN)


@pytest.mark.parametrize("text", ["-", "@file", "@"])
def test_what_many_programs_read_from_elsewhere_is_refused_unless_allowed(text: str) -> None:
    for arguments in ({"text": [text]}, {"file": text}, {"search": text}, {"paths": [text]}):
        assert "stdin or a file" in refusal(arguments)
        words(arguments, at_files=True)


def test_an_empty_text_does_not_make_the_next_word_a_value() -> None:
    assert "`search` must not be empty" in refusal({"search": ""})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"text": ["a\0b"]}, "NUL"),
        ({"rev": "a\0b"}, "NUL"),
        ({"arg": {"a\0": "b"}}, "NUL"),
        ({"text": ["\ud800"]}, "Unicode"),
        ({"text": ["x" * (MAX_WORD_BYTES + 1)]}, "more than"),
        ({"text": ["ü" * (MAX_WORD_BYTES // 2 + 1)]}, "more than"),
        ({"text": ["x" * MAX_WORD_BYTES] * (MAX_BYTES // MAX_WORD_BYTES + 1)}, "more than"),
        ({"text": "a"}, "must be a list"),
        ({"text": [1]}, "must be a text"),
        ({"rev": ["a"]}, "must be a text"),
        ({"all": "true"}, "true or false"),
        ({"all": 1}, "true or false"),
        ({"count": True}, "whole number"),
        ({"count": 1.5}, "whole number"),
        ({"count": "1"}, "whole number"),
        ({"count": 11}, "at most 10"),
        ({"count": -6}, "at least -5"),
        ({"ratio": float("inf")}, "must be a number"),
        ({"ratio": float("nan")}, "must be a number"),
        ({"ratio": 10**400}, "too large"),
        ({"sort": "size"}, "one of"),
        ({"arg": {"a": 1}}, "texts"),
        ({"arg": ["a"]}, "texts"),
        ({"file": ""}, "must not be empty"),
        ({"output": "x"}, "no argument `output`"),
        ({"--all": True}, "no argument"),
        ({"al": True}, "no argument"),
    ],
)
def test_what_does_not_fit_is_refused_whatever_checked_it_before(arguments: dict[str, Any], why: str) -> None:
    assert why in refusal(arguments)


def test_what_is_required_must_be_there() -> None:
    needy = command(
        flags=[{"name": "--id", "type": "string", "required": True, "repeatable": True}],
        positionals=[{"name": "name", "required": True}],
    )

    assert refusal({"name": "x"}, needy) == "`id` is missing"
    assert refusal({"name": "x", "id": []}, needy) == "`id` is missing"
    assert refusal({"id": ["x"]}, needy) == "`name` is missing"


def test_a_word_does_not_take_the_place_of_one_that_is_missing() -> None:
    two = command(positionals=[{"name": "remote"}, {"name": "branch"}])

    assert refusal({"branch": "main"}, two) == "`branch` needs `remote` too"


def test_a_pattern_is_about_the_whole_text() -> None:
    picky = command(positionals=[{"name": "ref", "pattern": "[a-z]+"}])

    assert words({"ref": "main"}, picky) == ["main"]
    for text in ("main:other", "+main", "main\n", "", "Main"):
        assert "must match" in refusal({"ref": text}, picky)
    assert "Unicode" in refusal({"ref": "\ud800"}, picky)


def test_what_is_excepted_is_refused_though_the_pattern_matches() -> None:
    picky = command(positionals=[{"name": "unit", "pattern": "[a-z.]+", "except": "reboot\\.[a-z]+"}])

    assert words({"unit": "web.service"}, picky) == ["web.service"]
    assert words({"unit": "reboot."}, picky) == ["reboot."]
    for text in ("reboot.target", "web\n"):
        assert "match" in refusal({"unit": text}, picky)
    (unit,) = make_tool(line(picky), picky)["inputSchema"]["properties"].values()
    assert unit["not"] == {"pattern": "^(?:reboot\\.[a-z]+)$"}


# --- whatever a schema lets through ------------------------------------------------------------------------------

_NASTY = st.sampled_from(["-", "--", "-x", "--all", "--safe", "--output=x", "@f", "", "\n", "a\0b", "-n", "\ud800"])
_TEXT = _NASTY | st.text(max_size=20) | st.text(alphabet="-=a @", max_size=6)
_NUMBER = st.integers() | st.floats()


def _value(schema: dict[str, Any]) -> st.SearchStrategy[object]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_value(schema["items"]), max_size=4)
        case "object":
            return st.dictionaries(_TEXT, _TEXT, max_size=3)
        case "integer" | "number":
            return _NUMBER
    return _TEXT


@st.composite
def calls(draw: st.DrawFn, commands: list[Command]) -> tuple[Command, dict[str, Any]]:
    """A command, and arguments that its schema lets through."""
    chosen = draw(st.sampled_from(commands))
    schema = make_tool(line(chosen), chosen)["inputSchema"]
    names = draw(st.lists(st.sampled_from(sorted(schema["properties"]) or [""]), unique=True, max_size=8))
    wanted = {*filter(None, names), *schema.get("required", ())}
    arguments = {name: draw(_value(schema["properties"][name])) for name in sorted(wanted)}
    return chosen, arguments


def _flags_of(made: Command, argv: tuple[str, ...]) -> list[str]:
    """Return the words that a program would take for flags, as one does that knows the flags of this command."""
    by_name = {flag.name: flag for flag in made.flags}
    found: list[str] = []
    rest = list(argv[len(made.path) :])
    while rest:
        word = rest.pop(0)
        if word == "--" and made.separator:
            break
        if not word.startswith("-"):
            continue
        found.append(word)
        flag = by_name.get(word)
        if flag is not None and flag.written == "separate":
            del rest[: 2 if flag.type == "pairs" else 1]
    return found


def _is_written(flag: Flag, value: object) -> bool:
    return value is not False or flag.written == "equals"


def _is_form_of(flag: Flag, word: str) -> bool:
    match flag.written:
        case "bare" | "separate":
            return word == flag.name
        case "equals":
            return word.startswith(f"{flag.name}=")
        case "joined":
            return word.startswith(flag.name) and len(word) > len(flag.name)


SHIPPED = [each for name in library.shipped_names() for each in library.read_shipped(name).commands]


@examples(600, suppress_health_check=[HealthCheck.too_slow])
@given(call=calls([BOTH, PLAIN, WRAPPED, *SHIPPED]))
def test_nothing_that_a_schema_lets_through_becomes_a_flag_that_was_not_asked_for(
    call: tuple[Command, dict[str, Any]],
) -> None:
    made, arguments = call
    try:
        argv = build(made, arguments).argv
    except BadArguments:
        return
    asked = [
        flag for flag in made.flags if flag.argument in arguments and _is_written(flag, arguments[flag.argument])
    ]
    for word in _flags_of(made, argv):
        assert word in made.fixed or any(_is_form_of(flag, word) for flag in asked), word
    assert not any("\0" in word for word in argv)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(call=calls([BOTH, PLAIN, WRAPPED]))
def test_the_program_gets_these_words_and_no_others(call: tuple[Command, dict[str, Any]]) -> None:
    made, arguments = call
    try:
        argv = build(made, arguments).argv
    except BadArguments:
        return

    done = subprocess.run(
        [sys.executable, "-I", "-c", MIRROR, *argv], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )

    assert json.loads(done.stdout)["argv"] == list(argv)


def test_every_shipped_command_has_a_closed_schema() -> None:
    for made in SHIPPED:
        schema = make_tool(line(made), made)["inputSchema"]
        Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        assert {*schema.get("required", ())} <= {*schema["properties"]}
