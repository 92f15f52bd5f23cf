"""Decides whether the arguments of a request fulfil the conditions of a rule.

What cannot be evaluated is an error, never an answer: the caller counts a rule that allows as not matching, and any
other as matching. An error only matters if the answer depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.config.access import Condition, Effect
from dynamic_mcp.mcp import strict_json
from dynamic_mcp.mcp.selection import BadPath, Selector

if TYPE_CHECKING:
    from re2 import _Regexp

# Arguments are small; only a path with `..` on megabytes of them takes this long.
_MAX_SELECT_S = 0.5
# No tool needs more, and the evaluation of expressions is recursive.
_MAX_DEPTH = 200


class ConditionError(Exception):
    """A condition that cannot be evaluated. The message has no values of arguments."""


_Result = bool | ConditionError


class Arguments:
    """The arguments of one request, parsed when first asked for, and only once."""

    def __init__(self, raw: Raw | None) -> None:
        self._raw = raw
        self._value: dict[str, object] | ConditionError | None = None
        self._is_parsed = False

    @property
    def value(self) -> dict[str, object] | None:
        """The arguments; None if there are none, or if they are not an object. Raises ConditionError."""
        if not self._is_parsed:
            self._value = _parse(self._raw)
            self._is_parsed = True
        if isinstance(self._value, ConditionError):
            raise self._value
        return self._value

    @cached_property
    def folded(self) -> object:
        """The arguments as a server reads them to which the case of a key makes no difference."""
        return _fold_keys(self.value)


class Conditions:
    """The conditions of one rule on arguments, compiled."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self._conditions = [_Compiled(each) for each in conditions]

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def evaluate(self, arguments: Arguments | Raw | None, effect: Effect) -> bool:
        """Tell whether all conditions hold.

        A path must match. For a rule that allows, each of its matches must fulfil its condition; for the others, one
        is enough. Raises ConditionError if that cannot be told.
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


class _Compiled:
    """One condition."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        try:
            self._selector = Selector(condition.path, max_s=_MAX_SELECT_S)
            # folding would change what a filter compares with
            folded = condition.path if "?" in condition.path else condition.path.casefold()
            self._folded_selector = Selector(folded, max_s=_MAX_SELECT_S)
        except BadPath as exc:
            raise ConditionError(f"`{condition.path}` is not a JSONPath that can be used") from exc
        self._values = None if condition.values is None else frozenset(map(_key, condition.values))
        self._pattern = None if condition.pattern is None else _Pattern(condition.pattern)

    def evaluate(self, arguments: Arguments, effect: Effect) -> _Result:
        try:
            values = self._selector.select(arguments.value)
            folded = self._folded_selector.select(arguments.folded)
        except BadPath:
            return self._error("cannot be applied to the arguments")
        if [_fold_keys(value) for value in values] != folded:
            return self._error("is also written in another case")
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
    """A regular expression that the whole text matches.

    `.` matches a line break only in rules that ask or deny: a line break must neither get past a rule that denies,
    nor bring more than one line past a rule that allows.
    """

    def __init__(self, pattern: str) -> None:
        self._narrow = _compile(pattern, dot_nl=False)
        self._wide = _compile(pattern, dot_nl=True) if "." in pattern else self._narrow

    def matches(self, text: str, effect: Effect) -> bool:
        pattern = self._narrow if effect is Effect.ALLOW else self._wide
        return pattern.fullmatch(text) is not None


def _compile(pattern: str, *, dot_nl: bool) -> _Regexp:
    import re2

    options = re2.Options()
    options.dot_nl = dot_nl
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as exc:
        raise ConditionError("the pattern is not a regular expression of RE2") from exc


def _key(value: object) -> tuple[str, object]:
    """Return what is equal for equal JSON: 1 is 1.0, and true is not 1."""
    match value:
        case None | bool():
            return "literal", value
        case str():
            return "string", value
        case int() | float():
            return "number", value
    return "other", None


def _all(results: Sequence[_Result]) -> _Result:
    """Return False if one is, whatever the others are; else an error if there is one."""
    if any(result is False for result in results):
        return False
    return next((result for result in results if result is not True), True)


def _any(results: Sequence[_Result]) -> _Result:
    """Return True if one is, whatever the others are; else an error if there is one."""
    if any(result is True for result in results):
        return True
    return next((result for result in results if result is not False), False)


def _parse(raw: Raw | None) -> dict[str, object] | ConditionError | None:
    text = bytes(raw) if raw is not None else b""
    if not text:
        return None
    try:
        value = strict_json.loads(text.decode())
        _check_depth(text, value)
        if rb"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair
    except strict_json.RepeatedName:  # servers differ in which of the two they take
        return ConditionError("the arguments have an object with the same key twice")
    except (ValueError, RecursionError):
        return ConditionError("the arguments are not valid JSON, or nested too deeply")
    return value if isinstance(value, dict) else None


def _fold_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key.casefold(): _fold_keys(inner) for key, inner in value.items()}
    return [_fold_keys(inner) for inner in value] if isinstance(value, list) else value


def _check_depth(text: bytes, value: object) -> None:
    """Raise ValueError if JSON is nested too deeply."""
    if text.count(b"{") + text.count(b"[") <= _MAX_DEPTH:
        return
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
