"""Access rules and profiles: `settings.access` and `profiles`."""

from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr, replace

from dynamic_mcp.config.section import Everyday, OfFeature, Section, Value
from dynamic_mcp.config.types import (
    Direct,
    Expression,
    Globs,
    Pattern,
    ProfileName,
    Scalars,
    Scope,
    Text,
    check_json_path,
)
from dynamic_mcp.identity import Principal

# In `people`: the user who starts the program or a command on this machine.
LOCAL_NAME = "local"
# The rule of a decision when no rule matches.
DEFAULT = "default"
# The same in messages.
DEFAULT_TEXT = "default, as no rule matches"


class Effect(Enum):
    """The effect of a rule on a request that it matches."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class AccessKind(Enum):
    """The kinds of objects that a rule applies to."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"


class Condition(Section, frozen=True):
    """What the values of an argument must be; all that is given must hold."""

    path: str = field(default="", name="x-path")
    values: Annotated[Scalars | None, "It must be one of these values."] = field(default=None, name="enum")
    pattern: Annotated[Pattern | None, "The whole text must match this (RE2). Default: any value."] = None
    minimum: Annotated[float | None, "The smallest allowed number."] = field(default=None, name="min")
    maximum: Annotated[float | None, "The largest allowed number."] = field(default=None, name="max")


def _with_paths(conditions: Mapping[str, Condition]) -> tuple[Condition, ...]:
    return tuple(replace(each, path=check_json_path(path)) for path, each in conditions.items())


_Conditions = Annotated[
    tuple[Condition, ...],
    Value(_with_paths, written=dict[str, Condition], schema={"propertyNames": {"pattern": "^[$]"}}),
]


class AccessRule(Section, frozen=True):
    """One rule of a role. What it does not name, it does not restrict.

    A rule that names tools, prompts or resources is about these alone; one that names none is about all three.
    """

    id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)],
        "A name for the rule, shown by `dynamic-mcp access`. Default: its place, such as `roles.dev[0]`.",
    ] = ""
    effect: Annotated[
        Annotated[Effect, Value(Effect, written=Literal["allow", "ask", "deny"])],
        "What happens if the rule matches: `allow`, `ask` a person, or `deny`. Of several rules that match,"
        " `deny` wins over `ask`, and `ask` over `allow`, in any order. Default: allow.",
        Everyday(),
    ] = Effect.ALLOW
    servers: Annotated[Globs, "The servers that the rule is about. Default: all.", Everyday()] = ("*",)
    tools: Annotated[
        Globs | None,
        "The tools that it is about, by the names that the server gives them. Default: all, if it names no"
        " prompts and no resources either.",
        Everyday(),
    ] = None
    prompts: Annotated[
        Globs | None,
        "The prompts that it is about, by the names that the server gives them. Default: as for `tools`.",
    ] = None
    resources: Annotated[
        Globs | None, "The resources that it is about, by URI; `*` also matches `/`. Default: as for `tools`."
    ] = None
    only: Annotated[
        Literal["read", "write"] | None,
        "`read` restricts the rule to tools that only read, prompts and resources; `write` to tools that may"
        " change something. Default: both.",
        Everyday(),
    ] = None
    arguments: Annotated[
        _Conditions,
        'Conditions on the arguments of a tool or prompt, by JSONPath: `{"$.database": {"enum": ["stage"]}}`.'
        " A rule that allows needs all matches of each path to fulfil its condition, and one at least; of the other"
        " rules, one match is enough.",
    ] = ()
    when: Annotated[Expression | None, "The rule matches only if this is true. It needs the extra `cel`."] = None
    scope: Annotated[
        Scope | None,
        "An OAuth scope that the client's token must have; only for a rule that allows. A client without it"
        " is told to request it.",
    ] = None

    def __post_init__(self) -> None:
        if self.tools is None and self.prompts is None and self.resources is None:
            for kind in ("tools", "prompts", "resources"):
                force_setattr(self, kind, ("*",))


def _with_places(roles: Mapping[str, list[AccessRule]]) -> Mapping[str, tuple[AccessRule, ...]]:
    """Return the rules of each role. A rule without a name is named by its place."""
    return {
        name: tuple(replace(rule, id=rule.id or f"roles.{name}[{number}]") for number, rule in enumerate(rules))
        for name, rules in roles.items()
    }


_Roles = Annotated[Mapping[str, tuple[AccessRule, ...]], Value(_with_places, written=dict[str, list[AccessRule]])]


class RolesFrom(Section, frozen=True):
    """The roles that follow from a claim of the client's token, or from its groups."""

    map: Annotated[
        dict[str, tuple[str, ...]],
        "The roles of each group that the token or the reverse proxy names; groups can be globs.",
        Everyday(),
    ]
    claim: Annotated[
        Text,
        "The claim with the groups; `groups` also means the groups header of a reverse proxy. Default: groups.",
    ] = "groups"


class Access(Section, frozen=True):
    """Who may use what."""

    default: Annotated[
        Annotated[Effect, Value(Effect, written=Literal["allow", "deny"])] | None,
        "What happens if no rule matches. Default: `deny` for clients that authenticate, `allow` for the local user.",
        Everyday(),
    ] = None
    roles: Annotated[_Roles, "The rules of each role, by its name.", Everyday()] = {}
    roles_from: Annotated[RolesFrom, "The roles that follow from groups.", Everyday()] = RolesFrom({})
    people: Annotated[
        dict[str, tuple[str, ...]],
        "The roles of each person or program, by the name with which it authenticates, or `issuer:name` if"
        " there are several providers. `local` is the local user.",
        Everyday(),
    ] = {}
    # The principals of the names in `people` that have an issuer. Every other name is a subject.
    principals: Mapping[str, tuple[Principal, ...]] = field(default={}, name="x-principals")
    # Globs of the tools of each server that a user must approve, for all callers.
    approve: Mapping[str, tuple[str, ...]] = field(default={}, name="x-approve")

    @property
    def asks(self) -> bool:
        """Return whether a rule requires approval."""
        rules = (rule for each in self.roles.values() for rule in each)
        return bool(self.approve) or any(rule.effect is Effect.ASK for rule in rules)


class ToolEffects(Section, frozen=True):
    """Which tools of a server only read, and which may change something. `write` wins."""

    read: Annotated[Globs, "Tools that only read.", Everyday()] = ()
    write: Annotated[Globs, "Tools that may change something.", Everyday()] = ()
    # Whether the server's own annotations are trusted where the lists do not name a tool.
    trusts_annotations: bool = field(default=False, name="x-trusts-annotations")


class ProfileTools(Section, frozen=True):
    """Which tools a profile shows: globs of their names; one with `__` can also be of `<server>__<tool>`."""

    include: Annotated[
        Globs,
        "Only show these tools, by name or as `<server>__<tool>`; an empty list means none. Default: all.",
        Everyday(),
    ] = ("*",)
    exclude: Annotated[Globs, "Hide these tools, even if `include` has them. Default: none.", Everyday()] = ()


class Profile(Section, frozen=True):
    """A selection of servers and tools. It only narrows what its clients may use."""

    name: str = field(default="", name="x-name")
    servers: Annotated[Globs, "The servers that it shows. Default: all.", Everyday()] = ("*",)
    tools: Annotated[ProfileTools, "Which of their tools to show. Default: all.", Everyday()] = ProfileTools()
    direct: Annotated[
        Direct | None,
        "Which tools of its servers are listed directly: `true` (all), `false` (none), `auto` (by AI tool), or a list"
        " of names or globs;"
        " one with `__` can also be of `<server>__<tool>`. Default: as each server says.",
    ] = None
    instructions: Annotated[
        Annotated[str, Meta(max_length=10_000)], "Text for the model, before the instructions of dynamic-mcp."
    ] = ""
    scripts: Annotated[
        bool | None,
        OfFeature("scripts"),
        "Whether its clients may run scripts. Default: as `settings.scripts` says.",
    ] = None
    roles: Annotated[
        tuple[str, ...], "Clients with one of these roles get this profile, unless they choose another."
    ] = ()

    def selects(self, server: str) -> bool:
        return any(fnmatchcase(server, glob) for glob in self.servers)


Profiles = Annotated[
    Mapping[str, Profile],
    Value(
        lambda profiles: {name: replace(each, name=name) for name, each in profiles.items()},
        written=dict[ProfileName, Profile],
    ),
]


def resolve_access(
    own: Access | None,
    # Globs of the tools of each server that a user must approve, for all callers.
    approve: Mapping[str, tuple[str, ...]],
    # The principals of the names in `people` that have an issuer. Every other name is a subject.
    principals: Mapping[str, tuple[Principal, ...]] | None = None,
) -> Access | None:
    """Return the access rules, or None if the config has none.

    `approve` has globs of the tools of each server that a user must approve. `principals` maps the names in `people`
    that have an issuer to their principals.
    """
    approve = {name: globs for name, globs in approve.items() if globs}
    if own is None:
        return Access(default=Effect.ALLOW, approve=approve) if approve else None
    return replace(own, approve=approve, principals=principals or {})
