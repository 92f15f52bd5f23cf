"""Checks single values of the rules on calls; each function returns the value to use or raises `FlawError`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from dynamic_mcp.config.values import FlawError, parse_size, printable

RATE = r"^\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|min|m|h|d)\s*$"
PLUGIN_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_RATE_HINT = "write `5/s`, `60/min`, `1000/h` or `10000/d`"
_MAX_RATE = 1_000_000.0


class _Override(Protocol):
    @property
    def rename(self) -> str | None: ...
    @property
    def arguments(self) -> Mapping[str, _ArgumentOverride] | None: ...


class _ArgumentOverride(Protocol):
    @property
    def rename(self) -> str | None: ...
    @property
    def default(self) -> object: ...
    @property
    def fixed(self) -> object: ...
    @property
    def hide(self) -> bool | None: ...


class _Guard(Protocol):
    @property
    def deny(self) -> str | None: ...
    @property
    def allow(self) -> str | None: ...


class _Limit(Protocol):
    @property
    def rate(self) -> str | None: ...
    @property
    def burst(self) -> int | None: ...
    @property
    def concurrent(self) -> int | None: ...


class _Cache(Protocol):
    @property
    def tools(self) -> Sequence[str] | None: ...
    @property
    def resources(self) -> Sequence[str] | None: ...


class _Redact(Protocol):
    @property
    def presets(self) -> Sequence[str] | None: ...
    @property
    def pattern(self) -> str | None: ...


def parse_rate(text: str) -> float:
    """Parse a rate into calls a second."""
    match = re.fullmatch(RATE, text)
    if match is None:
        raise FlawError(f"is not a rate: `{printable(text)}`", hint=_RATE_HINT)
    rate = float(match[1]) / _SECONDS[match[2]]
    if not 0 < rate <= _MAX_RATE:
        raise FlawError("must be more than none, and at most 1000000 calls a second", hint=_RATE_HINT)
    return rate


def check_rate(text: str) -> str:
    """Check a number of calls in a time."""
    parse_rate(text)
    return text


def parse_cache_size(value: object) -> int | None:
    """Parse a size into bytes."""
    return None if value is None else parse_size(value)


def take_json(value: object) -> object:
    """Take any JSON."""
    return value


def check_plugin_name(name: str) -> str:
    """Check what names a plug-in."""
    if re.fullmatch(PLUGIN_NAME, name, re.ASCII) is None:
        raise FlawError("must be the name of a plug-in, or `module:Class`")
    return name


def check_overrides(overrides: Mapping[str, _Override]) -> Mapping[str, _Override]:
    """Check that no two tools, and no two arguments of one, get the same name."""
    for name, override in overrides.items():
        if override.rename is not None and ("*" in name or "?" in name):
            raise FlawError(f"`{printable(name)}` is a glob, which may be of several tools; they cannot get one name")
        _check_arguments(name, override.arguments or {})
    taken = Counter(each.rename for each in overrides.values() if each.rename is not None)
    if twice := next((name for name, times in taken.items() if times > 1), None):
        raise FlawError(f"two tools get the name `{printable(twice)}`")
    return overrides


def _check_arguments(tool: str, arguments: Mapping[str, _ArgumentOverride]) -> None:
    for name, each in arguments.items():
        if each.fixed is not None and (each.default is not None or each.rename is not None):
            raise FlawError(f"`{printable(name)}` of `{printable(tool)}` is fixed, so it has no name and no default")
    taken = Counter(each.rename for each in arguments.values() if each.rename is not None)
    if twice := next((name for name, times in taken.items() if times > 1), None):
        raise FlawError(f"two arguments of `{printable(tool)}` get the name `{printable(twice)}`")


def check_guards(guards: Sequence[_Guard]) -> Sequence[_Guard]:
    """Check that each guard says what to refuse."""
    for index, each in enumerate(guards):
        if (each.deny is None) == (each.allow is None):
            raise FlawError(f"`guards[{index}]` needs `deny` or `allow`, and not both")
    return guards


def check_limits(limits: Sequence[_Limit]) -> Sequence[_Limit]:
    """Check that each limit bounds something."""
    for index, each in enumerate(limits):
        if each.rate is None and each.concurrent is None:
            raise FlawError(f"`limits[{index}]` needs `rate` or `concurrent`")
        if each.rate is None and each.burst is not None:
            raise FlawError("`burst` needs `rate`")
    return limits


def check_caches(caches: Sequence[_Cache]) -> Sequence[_Cache]:
    """Check that each rule says what to keep."""
    for each in caches:
        if not each.tools and not each.resources:
            raise FlawError("each rule needs `tools` or `resources`")
    return caches


def check_redacts(redacts: Sequence[_Redact]) -> Sequence[_Redact]:
    """Check that each rule says what to replace."""
    for each in redacts:
        if not each.presets and each.pattern is None:
            raise FlawError("each rule needs `presets` or `pattern`")
    return redacts
