"""The form of `settings.access` and `profiles`, as `form` has it for the rest of the file."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config import access_values, cel
from dynamic_mcp.config.section import Section

Globs = Annotated[list[str], access_values.check_globs]
Scalar = str | int | float | bool | None
Scalars = Annotated[list[Scalar], access_values.check_values]


class Condition(Section, frozen=True):
    """What the values of an argument must be; all that is given must hold."""

    enum: Annotated[Scalars | None, "One of these values."] = None
    pattern: Annotated[
        Annotated[str, access_values.check_pattern] | None,
        "A regular expression (RE2) that the whole text matches. Default: any value.",
    ] = None
    min: Annotated[float | None, "The smallest number."] = None
    max: Annotated[float | None, "The largest number."] = None


Paths = Annotated[dict[str, Condition], access_values.check_paths]


class Rule(Section, frozen=True, kw_only=True):
    """One rule of a role. What it does not name, it does not restrict.

    A rule that names tools, prompts or resources is about these alone; one that names none is about all three.
    """

    servers: Annotated[Globs | None, "The servers, by name; globs. Default: all."] = None
    tools: Annotated[Globs | None, "The tools, by the names that the server gives them; globs."] = None
    prompts: Annotated[Globs | None, "The prompts, by the names that the server gives them; globs."] = None
    resources: Annotated[Globs | None, "The resources, by URI; globs, in which `*` also matches `/`."] = None
    access: Annotated[
        Literal["any", "read", "write"] | None,
        "`read` is about tools that only read, prompts and resources; `write` about tools that may change something."
        " Default: any.",
    ] = None
    arguments: Annotated[
        Paths | None,
        'Conditions on the arguments of a tool or prompt, by JSONPath: `{"$.database": {"enum": ["stage"]}}`.'
        " A rule that allows needs all matches of each path to fulfil its condition, and one at least; of the other"
        " rules, one match is enough.",
    ] = None
    when: Annotated[
        Annotated[str, cel.check_expression] | None,
        "A condition in CEL. Needs the extra `cel`.",
    ] = None
    effect: Annotated[
        Literal["allow", "ask", "deny"] | None,
        "What follows if the rule matches: `deny` wins over `ask`, and `ask` over `allow`, in any order."
        " Default: allow.",
    ] = None
    scope: Annotated[
        Annotated[str, access_values.check_scope] | None,
        "An OAuth scope that the client's token must have for a rule that allows. A client without it is told to ask"
        " for it.",
    ] = None
    id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        "A name for the rule, shown by `dynamic-mcp access`. Default: its place, such as `roles.dev[0]`.",
    ] = None


class RolesFrom(Section, frozen=True, kw_only=True):
    """The roles that follow from a claim of the client's token, or from its groups."""

    claim: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        "The claim with the groups; `groups` also means the groups header of a reverse proxy. Default: groups.",
    ] = None
    map: Annotated[dict[str, list[str]], "The roles for each group; the groups are globs."]


class Access(Section, frozen=True):
    """Who may use what."""

    default: Annotated[
        Literal["allow", "deny"] | None,
        "What applies where no rule matches. Default: `deny` for clients that authenticate, `allow` for the local"
        " user.",
    ] = None
    roles: Annotated[dict[str, list[Rule]] | None, "The rules of each role, by its name."] = None
    roles_from: Annotated[RolesFrom | None, "The roles that follow from groups."] = None
    people: Annotated[
        dict[str, list[str]] | None,
        "The roles of each person or program, by its subject or, as `issuer:subject`, by who names it as well, which"
        " is needed with several providers; `local` is the local user.",
    ] = None


class ToolAccess(Section, frozen=True):
    """Which tools of a server only read, and which may change something. `write` wins."""

    read: Annotated[Globs | None, "Tools that only read; globs."] = None
    write: Annotated[Globs | None, "Tools that may change something; globs."] = None


class ProfileTools(Section, frozen=True):
    """Which tools a profile shows: globs of their names; one with `__` can also be of `<server>__<tool>`."""

    include: Annotated[Globs | None, "Only these tools; an empty list means none. Default: all."] = None
    exclude: Annotated[Globs | None, "These tools never, even if `include` matches them."] = None


class Profile(Section, frozen=True):
    """A selection of servers and tools. It only narrows what its clients may use."""

    servers: Annotated[Globs | None, "The servers, by name; globs. Default: all."] = None
    tools: Annotated[ProfileTools | None, "Which of their tools to show. Default: all."] = None
    expose: Annotated[
        Literal["group", "direct"] | None,
        "How tools are listed, for all servers of the profile. Default: as each server says.",
    ] = None
    instructions: Annotated[
        Annotated[str, Meta(max_length=10_000)] | None, "Text for the model, put before our own instructions."
    ] = None
    roles: Annotated[
        list[str] | None, "Clients with one of these roles have this profile, unless they choose another."
    ] = None
