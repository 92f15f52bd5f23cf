"""The section with the effect of the access rules: who may use which tools, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.config.access import LOCAL_NAME, AccessKind
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.access_explanation import AccessCase, ConsideredRule, find_hiding
from dynamic_mcp.doctor.access_matrix import (
    DEPENDS,
    as_role,
    class_of,
    effect_for,
    effect_for_role,
    list_tools,
)
from dynamic_mcp.doctor.access_subject import authenticate_subject, configured_tokens
from dynamic_mcp.errors import InvalidArguments, NotFound
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.identity import Authentication
from dynamic_mcp.policy.access import Policy
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.ui.memo import Memo
from dynamic_mcp.ui.own_tokens import OwnTokens
from dynamic_mcp.ui.section import PageSection, PageView, Reply, UiContext, Visit, find_page

_ROWS, _COLUMNS = 30, 8
_LONGEST_ARGUMENTS = 4000
_MOST_RULES = 60
_MOST_LISTED = 60  # servers to choose from; of more, a part of the name is typed
_ID_LENGTH = 16
_KINDS = {"allow": "good", "ask": "wait", "deny": "bad", DEPENDS: "busy"}

_Tokens = Sequence[tuple[str, tuple[str, ...]]]


class AccessColumn(Struct, frozen=True):
    """A role, or a person, as the matrix names them."""

    kind: Literal["role", "person"]
    name: str


class AccessRow(Struct, frozen=True):
    """A tool, its class, and the effect for each column."""

    id: str
    group: str
    tool: str
    access: str
    effects: tuple[str, ...]


class _Tool(Struct, frozen=True):
    """A tool of a server, and both names as they are searched."""

    group: str
    name: str
    searched: str

    @property
    def id(self) -> str:
        """Stands for it in URLs, where names may be long."""
        digest = sha256(f"{self.group}\0{self.name}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:_ID_LENGTH]


class _Known(Struct, frozen=True):
    """What the rules are applied to: the config and its rules, the tools, and the tokens that were made."""

    config: Config
    policy: Policy | None
    catalogs: Mapping[str, Catalog]
    tools: Sequence[_Tool]
    tokens: _Tokens


class AccessSection(PageSection):
    """Who may use what. It is for operators."""

    name = "access"
    title = "Access"
    icon = "access"
    rank = 60

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._tokens = OwnTokens(context)
        self._compiled: tuple[Config, Policy | None] | None = None
        self._tools: Memo[Sequence[_Tool]] = Memo()

    def is_for(self, visit: Visit) -> bool:
        return visit.is_operator

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        match rest:
            case ():
                return await self.context.turns.run_apart(self._show_matrix, visit, await self._know(visit))
            case ("why",):
                return await self.context.turns.run_apart(self._show_why, visit, await self._know(visit))
        return None

    async def _know(self, visit: Visit) -> _Known:
        config = self.context.config
        catalogs: dict[str, Catalog] = {}
        for group in self.context.proxy.groups:
            if group.catalog is not None and group.name in config.presentations:
                catalogs.setdefault(group.name, group.catalog)
        stored = await self._tokens.load(visit) if self._tokens.are_accepted else ()
        tokens = [(each.subject, each.roles) for each in stored if not each.has_expired(visit.now)]
        ordered = dict(sorted(catalogs.items()))
        tools = await self.context.turns.run_apart(
            self._tools.find, (config, *ordered.values()), tuple(ordered), lambda: _list_tools(config, ordered)
        )
        return _Known(config, self._policy(config), ordered, tools, tokens)

    def _policy(self, config: Config) -> Policy | None:
        if self._compiled is None or self._compiled[0] is not config:
            self._compiled = config, None if config.access is None else Policy(config.access)
        return self._compiled[1]

    # --- the matrix ------------------------------------------------------------------------------------

    def _show_matrix(self, visit: Visit, known: _Known) -> PageView:
        query = visit.query
        wanted, who = query.get("q", "").lower(), query.get("who", "").lower()
        kind: Literal["role", "person"] = "person" if query.get("of") == "people" else "role"
        names = _list_people(known) if kind == "person" else list(known.policy.rules) if known.policy else []
        fitting = [AccessColumn(kind, each) for each in names if who in each.lower()]
        group = query.get("group", "")
        is_whole = group in known.catalogs  # else it is a part of a name
        tools = [
            each
            for each in known.tools
            if (each.group == group if is_whole else group in each.group) and wanted in each.searched
        ]
        pages = max(-(-len(tools) // _ROWS), 1)
        page = find_page(visit, pages)
        columns = fitting[:_COLUMNS]
        rows = [] if known.policy is None else _make_rows(known, known.policy, tools, columns, page)
        values = {
            "columns": columns,
            "more_columns": len(fitting) - len(columns),
            "rows": rows,
            "kinds": _KINDS,
            "total": len(tools),
            "page": page,
            "pages": pages,
            "groups": [*known.catalogs] if len(known.catalogs) <= _MOST_LISTED else [],
            "has_tools": bool(known.tools),
            "unknown": sorted({*known.config.presentations} - {*known.catalogs})[:20],
            "has_rules": known.config.has_access_rules,
            "has_people": bool(_list_people(known)),
            "query": {name: query.get(name, "") for name in ("q", "who", "of", "group")},
        }
        return PageView("access.html", "Access", values)

    # --- why -------------------------------------------------------------------------------------------

    def _show_why(self, visit: Visit, known: _Known) -> PageView:
        group, tool = _find_tool(known, visit.query.get("tool", ""))
        kind, _, name = visit.query.get("as", "").partition(":")
        who = _authenticate(known, kind, name)
        arguments = _read_arguments(visit.query.get("args", ""))
        shown = known.config.presentations[group]
        found = access_of(tool, known.catalogs[group].tools[tool], shown.effects)
        case = AccessCase(group, AccessKind.TOOL, tool, found.access, who, arguments, known.policy)
        decision, is_listed, depends = case.decide()
        effect = decision.effect.value
        if kind == "role" and known.policy is not None and arguments is None:
            effect = effect_for_role(known.policy, name, group, tool, found.access)
        considered: list[ConsideredRule] = case.considered()
        values = {
            "group": group,
            "tool": tool,
            "tool_id": visit.query.get("tool", ""),
            "who": name,
            "kind": kind,
            "effect": effect,
            "kinds": _KINDS,
            "decision": decision,
            "reason": case.explain(decision),
            "roles": sorted(case.rules.roles) if case.rules is not None else [],
            "is_listed": is_listed,
            "depends": depends and arguments is None,
            "access": found,
            "hiding": find_hiding(known.config, case),
            "rules": sorted(considered, key=lambda rule: not rule.matches)[:_MOST_RULES],
            "more": len(considered) - _MOST_RULES,
            "arguments": visit.query.get("args", ""),
        }
        return PageView("access_why.html", f"{tool} of {group}", values)


def _make_rows(
    known: _Known, policy: Policy, tools: Sequence[_Tool], columns: Sequence[AccessColumn], page: int
) -> list[AccessRow]:
    people = {
        each.name: authenticate_subject(known.config, each.name, known.tokens)
        for each in columns
        if each.kind == "person"
    }
    rows = list[AccessRow]()
    for each_tool in tools[(page - 1) * _ROWS : page * _ROWS]:
        group, tool = each_tool.group, each_tool.name
        access = class_of(known.config, known.catalogs, group, tool)
        effects = (
            effect_for(policy, people[each.name], group, tool, access)
            if each.kind == "person"
            else effect_for_role(policy, each.name, group, tool, access)
            for each in columns
        )
        rows.append(AccessRow(each_tool.id, group, tool, access, tuple(effects)))
    return rows


def _list_people(known: _Known) -> list[str]:
    """Return the people that the config or a token names, as `settings.access.people` writes them."""
    access = known.config.access
    named = list(access.people) if access is not None else []
    with_tokens = (subject for subject, _ in (*configured_tokens(known.config), *known.tokens))
    by_tokens = (f"{TOKEN}:{subject}" for subject in with_tokens)
    people = dict.fromkeys([LOCAL_NAME, *named, *(each for each in by_tokens if each[len(TOKEN) + 1 :] not in named)])
    return [each for each in people if _is_known(known, each)]


def _is_known(known: _Known, name: str) -> bool:
    try:
        authenticate_subject(known.config, name, ())
    except InvalidArguments:  # it can be several people
        return False
    return True


def _authenticate(known: _Known, kind: str, name: str) -> Authentication:
    """Return who is asked about. Raises NotFound."""
    if kind == "role" and known.policy is not None and name in known.policy.rules:
        return as_role(name)
    if kind == "person" and name in _list_people(known):
        return authenticate_subject(known.config, name, known.tokens)
    raise NotFound("role or person", name, ())


def _list_tools(config: Config, catalogs: Mapping[str, Catalog]) -> Sequence[_Tool]:
    return [_Tool(group, tool, f"{group} {tool}".lower()) for group, tool in list_tools(config, catalogs)]


def _find_tool(known: _Known, id: str) -> tuple[str, str]:
    """Return the group and the name of a tool. Raises NotFound."""
    for each in known.tools:
        if each.id == id:
            return each.group, each.name
    raise NotFound("tool", "that", (), hint="its server may have changed; go back to the list")


def _read_arguments(text: str) -> Raw | None:
    """Return the arguments of a request; None if none are given. Raises InvalidArguments."""
    if not text.strip():
        return None
    try:
        is_object = len(text) <= _LONGEST_ARGUMENTS and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise InvalidArguments("the arguments are not a JSON object", hint='write them as `{"name": "value"}`')
    return Raw(text.encode("utf-8", "replace"))
