from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.substitute import Expansion, Surroundings, expand

ENVIRONMENT = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A} $${B} $A", "_x1": "three"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${A}", "one"),
        ("<${A}${B}>", "<onetwo>"),
        ("${_x1}", "three"),
        ("${EMPTY}", ""),
        ("${A:-other}", "one"),
        ("${NOPE:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${NOPE:-}", ""),
        ('${NOPE:-a b:-c $x \\ { "}', 'a b:-c $x \\ { "'),
        ("${NOPE:-${A}}", "one"),
        ("${NOPE:-${A}", "${A"),
        ("${NOPE:-<${NOPE2:-deep}>}!", "<deep>!"),
        ("${A:?is needed}", "one"),
        ("${NESTED}", "${A} $${B} $A"),
        ("$${A}", "${A}"),
        ("$${A}${A}", "${A}one"),
        ("$$${A}", "$${A}"),
        ("$${", "${"),
    ],
)
def test_a_reference_becomes_its_value(text: str, expected: str) -> None:
    found = expand(text, ENVIRONMENT)
    assert (found.text, found.undefined, found.failures) == (expected, (), ())


@pytest.mark.parametrize(
    "text",
    ["$A", "$ {A}", "${}", "${1A}", "${A", "${A-x}", "${A:x}", "${A:+x}", "${env:A}", "${input:a}", "${ A }",
     "${a.b}", "$(id)", "`id`", "%A%", "{A}", "$", "$$", "${É}", "~"],
)  # fmt: skip
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert expand(text, ENVIRONMENT) == Expansion(text)


def test_a_name_that_is_not_set_stays_and_is_reported_once() -> None:
    assert expand("${NOPE} ${A} ${NOPE} ${GONE}", ENVIRONMENT) == Expansion(
        "${NOPE} one ${NOPE} ${GONE}", undefined=("NOPE", "GONE")
    )


def test_a_name_that_is_not_set_inside_a_default_is_reported() -> None:
    assert expand("${NOPE:-${GONE}}", ENVIRONMENT) == Expansion("${GONE}", undefined=("GONE",))


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("${NOPE:?log in first}", "`${NOPE}` is not set: log in first"),
        ("${EMPTY:?log in first}", "`${EMPTY}` is not set: log in first"),
        ("${NOPE:?}", "`${NOPE}` is not set"),
        ("${GONE:-${NOPE:?both}}", "`${NOPE}` is not set: both"),
    ],
)
def test_a_demand_that_is_not_met_is_a_failure(text: str, failure: str) -> None:
    assert expand(text, ENVIRONMENT).failures == (failure,)


@given(st.text())
def test_a_text_without_references_is_itself(text: str) -> None:
    plain = text.replace("${", "")

    assert expand(plain, ENVIRONMENT) == Expansion(plain)


@given(st.text("${}:-?A_1 "))
def test_what_is_escaped_comes_back_as_it_was(text: str) -> None:
    assert expand(text.replace("${", "$${"), ENVIRONMENT) == Expansion(text)


def test_an_empty_variable_is_substituted_and_reported() -> None:
    assert expand("<${EMPTY}>", ENVIRONMENT) == Expansion("<>", empty=("EMPTY",))


@pytest.mark.parametrize("text", ["${V}", "$V", "${env:V}"])
def test_a_reference_that_a_tool_passed_on_as_it_is_counts_as_not_set(text: str) -> None:
    assert expand("${V}", {"V": text}) == Expansion("${V}", undefined=("V",))
    assert expand("${V:-x}", {"V": text}).text == "x"


@given(st.text())
def test_what_a_variable_holds_is_never_expanded_again(value: str) -> None:
    assert expand("<${V}>", {"V": value, "A": "never"}).text == f"<{value}>"


@given(st.text("${}:-?A1 ", max_size=40))
def test_without_variables_nothing_but_defaults_changes(text: str) -> None:
    expansion = expand(text, {})

    assert set(expansion.text) <= set(text)


@pytest.mark.parametrize("piece", ["${", "${A", "${A:-", "${A:-${", "$${", "${A:-${A}"])
def test_a_long_hostile_text_takes_no_more_than_linear_time(piece: str) -> None:
    expand(piece * 100_000, ENVIRONMENT)
    expand(piece * 100_000 + "}", ENVIRONMENT)


def test_names_are_the_same_in_any_case_on_windows_only(tmp_path: Path) -> None:
    variables = {"PATH": "C:\\bin", "Key": "k"}
    windows = Surroundings(variables, "win32", tmp_path, {"token": "t", "path": "D:\\bin"})
    text = "${Path} ${key} ${TOKEN}"
    assert expand(text, windows.environment).text == "C:\\bin k ${TOKEN}"
    assert expand(text, windows.all_variables()).text == "D:\\bin k t"
    assert sorted(windows.all_variables()) == ["Key", "path", "token"]
    elsewhere = Surroundings(variables, "linux", tmp_path)
    assert expand(text, elsewhere.all_variables()).undefined == ("Path", "key", "TOKEN")
