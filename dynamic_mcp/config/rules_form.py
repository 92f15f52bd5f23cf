"""The form of the rules on the calls of a server, as `form` has it for the rest of the file."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from dynamic_mcp.config import access_values, rules_values
from dynamic_mcp.config.access_form import Globs
from dynamic_mcp.config.section import Duration, Section

Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Size = Annotated[str | int | None, rules_values.parse_cache_size]
Rate = Annotated[str, rules_values.check_rate]
Pattern = Annotated[str, access_values.check_pattern]
Path = Annotated[str, access_values.check_path]
Json = Annotated[Any, rules_values.take_json]  # Any: the config gives any JSON here


class ArgumentOverride(Section, frozen=True):
    """How an argument of a tool is shown, and what is sent for it."""

    rename: Annotated[Name | None, "Another name."] = None
    description: Annotated[Text | None, "Another description."] = None
    default: Annotated[Json | None, "What is sent if a call does not give it; so it is not required."] = None
    fixed: Annotated[Json | None, "What is always sent. The argument is not shown."] = None
    hide: Annotated[bool | None, "Do not show it, nor accept it. Default: false."] = None


class Annotations(Section, frozen=True):
    """What a tool says of its effects."""

    title: Annotated[Text | None, "A title for people."] = None
    read_only: Annotated[bool | None, "It only reads."] = field(default=None, name="readOnlyHint")
    destructive: Annotated[bool | None, "It may destroy something."] = field(default=None, name="destructiveHint")
    idempotent: Annotated[bool | None, "The same call again has no further effect."] = field(
        default=None, name="idempotentHint"
    )
    open_world: Annotated[bool | None, "It works with things outside of the server."] = field(
        default=None, name="openWorldHint"
    )


class Override(Section, frozen=True):
    """How a tool is shown to clients. What it does not give stays as the server says it."""

    rename: Annotated[Name | None, "Another name; only for a single tool, not for a glob."] = None
    title: Annotated[Text | None, "Another title."] = None
    description: Annotated[Text | None, "Another description."] = None
    annotations: Annotated[Annotations | None, "Other annotations; those that are left out stay."] = None
    hide: Annotated[bool | None, "Neither list the tool nor accept calls of it. Default: false."] = None
    arguments: Annotated[dict[str, ArgumentOverride] | None, "Its arguments, by the server's names for them."] = None


class Guard(Section, frozen=True, kw_only=True):
    """A rule on the arguments of tools: `deny` refuses what it matches, `allow` what it does not match."""

    tools: Annotated[Globs | None, "The tools, by the names that the server gives them; globs. Default: all."] = None
    argument: Annotated[
        Path | None,
        "A JSONPath to the values to judge, such as `$.sql`. A value that is no text is judged as compact JSON."
        " Default: every text in the arguments.",
    ] = None
    deny: Annotated[Pattern | None, "A regular expression (RE2) that no value may contain."] = None
    allow: Annotated[
        Pattern | None, "A regular expression (RE2) that every value must match as a whole; there must be a value."
    ] = None
    message: Annotated[Text | None, "What the model is told. Default: which rule refused the call."] = None
    effect: Annotated[
        Literal["deny", "ask"] | None, "`ask` has a person approve the call instead of refusing it. Default: deny."
    ] = None


class Limit(Section, frozen=True, kw_only=True):
    """A bound on how often, or how many at once, tools are called."""

    tools: Annotated[Globs | None, "The tools, by the names that the server gives them; globs. Default: all."] = None
    per: Annotated[
        list[Literal["person", "tool"]] | None,
        "What is counted for itself: each person, each tool, or each person's calls of each tool. Default: all calls"
        " together.",
    ] = None
    rate: Annotated[Rate | None, "Calls in a time: `5/s`, `60/min`, `1000/h`, `10000/d`."] = None
    burst: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        "How many may come at once after a pause. Default: the calls of one second, at least 1.",
    ] = None
    concurrent: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, "The maximum number of calls at once; further ones wait."
    ] = None


class Cache(Section, frozen=True, kw_only=True):
    """Keeps results of tools that only read, and of resources."""

    tools: Annotated[Globs | None, "The tools, by the names that the server gives them; globs. Default: none."] = None
    resources: Annotated[Globs | None, "The resources, by URI; globs. Default: none."] = None
    ttl: Annotated[Duration, "How long a result is used. Default: 5min."] = None
    per: Annotated[
        Literal["person", "all"] | None,
        "Who gets a result that is kept: the person whose call it was of, or all who may make this call."
        " Default: person.",
    ] = None
    max: Annotated[Size, "The maximum size of all results of this rule, in memory. Default: 16MB."] = None


class Redact(Section, frozen=True, kw_only=True):
    """Replaces parts of texts in results or arguments."""

    tools: Annotated[
        Globs | None,
        "The tools, by the names that the server gives them; globs. Default: all, and resources and prompts too.",
    ] = None
    in_: Annotated[
        Annotated[list[Literal["results", "arguments"]], Meta(min_length=1)] | None,
        "Where: in what the server answers, or in what it is sent. Default: results.",
    ] = field(default=None, name="in")
    presets: Annotated[
        Annotated[list[Literal["keys", "tokens", "emails", "card_numbers"]], Meta(min_length=1)] | None,
        "Ready sets: private keys and API keys, tokens and passwords in URLs and headers, mail addresses, numbers of"
        " payment cards.",
    ] = None
    pattern: Annotated[Pattern | None, "A regular expression (RE2)."] = None
    replace: Annotated[Annotated[str, Meta(max_length=1000)] | None, "The new text. Default: `[redacted]`."] = None


Overrides = Annotated[dict[str, Override], rules_values.check_overrides]
Guards = Annotated[list[Guard], rules_values.check_guards]
Limits = Annotated[list[Limit], rules_values.check_limits]
Caches = Annotated[list[Cache], rules_values.check_caches]
Redacts = Annotated[list[Redact], rules_values.check_redacts]


class Middleware(Section, frozen=True, kw_only=True):
    """A plug-in on the way of calls and lists."""

    use: Annotated[
        Annotated[str, rules_values.check_plugin_name],
        "The name under which a package offers it (entry point group `dynamic_mcp.middleware`), or `module:Class`.",
    ]
    servers: Annotated[Globs | None, "The servers that it is used for, by name; globs. Default: all."] = None
    options: Annotated[dict[str, Json] | None, "What it is given when it is opened."] = None
    timeout: Annotated[Duration, "How long each of its steps may take, without what follows it. Default: 5s."] = None
    on_error: Annotated[
        Literal["fail", "skip"] | None,
        "What an error of the plug-in does to a call: `fail` refuses it, `skip` goes on without the plug-in."
        " Default: fail.",
    ] = None
