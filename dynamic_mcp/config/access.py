"""Who may use what, as the program uses it: `settings.access` and `profiles`, with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from dynamic_mcp.config import access_form
from dynamic_mcp.identity import Principal

# In `people`: whoever starts the program or a command on this machine.
LOCAL_NAME = "local"
# What a decision is by when no rule matches.
DEFAULT = "default"


class Effect(Enum):
    """What a rule says of what it matches."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Kind(Enum):
    """What a rule can be about."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"


class Condition(Struct, frozen=True):
    """What the values at a JSONPath of the arguments must be; `values` None is any."""

    path: str
    values: tuple[access_form.Scalar, ...] | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None


class Rule(Struct, frozen=True):
    """One rule: `id` is its name, or its place in the config. Of tools, prompts and resources, None is none."""

    id: str
    effect: Effect = Effect.ALLOW
    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] | None = ("*",)
    prompts: tuple[str, ...] | None = ("*",)
    resources: tuple[str, ...] | None = ("*",)
    access: Literal["any", "read", "write"] = "any"
    arguments: tuple[Condition, ...] = ()
    when: str | None = None
    scope: str | None = None


class Access(Struct, frozen=True):
    """All rules, and who has which role.

    `default` None is `deny` for clients that authenticate and `allow` for the local user. `by_group` has globs of the
    values of the `claim`, with the roles that follow. `people` has the roles by name; `principals` tells whom a name
    with an issuer means, and every other one is a subject. `approve` has globs of the tools of each server that a
    person must approve, whoever calls them.
    """

    default: Effect | None = None
    roles: Mapping[str, tuple[Rule, ...]] = {}
    claim: str = "groups"
    by_group: tuple[tuple[str, tuple[str, ...]], ...] = ()
    people: Mapping[str, tuple[str, ...]] = {}
    principals: Mapping[str, tuple[Principal, ...]] = {}
    approve: Mapping[str, tuple[str, ...]] = {}

    @property
    def asks(self) -> bool:
        """Whether a rule wants a person asked."""
        rules = (rule for each in self.roles.values() for rule in each)
        return bool(self.approve) or any(rule.effect is Effect.ASK for rule in rules)


class ToolAccess(Struct, frozen=True):
    """What the config says about the tools of a server: globs of those that only read, and of those that may not.

    `is_trusted` tells that the server's own annotations are believed. `hints` are those of `overrides`: names and
    globs of tools, the first of which counts, and whether these only read.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    is_trusted: bool = False
    hints: tuple[tuple[str, bool], ...] = ()


class Profile(Struct, frozen=True):
    """A selection of servers and tools; a pattern of tools with `__` can also be of `<server>__<tool>`."""

    name: str
    servers: tuple[str, ...] = ("*",)
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    is_direct: bool | None = None
    instructions: str = ""
    roles: tuple[str, ...] = ()

    def selects(self, server: str) -> bool:
        """Whether the profile has a server."""
        return any(fnmatchcase(server, glob) for glob in self.servers)


def resolve_access(
    own: access_form.Access | None,
    approve: Mapping[str, tuple[str, ...]],
    principals: Mapping[str, tuple[Principal, ...]] | None = None,
) -> Access | None:
    """Return the rules; None if the config has none, and so nothing is decided.

    `approve` has globs of the tools of each server that a person must approve; `principals` tells whom a
    name in `people` with an issuer means.
    """
    approve = {name: globs for name, globs in approve.items() if globs}
    if own is None:
        return Access(default=Effect.ALLOW, approve=approve) if approve else None
    origin = own.roles_from
    return Access(
        default=None if own.default is None else Effect(own.default),
        roles={
            name: tuple(_rule(rule, f"roles.{name}[{number}]") for number, rule in enumerate(rules))
            for name, rules in (own.roles or {}).items()
        },
        claim=(origin.claim if origin is not None else None) or "groups",
        by_group=tuple((glob, tuple(roles)) for glob, roles in (origin.map if origin is not None else {}).items()),
        people={name: tuple(roles) for name, roles in (own.people or {}).items()},
        principals=principals or {},
        approve=approve,
    )


def resolve_tool_access(
    own: access_form.ToolAccess | None, *, is_trusted: bool, hints: tuple[tuple[str, bool], ...] = ()
) -> ToolAccess:
    """Return what the config says about the tools of a server; `hints` are those of its overrides."""
    given = own or access_form.ToolAccess()
    return ToolAccess(tuple(given.read or ()), tuple(given.write or ()), is_trusted, hints)


def resolve_profiles(own: Mapping[str, access_form.Profile] | None) -> dict[str, Profile]:
    """Return the profiles by name, in the order of the file."""
    return {name: _profile(name, each) for name, each in (own or {}).items()}


def _profile(name: str, own: access_form.Profile) -> Profile:
    tools = own.tools or access_form.ProfileTools()
    return Profile(
        name=name,
        servers=("*",) if own.servers is None else tuple(own.servers),
        include=("*",) if tools.include is None else tuple(tools.include),
        exclude=tuple(tools.exclude or ()),
        is_direct=None if own.expose is None else own.expose == "direct",
        instructions=own.instructions or "",
        roles=tuple(own.roles or ()),
    )


def _rule(own: access_form.Rule, place: str) -> Rule:
    names_nothing = own.tools is None and own.prompts is None and own.resources is None

    def globs(given: list[str] | None) -> tuple[str, ...] | None:
        if given is not None:
            return tuple(given)
        return ("*",) if names_nothing else None

    return Rule(
        id=own.id or place,
        effect=Effect(own.effect or "allow"),
        servers=("*",) if own.servers is None else tuple(own.servers),
        tools=globs(own.tools),
        prompts=globs(own.prompts),
        resources=globs(own.resources),
        access=own.access or "any",
        arguments=tuple(_condition(path, each) for path, each in (own.arguments or {}).items()),
        when=own.when,
        scope=own.scope,
    )


def _condition(path: str, own: access_form.Condition) -> Condition:
    values = None if own.enum is None else tuple(own.enum)
    return Condition(path, values, own.pattern, own.min, own.max)
