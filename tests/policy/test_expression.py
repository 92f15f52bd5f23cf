"""Conditions of a rule in CEL."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec import Raw

from dynamic_mcp.policy.arguments import Arguments, ConditionError

pytest.importorskip("cel_expr_python", reason="needs the extra `cel`")

from dynamic_mcp.policy.expression import Expression

VARIABLES: dict[str, object] = {
    "subject": "alice",
    "issuer": "https://idp.example",
    "provider": "jwt",
    "roles": ["dev"],
    "scopes": [],
    "claims": {"groups": ["a", "b"]},
    "server": "github",
    "kind": "tool",
    "name": "delete_repo",
    "access": "write",
    "arguments": {"count": 3, "price": 1.5, "force": True, "tags": ["x"], "nothing": None},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('subject == "alice" && "dev" in roles', True),
        ('claims.groups.exists(group, group == "b")', True),
        ('"teams" in claims', False),
        ('scopes == [] && kind == "tool" && access == "write"', True),
        ('name.matches("delete_.*") && server.startsWith("git")', True),
        ("arguments.count == 3.0 && arguments.price > 1 && arguments.force", True),
        ("arguments.nothing == null", True),
        ('arguments.tags.all(tag, tag == "y")', False),
        ("has(arguments.missing) && arguments.missing == 1", False),
        ("arguments.missing == 1 || true", True),
        ('arguments.count == "3"', False),
    ],
)
def test_a_condition_is_true_or_false(text: str, expected: bool) -> None:
    assert Expression(text).evaluate(VARIABLES) is expected


@pytest.mark.parametrize(
    "text",
    [
        "arguments.missing == 1",
        'claims.teams == ["a"]',
        "arguments.count",
        'arguments.count > "3"',
        'subject.matches("(")',
        "1 / (arguments.count - 3) == 1",
        "[1, 2].exists(a, [1, 2].exists(b, a / 0 == b))",
    ],
)
def test_what_is_neither_true_nor_false_is_an_error(text: str) -> None:
    with pytest.raises(ConditionError):
        Expression(text).evaluate(VARIABLES)


def test_an_evaluation_that_takes_too_long_is_an_error() -> None:
    variables = VARIABLES | {"arguments": {"list": list(range(1000))}}
    with pytest.raises(ConditionError):
        Expression("arguments.list.all(a, arguments.list.all(b, a >= 0 && b >= 0))").evaluate(variables)


def test_an_error_does_not_tell_the_values_of_arguments() -> None:
    with pytest.raises(ConditionError) as caught:
        Expression("arguments.big == 1").evaluate(VARIABLES | {"arguments": {"big": 2**70}})
    assert str(2**70) not in str(caught.value)


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(ConditionError):
        Expression('server == "github"').evaluate({})


@pytest.mark.not_in_wine("where Rust's libraries unwind an error, the process ends; Windows raises it")
def test_a_variable_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ConditionError):
        Expression('subject == "a"').evaluate({"subject": "\ud800"})


@pytest.mark.parametrize("raw", [b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", b'{"a": "\\ud800"}'])
def test_arguments_that_cannot_be_evaluated_safely_are_an_error(raw: bytes) -> None:
    with pytest.raises(ConditionError):
        _ = Arguments(Raw(raw)).value


@pytest.mark.parametrize(
    ("text", "arguments", "caller"),
    [
        ('server == "a"', False, False),
        ("arguments.a == 1", True, False),
        ('subject == "a"', False, True),
        ('"x" in roles || has(claims.a)', False, True),
        ("size(scopes) == 0 && size(arguments) == 0", True, True),
        ("[1].exists(arguments, arguments == 1)", False, False),
    ],
)
def test_a_condition_knows_what_it_depends_on(text: str, arguments: bool, caller: bool) -> None:
    expression = Expression(text)
    assert (expression.uses_arguments, expression.uses_caller) == (arguments, caller)


def test_the_package_comes_with_the_first_condition() -> None:
    program = (
        "import sys, dynamic_mcp.policy.expression as it; print('cel_expr_python' in sys.modules);"
        "it.Expression('true'); print('cel_expr_python' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == ["False", "True"]
