"""The rules on the calls of a server, and the plug-ins."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from dynamic_mcp.config.flaws import FlawError, printable
from dynamic_mcp.config.section import Section, Value
from dynamic_mcp.config.types import Duration, Globs, Json, JsonPath, Pattern, PluginName, Rate, RawJson, Size, unique

T = TypeVar("T", "Guard", "Limit", "Cache", "Redact")
Policy = Literal["trust", "warn", "hold"]
# What is counted for itself.
Counted = Literal["person", "tool"]
# Where something is replaced.
Place = Literal["results", "arguments"]
Preset = Literal["keys", "tokens", "emails", "card_numbers"]
_Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Presets = Annotated[tuple[str, ...], Value(unique, written=Annotated[list[Preset], Meta(min_length=1)])]


class ArgumentOverride(Section, frozen=True):
    """How an argument of a tool is shown, and what is sent for it."""

    rename: Annotated[_Name | None, "Another name."] = None
    description: Annotated[_Text | None, "Another description."] = None
    default: Annotated[RawJson | None, "What is sent if a call does not give it; so it is not required."] = None
    fixed: Annotated[RawJson | None, "What is always sent. The argument is not shown."] = None
    is_hidden: Annotated[bool | None, "Do not show it, nor accept it. Default: false."] = field(
        default=None, name="hide"
    )


class Annotations(Section, frozen=True):
    """What a tool says of its effects."""

    title: Annotated[_Text | None, "A title for people."] = None
    read_only: Annotated[bool | None, "It only reads."] = field(default=None, name="readOnlyHint")
    destructive: Annotated[bool | None, "It may destroy something."] = field(default=None, name="destructiveHint")
    idempotent: Annotated[bool | None, "The same call again has no further effect."] = field(
        default=None, name="idempotentHint"
    )
    open_world: Annotated[bool | None, "It works with things outside of the server."] = field(
        default=None, name="openWorldHint"
    )


def _list_annotations(own: Annotations) -> Mapping[str, str | bool]:
    """Return the annotations that the config has, by the names that MCP has for them."""
    found = {
        "title": own.title,
        "readOnlyHint": own.read_only,
        "destructiveHint": own.destructive,
        "idempotentHint": own.idempotent,
        "openWorldHint": own.open_world,
    }
    return {name: value for name, value in found.items() if value is not None}


class Override(Section, frozen=True):
    """How a tool is shown to clients. What it does not give stays as the server says it."""

    tools: str = field(default="", name="x-tools")
    rename: Annotated[_Name | None, "Another name; only for a single tool, not for a glob."] = None
    title: Annotated[_Text | None, "Another title."] = None
    description: Annotated[_Text | None, "Another description."] = None
    annotations: Annotated[
        Annotated[Mapping[str, str | bool], Value(_list_annotations, written=Annotations)],
        "Other annotations; those that are left out stay.",
    ] = {}
    is_hidden: Annotated[bool | None, "Neither list the tool nor accept calls of it. Default: false."] = field(
        default=None, name="hide"
    )
    arguments: Annotated[dict[str, ArgumentOverride], "Its arguments, by the server's names for them."] = {}


class Guard(Section, frozen=True):
    """A rule on the arguments of tools: `deny` refuses what it matches, `allow` what it does not match."""

    id: str = field(default="", name="x-id")
    tools: Annotated[Globs, "The tools, by the names that the server gives them; globs. Default: all."] = ("*",)
    path: Annotated[
        JsonPath | None,
        "A JSONPath to the values to judge, such as `$.sql`. A value that is no text is judged as compact JSON."
        " Default: every text in the arguments.",
    ] = field(default=None, name="argument")
    deny: Annotated[Pattern | None, "A regular expression (RE2) that no value may contain."] = None
    allow: Annotated[
        Pattern | None, "A regular expression (RE2) that every value must match as a whole; there must be a value."
    ] = None
    message: Annotated[_Text, "What the model is told. Default: which rule refused the call."] = ""
    effect: Annotated[
        Literal["deny", "ask"], "`ask` has a person approve the call instead of refusing it. Default: deny."
    ] = "deny"

    def __post_init__(self) -> None:
        """Check that it says what to refuse."""
        if (self.deny is None) == (self.allow is None):
            raise FlawError("needs `deny` or `allow`, and not both")

    @property
    def asks(self) -> bool:
        """Whether it wants a person asked."""
        return self.effect == "ask"


class Limit(Section, frozen=True):
    """A bound on how often, or how many at once, tools are called."""

    id: str = field(default="", name="x-id")
    tools: Annotated[Globs, "The tools, by the names that the server gives them; globs. Default: all."] = ("*",)
    per: Annotated[
        tuple[Counted, ...],
        "What is counted for itself: each person, each tool, or each person's calls of each tool. Default: all calls"
        " together.",
    ] = ()
    rate: Annotated[Rate | None, "Calls in a time: `5/s`, `60/min`, `1000/h`, `10000/d`."] = None
    burst: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        "How many may come at once after a pause. Default: the calls of one second, at least 1.",
    ] = None
    concurrent: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, "The maximum number of calls at once; further ones wait."
    ] = None

    def __post_init__(self) -> None:
        """Check that it bounds something."""
        if self.rate is None and self.concurrent is None:
            raise FlawError("needs `rate` or `concurrent`")
        if self.rate is None and self.burst is not None:
            raise FlawError("has a `burst`, which needs `rate`")

    @property
    def per_person(self) -> bool:
        """Whether each person is counted for itself."""
        return "person" in self.per

    @property
    def per_tool(self) -> bool:
        """Whether each tool is counted for itself."""
        return "tool" in self.per

    @property
    def capacity(self) -> int:
        """How many calls may come at once after a pause."""
        return self.burst or max(1, int(self.rate or 1))


class Cache(Section, frozen=True):
    """Keeps results of tools that only read, and of resources."""

    id: str = field(default="", name="x-id")
    tools: Annotated[Globs, "The tools, by the names that the server gives them; globs. Default: none."] = ()
    resources: Annotated[Globs, "The resources, by URI; globs. Default: none."] = ()
    ttl_s: Annotated[Duration, "How long a result is used. Default: 5min."] = field(default=300.0, name="ttl")
    per: Annotated[
        Literal["person", "all"],
        "Who gets a result that is kept: the person whose call it was of, or all who may make this call."
        " Default: person.",
    ] = "person"
    max_bytes: Annotated[Size, "The maximum size of all results of this rule, in memory. Default: 16MB."] = field(
        default=16_000_000, name="max"
    )

    def __post_init__(self) -> None:
        """Check that it says what to keep."""
        if not self.tools and not self.resources:
            raise FlawError("needs `tools` or `resources`")

    @property
    def per_person(self) -> bool:
        """Whether a result is only for the person whose call it was of."""
        return self.per == "person"


class Redact(Section, frozen=True):
    """Replaces parts of texts in results or arguments."""

    id: str = field(default="", name="x-id")
    tools: Annotated[
        Globs | None,
        "The tools, by the names that the server gives them; globs. Default: all, and resources and prompts too.",
    ] = None
    places: Annotated[
        Annotated[tuple[Place, ...], Meta(min_length=1)],
        "Where: in what the server answers, or in what it is sent. Default: results.",
    ] = field(default=("results",), name="in")
    presets: Annotated[
        _Presets,
        "Ready sets: private keys and API keys, tokens and passwords in URLs and headers, mail addresses, numbers of"
        " payment cards.",
    ] = ()
    pattern: Annotated[Pattern | None, "A regular expression (RE2)."] = None
    replacement: Annotated[Annotated[str, Meta(max_length=1000)], "The new text. Default: `[redacted]`."] = field(
        default="[redacted]", name="replace"
    )

    def __post_init__(self) -> None:
        """Check that it says what to replace."""
        if not self.presets and self.pattern is None:
            raise FlawError("needs `presets` or `pattern`")

    @property
    def in_results(self) -> bool:
        """Whether it is for what the server answers."""
        return "results" in self.places

    @property
    def in_arguments(self) -> bool:
        """Whether it is for what the server is sent."""
        return "arguments" in self.places


def _find_twice(overrides: Iterable[Override | ArgumentOverride]) -> str | None:
    """Return a name that two of them get."""
    taken = Counter(each.rename for each in overrides if each.rename is not None)
    return next((name for name, times in taken.items() if times > 1), None)


def _with_names(overrides: Mapping[str, Override]) -> tuple[Override, ...]:
    """Return how tools are shown, in the order of the file.

    Raises FlawError if two tools, or two arguments of one, get the same name.
    """
    for name, override in overrides.items():
        if override.rename is not None and is_glob(name):
            raise FlawError(f"`{printable(name)}` is a glob, which may be of several tools; they cannot get one name")
        _check_arguments(name, override.arguments)
    if twice := _find_twice(overrides.values()):
        raise FlawError(f"two tools get the name `{printable(twice)}`")
    return tuple(replace(each, tools=name) for name, each in overrides.items())


def _check_arguments(tool: str, arguments: Mapping[str, ArgumentOverride]) -> None:
    for name, each in arguments.items():
        if each.fixed is not None and (each.default is not None or each.rename is not None):
            raise FlawError(f"`{printable(name)}` of `{printable(tool)}` is fixed, so it has no name and no default")
    if twice := _find_twice(arguments.values()):
        raise FlawError(f"two arguments of `{printable(tool)}` get the name `{printable(twice)}`")


def _with_numbers(rules: Sequence[T], place: str) -> tuple[T, ...]:
    return tuple(replace(each, id=f"{place}[{number}]") for number, each in enumerate(rules))


Overrides = Annotated[tuple[Override, ...], Value(_with_names, written=dict[str, Override])]
Guards = Annotated[tuple[Guard, ...], Value(lambda rules: _with_numbers(rules, "guards"), written=list[Guard])]
Limits = Annotated[tuple[Limit, ...], Value(lambda rules: _with_numbers(rules, "limits"), written=list[Limit])]
Caches = Annotated[tuple[Cache, ...], Value(lambda rules: _with_numbers(rules, "cache"), written=list[Cache])]
Redacts = Annotated[tuple[Redact, ...], Value(lambda rules: _with_numbers(rules, "redact"), written=list[Redact])]


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


class Plugin(Section, frozen=True):
    """A plug-in on the way of calls and lists."""

    use: Annotated[
        PluginName,
        "The name under which a package offers it (entry point group `dynamic_mcp.middleware`), or `module:Class`.",
    ]
    servers: Annotated[Globs, "The servers that it is used for, by name; globs. Default: all."] = ("*",)
    options: Annotated[dict[str, Json], "What it is given when it is opened."] = {}
    timeout_s: Annotated[Duration, "How long each of its steps may take, without what follows it. Default: 5s."] = (
        field(default=5.0, name="timeout")
    )
    on_error: Annotated[
        Literal["fail", "skip"],
        "What an error of the plug-in does to a call: `fail` refuses it, `skip` goes on without the plug-in."
        " Default: fail.",
    ] = "fail"

    @property
    def skips_errors(self) -> bool:
        """Whether calls go on without it after an error."""
        return self.on_error == "skip"


def place_rules(rules: Iterable[T], place: str) -> tuple[T, ...]:
    """Return rules with the whole path of each as its name: `settings.guards[0]`."""
    return tuple(replace(each, id=f"{place}.{each.id}") for each in rules)


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
