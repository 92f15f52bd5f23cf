"""Evaluates the conditions of a rule on the arguments of a request.

A condition that cannot be evaluated is an error, never a result: the caller counts a rule that allows as not
matching, and any other as matching. An error only matters if the result depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Raw

from dynamic_mcp.config.access import Condition, Effect
from dynamic_mcp.policy.arguments import ArgumentPath, Arguments, ConditionError
from dynamic_mcp.policy.patterns import BadPattern, compile_pattern

_Result = bool | ConditionError


class Conditions:
    """The compiled conditions of one rule on arguments."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self._conditions = [_CompiledCondition(each) for each in conditions]

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def evaluate(self, arguments: Arguments | Raw | None, effect: Effect) -> bool:
        """Return whether all conditions hold.

        A path must match. For a rule that allows, each of its matches must fulfil its condition; for the others, one
        is enough. Raises ConditionError if the result is unknown.
        """
        if not self._conditions:
            return True
        parsed = arguments if isinstance(arguments, Arguments) else Arguments(arguments)
        if parsed.value is None:
            return False
        result = _all([each.evaluate(parsed, effect) for each in self._conditions])
        if isinstance(result, ConditionError):
            raise result
        return result


class _CompiledCondition:
    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._path = ArgumentPath(condition.path)
        self._values = None if condition.values is None else frozenset(map(_key, condition.values))
        self._pattern = None if condition.pattern is None else _Pattern(condition.pattern)

    def evaluate(self, arguments: Arguments, effect: Effect) -> _Result:
        try:
            values = self._path.select(arguments)
        except ConditionError as exc:
            return exc
        results = [self._check(value, effect) for value in values]
        if effect is Effect.ALLOW:
            return bool(results) and _all(results)
        return _any(results)

    def _check(self, value: object, effect: Effect) -> _Result:
        results: list[_Result] = []
        if self._values is not None:
            results.append(_key(value) in self._values)
        if self._pattern is not None:
            results.append(self._check_text(self._pattern, value, effect))
        if self._condition.minimum is not None or self._condition.maximum is not None:
            results.append(self._check_number(value))
        return _all(results)

    def _check_text(self, pattern: _Pattern, value: object, effect: Effect) -> _Result:
        if not isinstance(value, str):
            return self._error("is compared with a pattern, and is not a string")
        return pattern.matches(value, effect)

    def _check_number(self, value: object) -> _Result:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._error("is compared with a number, and is not one")
        minimum, maximum = self._condition.minimum, self._condition.maximum
        return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)

    def _error(self, what: str) -> ConditionError:
        return ConditionError(f"`{self._condition.path}` {what}")


class _Pattern:
    """A regular expression that the whole text must match.

    `.` matches a line break only in rules that ask or deny: a line break must neither evade a rule that denies,
    nor let more than one line pass a rule that allows.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._narrow = compile_pattern(pattern)
            self._wide = compile_pattern(pattern, dot_nl=True) if "." in pattern else self._narrow
        except BadPattern as exc:
            raise ConditionError("the pattern is not a regular expression of RE2") from exc

    def matches(self, text: str, effect: Effect) -> bool:
        pattern = self._narrow if effect is Effect.ALLOW else self._wide
        return pattern.fullmatch(text) is not None


def _key(value: object) -> tuple[str, object]:
    """Return a key that is equal for equal JSON: 1 is 1.0, and true is not 1."""
    match value:
        case None | bool():
            return "literal", value
        case str():
            return "string", value
        case int() | float():
            return "number", value
    return "other", None


def _all(results: Sequence[_Result]) -> _Result:
    """Return False if any result is False; else an error if there is one."""
    if any(result is False for result in results):
        return False
    return next((result for result in results if result is not True), True)


def _any(results: Sequence[_Result]) -> _Result:
    """Return True if any result is True; else an error if there is one."""
    if any(result is True for result in results):
        return True
    return next((result for result in results if result is not False), False)
