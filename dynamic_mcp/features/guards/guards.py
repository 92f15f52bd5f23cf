"""Rules on the arguments of calls. Arguments that cannot be judged are refused.

A guard that refuses wins over one that asks, in any order. Guards that ask are combined into one question, because
an approval of one guard's finding does not cover another's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.config.access import Effect
from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.errors import RefusedByGuard
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.policy.arguments import ArgumentPath, Arguments, ConditionError
from dynamic_mcp.policy.call_rules import RuleSet
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.patterns import compile_absence, compile_pattern, compile_set
from dynamic_mcp.system.bounded import NameMemo
from dynamic_mcp.system.text import one_line

# Longer names of tools are cut in messages.
_LONGEST_NAME = 200
_NOTHING = (b"", b"null")


def compile_rules(presentation: Presentation, server: str) -> GuardRules:
    """Return the guards of a server."""
    return GuardRules(presentation.rules_of("guards", Guard), server)


class GuardRules(RuleSet):
    """The guards of one server."""

    def __init__(self, guards: Sequence[Guard], server: str) -> None:
        self._guards = [(Globs(guard.tools), guard) for guard in guards]
        self._server = server
        self._guards_of = NameMemo(self._compile)

    def judge(self, tool: str, arguments: Raw | None, *, shown_name: Callable[[str], str] = str) -> Decision | None:
        """Return a decision that a user must be asked; None if no guard matches the call.

        `tool` is the server's own name; `shown_name` returns what clients know it by. Takes time that is linear in
        the arguments. Raises RefusedByGuard.
        """
        guards = self._guards_of(tool)
        if not guards:
            return None
        try:
            parsed = _read(arguments)
            plain = parsed.plain
            matching: list[Guard] = []
            for each in guards:
                matching += each.find_matching(parsed, plain)
        except ConditionError as exc:
            raise self._refusal(shown_name(tool), guards[0].first, str(exc)) from None
        if not matching:
            return None
        found = [guard for _, guard in self._guards if guard in matching]  # in the order of the config
        for guard in found:
            if not guard.asks:
                raise self._refusal(shown_name(tool), guard, guard.message)
        return Decision(Effect.ASK, ", ".join(guard.id for guard in found))

    def judges(self, tool: str) -> bool:
        return bool(self._guards_of(tool))

    def check_arguments(self, tool: str, arguments: Raw) -> None:
        """Raise RefusedByGuard if a guard refuses a tool with these arguments."""
        self.judge(tool, arguments)

    def _compile(self, tool: str) -> tuple[_PathGuards, ...]:
        by_path: dict[str | None, list[Guard]] = {}
        for globs, guard in self._guards:
            if globs.matches_variant(tool):
                by_path.setdefault(guard.path, []).append(guard)
        return tuple(_PathGuards(path, guards) for path, guards in by_path.items())

    def _refusal(self, tool: str, guard: Guard, why: str) -> RefusedByGuard:
        return RefusedByGuard(f"`{one_line(tool, _LONGEST_NAME)}` of group `{self._server}`", guard.id, why)


class _PathGuards:
    """The guards of one tool on the same values."""

    def __init__(self, path: str | None, guards: Sequence[Guard]) -> None:
        self.first = guards[0]
        self._path = None if path is None else ArgumentPath(path)
        self._name = None if self._path is None else self._path.name
        self._guards = [_CompiledGuard(guard) for guard in guards]
        self._allowing = [number for number, guard in enumerate(guards) if guard.deny is None]
        # one search instead of one for each guard
        if self._allowing:
            self._find_all = compile_set((each.deny or each.allow or "", each.deny is None) for each in guards)
        else:
            self._is_absent = compile_absence([guard.deny for guard in guards if guard.deny is not None])

    def find_matching(self, arguments: Arguments, plain: Mapping[str, object] | None) -> Sequence[Guard]:
        """Return the guards that refuse these arguments; `plain` are theirs. Raises ConditionError."""
        if plain is not None and self._name is not None:
            texts = [_to_text(plain[self._name]).encode()] if self._name in plain else []
        elif self._path is None:
            texts = [text.encode() for text in _find_texts(arguments)]
        else:
            texts = [_to_text(value).encode() for value in self._path.select(arguments)]
        if self._are_harmless(texts):
            return ()
        return [guard.source for guard in self._guards if guard.is_against(texts)]

    def _are_harmless(self, texts: Sequence[bytes]) -> bool:
        """Return whether a quick search shows that no guard refuses these texts; False means unknown."""
        if not self._allowing:
            return self._is_absent is not None and self._is_absent(b"\n".join(texts))
        find_all, allowing = self._find_all, self._allowing
        if find_all is None or not texts:
            return False
        for text in texts:
            found = find_all(text)
            if found != allowing and (found is None or sorted(found) != allowing):
                return False
        return True


class _CompiledGuard:
    """A guard and its pattern: `.` matches a line break only in what is denied."""

    def __init__(self, source: Guard) -> None:
        self.source = source
        self.denies = source.deny is not None
        self._pattern = compile_pattern(source.deny or source.allow or "", dot_nl=self.denies)

    def is_against(self, texts: Sequence[bytes]) -> bool:
        """Return whether the guard finds what it denies, or misses what it requires."""
        if self.denies:
            return any(self._pattern.search(text) is not None for text in texts)
        return not texts or any(self._pattern.fullmatch(text) is None for text in texts)


def _read(arguments: Raw | None) -> Arguments:
    """Return the arguments; missing arguments are an empty object. Raises ConditionError."""
    if arguments is None or bytes(arguments) in _NOTHING:
        return Arguments(Raw(b"{}"))
    parsed = Arguments(arguments)
    if parsed.value is None:
        raise ConditionError("the arguments are not an object")
    return parsed


def _find_texts(arguments: Arguments) -> list[str]:
    plain = arguments.plain
    if plain is not None:
        return [each for each in plain.values() if isinstance(each, str)]
    return list(_search_texts(arguments.value))


def _search_texts(value: object) -> Iterator[str]:
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            stack += each.values()
        elif isinstance(each, list):
            stack += each


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else _write(value)


def _write(value: object) -> str:
    """Return a value other than a text as canonical JSON: with sorted keys and short numbers."""
    if type(value) is int:  # which excludes bool
        return str(value)
    try:
        return json.dumps(_shorten(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ConditionError("the arguments have a number that is too large") from None


def _shorten(value: object) -> object:
    """Return a value with numbers in one form: `1.0` and `1e0` become 1."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _shorten(inner) for key, inner in value.items()}
        case list():
            return [_shorten(inner) for inner in value]
        case _:
            return value
