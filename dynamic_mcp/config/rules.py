"""The rules on the calls of a server, and the plug-ins, as the program uses them: with every default filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.config import rules_form
from dynamic_mcp.config.rules_values import parse_rate
from dynamic_mcp.config.values import parse_duration, parse_size
from dynamic_mcp.mcp import wire

Policy = Literal["trust", "warn", "hold"]


class ArgumentOverride(Struct, frozen=True):
    """How an argument is shown, and what is sent for it. None is what is not given."""

    rename: str | None = None
    description: str | None = None
    default: Raw | None = None
    fixed: Raw | None = None
    is_hidden: bool | None = None


class Override(Struct, frozen=True):
    """How the tools that a glob matches are shown. None is what is not given, `annotations` has what is."""

    tools: str
    rename: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Mapping[str, str | bool] = {}
    is_hidden: bool | None = None
    arguments: Mapping[str, ArgumentOverride] = {}


class Guard(Struct, frozen=True):
    """A rule on arguments: `id` is its place in the config; `path` None is every text in them."""

    id: str
    tools: tuple[str, ...] = ("*",)
    path: str | None = None
    deny: str | None = None
    allow: str | None = None
    message: str = ""
    asks: bool = False


class Limit(Struct, frozen=True):
    """A bound on calls: `rate` in calls a second, None is none; `burst` and `concurrent` in calls."""

    id: str
    tools: tuple[str, ...] = ("*",)
    per_person: bool = False
    per_tool: bool = False
    rate: float | None = None
    burst: int = 1
    concurrent: int | None = None


class Cache(Struct, frozen=True):
    """Which results are kept, in seconds and bytes."""

    id: str
    tools: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    ttl_s: float = 300.0
    per_person: bool = True
    max_bytes: int = 16_000_000


class Redact(Struct, frozen=True):
    """What is replaced in texts; `tools` None is all tools, resources and prompts."""

    id: str
    tools: tuple[str, ...] | None = None
    in_results: bool = True
    in_arguments: bool = False
    presets: tuple[str, ...] = ()
    pattern: str | None = None
    replacement: str = "[redacted]"


class Rules(Struct, frozen=True):
    """The rules on the calls of one server."""

    overrides: tuple[Override, ...] = ()
    guards: tuple[Guard, ...] = ()
    limits: tuple[Limit, ...] = ()
    cache: tuple[Cache, ...] = ()
    redact: tuple[Redact, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.overrides or self.guards or self.limits or self.cache or self.redact)

    @property
    def asks(self) -> bool:
        """Whether a rule wants a person asked."""
        return any(guard.asks for guard in self.guards)


class Plugin(Struct, frozen=True):
    """A plug-in: what it is, for which servers, and how long each of its steps may take, in seconds."""

    use: str
    servers: tuple[str, ...] = ("*",)
    options: Mapping[str, object] = {}
    timeout_s: float = 5.0
    skips_errors: bool = False


def resolve_overrides(own: Mapping[str, rules_form.Override] | None) -> tuple[Override, ...]:
    """Return how tools are shown, in the order of the file."""
    return tuple(_override(tools, each) for tools, each in (own or {}).items())


def read_only_hints(overrides: Iterable[Override]) -> tuple[tuple[str, bool], ...]:
    """Return which tools the overrides call read-only, or not: exact names first, as these win over globs."""
    hints = [
        (each.tools, bool(hint) and not each.annotations.get("destructiveHint"))
        for each in overrides
        if (hint := each.annotations.get("readOnlyHint")) is not None
    ]
    return tuple(sorted(hints, key=lambda hint: is_glob(hint[0])))


def is_glob(tools: str) -> bool:
    """Tell whether an override may be of several tools."""
    return "*" in tools or "?" in tools


def _override(tools: str, own: rules_form.Override) -> Override:
    given = own.annotations or rules_form.Annotations()
    annotations = {
        "title": given.title,
        "readOnlyHint": given.read_only,
        "destructiveHint": given.destructive,
        "idempotentHint": given.idempotent,
        "openWorldHint": given.open_world,
    }
    return Override(
        tools=tools,
        rename=own.rename,
        title=own.title,
        description=own.description,
        annotations={name: value for name, value in annotations.items() if value is not None},
        is_hidden=own.hide,
        arguments={name: _argument(each) for name, each in (own.arguments or {}).items()},
    )


def _argument(own: rules_form.ArgumentOverride) -> ArgumentOverride:
    return ArgumentOverride(
        rename=own.rename,
        description=own.description,
        default=None if own.default is None else Raw(wire.encode(own.default)),
        fixed=None if own.fixed is None else Raw(wire.encode(own.fixed)),
        is_hidden=own.hide,
    )


def resolve_guards(own: list[rules_form.Guard] | None, place: str) -> tuple[Guard, ...]:
    """Return the rules on arguments, which stand at this place of the config."""
    return tuple(
        Guard(
            id=f"{place}.guards[{number}]",
            tools=_globs(each.tools),
            path=each.argument,
            deny=each.deny,
            allow=each.allow,
            message=each.message or "",
            asks=each.effect == "ask",
        )
        for number, each in enumerate(own or ())
    )


def resolve_limits(own: list[rules_form.Limit] | None) -> tuple[Limit, ...]:
    """Return the bounds on calls."""
    return tuple(_limit(number, each) for number, each in enumerate(own or ()))


def _limit(number: int, own: rules_form.Limit) -> Limit:
    rate = None if own.rate is None else parse_rate(own.rate)
    per = own.per or ()
    return Limit(
        id=f"limits[{number}]",
        tools=_globs(own.tools),
        per_person="person" in per,
        per_tool="tool" in per,
        rate=rate,
        burst=own.burst or max(1, int(rate or 1)),
        concurrent=own.concurrent,
    )


def resolve_cache(own: list[rules_form.Cache] | None) -> tuple[Cache, ...]:
    """Return which results are kept."""
    return tuple(_cache(number, each) for number, each in enumerate(own or ()))


def _cache(number: int, own: rules_form.Cache) -> Cache:
    default = Cache("")
    ttl_s = parse_duration(own.ttl)
    return Cache(
        id=f"cache[{number}]",
        tools=tuple(own.tools or ()),
        resources=tuple(own.resources or ()),
        ttl_s=default.ttl_s if ttl_s is None else ttl_s,
        per_person=own.per != "all",
        max_bytes=default.max_bytes if own.max is None else parse_size(own.max),
    )


def resolve_redact(own: list[rules_form.Redact] | None, place: str) -> tuple[Redact, ...]:
    """Return what is replaced in texts, by the rules that stand at this place of the config."""
    return tuple(
        Redact(
            id=f"{place}.redact[{number}]",
            tools=None if each.tools is None else tuple(each.tools),
            in_results="results" in (each.in_ or ["results"]),
            in_arguments="arguments" in (each.in_ or ()),
            presets=tuple(dict.fromkeys(each.presets or ())),
            pattern=each.pattern,
            replacement="[redacted]" if each.replace is None else each.replace,
        )
        for number, each in enumerate(own or ())
    )


def resolve_plugins(own: list[rules_form.Middleware] | None) -> tuple[Plugin, ...]:
    """Return the plug-ins, in the order in which calls pass them."""
    default = Plugin("")
    return tuple(
        Plugin(
            use=each.use,
            servers=_globs(each.servers),
            options=dict(each.options or {}),
            timeout_s=default.timeout_s if (given := parse_duration(each.timeout)) is None else given,
            skips_errors=each.on_error == "skip",
        )
        for each in own or ()
    )


def _globs(given: list[str] | None) -> tuple[str, ...]:
    return ("*",) if given is None else tuple(given)
