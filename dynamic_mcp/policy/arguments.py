"""The arguments of a request as rules judge them. Arguments that servers may read differently cannot be judged."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from dynamic_mcp.mcp import strict_json
from dynamic_mcp.mcp.selection import BadPath, Selector
from dynamic_mcp.policy.globs import fold

# Arguments are small; only a path with `..` on megabytes of them takes this long.
_MAX_SELECT_S = 0.5
# No tool needs a deeper nesting, and the evaluation of expressions is recursive.
_MAX_DEPTH = 200
# Servers differ in which of the two values they use.
_REPEATED_KEY = "the arguments have an object with duplicate keys, or with keys that differ only in spelling"
_NESTED = (dict, list)
_NESTED_TYPES = frozenset(_NESTED)


class ConditionError(Exception):
    """A condition that cannot be evaluated. The message has no values of arguments."""


class Arguments:
    """The arguments of one request, parsed on first use, and only once."""

    def __init__(self, raw: Raw | None) -> None:
        self._raw = raw
        self._value: dict[str, object] | ConditionError | None = None
        self._is_parsed = False
        self._folded: object = None
        self._plain: dict[str, object] | None = None

    @property
    def plain(self) -> dict[str, object] | None:
        """The arguments if they are an object without nested objects, whose keys all servers read alike.

        None means unknown. Raises ConditionError.
        """
        if not self._is_parsed:
            _ = self.value
        return self._plain

    @property
    def value(self) -> dict[str, object] | None:
        """The arguments; None if they are missing or not an object. Raises ConditionError."""
        if not self._is_parsed:
            text = b"" if self._raw is None else bytes(self._raw)
            members = _parse_flat(text)
            if members is not None and _has_folded_keys(members):
                self._value = self._folded = self._plain = members
            else:
                self._value = _parse(text, members)
            self._is_parsed = True
        if isinstance(self._value, ConditionError):
            raise self._value
        return self._value

    @property
    def folded(self) -> object:
        """The arguments as read by a server that ignores the case and the width of keys.

        They are the same object if folding changes nothing.
        """
        if self._folded is None:
            value = self.value
            self._folded = value if _is_folded(value) else _fold_keys(value)
        return self._folded


class ArgumentPath:
    """A compiled JSONPath to values of arguments. Raises ConditionError if it is invalid."""

    def __init__(self, path: str) -> None:
        self._path = path
        # folding would change the values that a filter compares with
        folded_path = path if "?" in path else fold(path)
        self._is_folded = path == folded_path
        try:
            self._selector = Selector(path, max_s=_MAX_SELECT_S)
            self._folded_selector = self._selector if self._is_folded else Selector(folded_path, max_s=_MAX_SELECT_S)
            names = self._selector.names
            # of the one member that it selects, in arguments that all servers read alike
            self.name = names[0] if names is not None and len(names) == 1 and self._is_folded else None
        except BadPath as exc:
            raise ConditionError(f"`{path}` is not a JSONPath that can be used") from exc

    def select(self, arguments: Arguments) -> list[object]:
        """Return the values. Raises ConditionError if they are also written in another case, or the search fails."""
        plain = arguments.plain
        if plain is not None and self.name is not None:
            return [plain[self.name]] if self.name in plain else []
        try:
            value = arguments.value
            values = self._selector.select(value)
            if self._is_folded and arguments.folded is value:
                return values
            folded = self._folded_selector.select(arguments.folded)
        except BadPath as exc:
            raise ConditionError(f"`{self._path}` cannot be applied to the arguments") from exc
        if [_fold_keys(value) if isinstance(value, _NESTED) else value for value in values] != folded:
            raise ConditionError(f"`{self._path}` is also written in another case")
        return values


def _parse(text: bytes, members: dict[str, object] | None) -> dict[str, object] | ConditionError | None:
    """Return parsed arguments; `members` are theirs if they are a flat object."""
    if not text:
        return None
    if members is not None:
        return ConditionError(_REPEATED_KEY) if _repeats_key(members) else members
    try:
        value = strict_json.loads(text.decode())
        _check_depth(text, value)
        if rb"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair
    except strict_json.RepeatedName:
        return ConditionError(_REPEATED_KEY)
    except (ValueError, RecursionError):
        return ConditionError("the arguments are not valid JSON, or nested too deeply")
    if not isinstance(value, dict):
        return None
    return ConditionError(_REPEATED_KEY) if _repeats_key(value) else value


def _repeats_key(value: object) -> bool:
    """Return whether an object, at any depth, has two keys that a server may treat as equal."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict) and not _has_folded_keys(each) and len(set(map(fold, each))) < len(each):
            return True
        stack += [inner for inner in _members(each) if isinstance(inner, _NESTED)]
    return False


def _parse_flat(text: bytes) -> dict[str, object] | None:
    """Return an object without nested objects and lists, as most arguments are; None for anything else.

    It has no duplicate keys: each member has a colon, and there are no more colons than names.
    """
    if b"[" in text or text.find(b"{", 1) >= 0:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) and text.count(b":") == len(value) else None


def _is_folded(value: object) -> bool:
    """Return quickly whether folding the keys changes nothing; False means unknown."""
    if not isinstance(value, dict):
        return False
    return _has_folded_keys(value) and _NESTED_TYPES.isdisjoint(map(type, value.values()))


def _has_folded_keys(value: dict[str, object]) -> bool:
    """Return quickly whether folding changes no key of an object; False means unknown."""
    names = "".join(value)
    return names == fold(names) if names.isascii() else False


def _fold_keys(value: object) -> object:
    if isinstance(value, dict):
        return {fold(key): _fold_keys(inner) if isinstance(inner, _NESTED) else inner for key, inner in value.items()}
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
