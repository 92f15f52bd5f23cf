"""The section by which a person connects AI tools, and has tokens and logins of their own."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from urllib.parse import quote, urlsplit

from msgspec import Struct

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.location import FILE_NAME
from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.errors import ConfigError, InvalidArguments, NotFound
from dynamic_mcp.face.auth.token_store import facts_of
from dynamic_mcp.importer import reader
from dynamic_mcp.importer.connections import (
    TOKEN_PLACEHOLDER,
    ConnectionTarget,
    ToolConnection,
    bearer_headers,
    describe_connection,
    list_places,
)
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.system import paths
from dynamic_mcp.system.own_program import find_own_program
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.ui.own_logins import OwnLogins
from dynamic_mcp.ui.own_tokens import OwnTokens
from dynamic_mcp.ui.section import Need, PageRedirect, PageSection, PageView, Reply, UiContext, Visit, find_page

_TOKENS, _LOGINS = "tokens", "logins"
_VARIABLE = "DYNAMIC_MCP_TOKEN"
_LIFETIMES = {"7d": "7 days", "30d": "30 days", "90d": "90 days", "never": "no end"}
_TOKENS_PER_PAGE = 40
# The tools that are shown first; all others follow by name.
_POPULAR = ("cursor", "claude", "claude-desktop", "vscode", "codex", "gemini", "windsurf", "zed", "opencode", "goose")


@cache
def _list_tools() -> frozenset[str]:
    """Return the names of the tools that have a file which a person could edit."""
    return frozenset(each.name for each in TOOLS if each.name != "shared" and list_places(each))


class _Choice(Struct, frozen=True):
    """How a tool is to be connected: by the `url` or by a `start`, with a token or not, in a profile or in none."""

    way: str
    has_token: bool
    profile: str
    query: Mapping[str, str]


class ConnectSection(PageSection):
    """How AI tools are connected to this config: for everyone, with what each may use."""

    name = "connect"
    title = "Connect"
    icon = "connect"
    rank = 50

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._tokens = OwnTokens(context)
        self._logins = OwnLogins(context)

    def count(self, visit: Visit) -> int:
        return len(self._logins.list_needed(visit))

    def stamp(self, visit: Visit) -> Hashable:
        return tuple((group.name, group.state) for group in visit.client.groups)

    async def close(self) -> None:
        await self._logins.close()

    async def find_needs(self, visit: Visit) -> Sequence[Need]:
        needed = self._logins.list_needed(visit)
        return [Need(60, "need_login.html", {"groups": needed[:20], "more": len(needed) - 20})] if needed else ()

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        match rest:
            case ():
                return self._show_tools(visit)
            case (name,) if name == _TOKENS:
                return await self._show_tokens(visit)
            case (name,) if name == _LOGINS:
                return await self._show_logins(visit)
            case (name,):
                return await self._show_tool(visit, name)
        return None

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Make or revoke a token, or begin or end a login: `tokens/create`, `logins/begin` and so on."""
        match rest:
            case ("tokens", "create"):
                return await self._create_token(visit)
            case ("tokens", "revoke"):
                token = await self._tokens.revoke(visit, visit.form.get("id", ""))
                self.note(visit, "token.revoked", facts_of(token))
                return PageRedirect(f"connect/{_TOKENS}", f"Token {token.id} is revoked, and refused from now on.")
            case ("logins", "begin"):
                group = visit.form.get("group", "")
                url = await self._logins.begin(visit, group)
                values = {"group": group, "url": url, "host": urlsplit(url).hostname or ""}
                return PageView("connect_login.html", f"Log in to {group}", {**self._frame(visit), **values})
            case ("logins", "end"):
                return await self._end_login(visit, visit.form.get("group", ""))
        return None

    # --- AI tools --------------------------------------------------------------------------------------

    def _show_tools(self, visit: Visit) -> PageView:
        wanted = visit.query.get("q", "").lower()
        fitting = [each for each in TOOLS if wanted in f"{each.title} {each.name} {' '.join(each.aliases)}".lower()]
        tools = [each for each in fitting if each.name in _list_tools()]
        choice = self._choose(visit)
        values = {
            "popular": [each for name in _POPULAR for each in tools if each.name == name],
            "others": sorted(
                (each for each in tools if each.name not in _POPULAR), key=lambda each: each.title.lower()
            ),
            "q": visit.query.get("q", ""),
            **self._describe_choice(visit, choice),
        }
        return PageView("connect.html", "Connect", {**self._frame(visit), **values})

    async def _show_tool(self, visit: Visit, name: str) -> PageView | None:
        adapter = next((each for each in TOOLS if each.name == name), None)
        if adapter is None:
            try:
                adapter = reader.find_tool(name)
            except NotFound:
                return None
        choice = self._choose(visit)
        target, caveat = await self.context.turns.run_apart(self._find_target, visit, choice)
        connection = await self.context.turns.run_apart(describe_connection, adapter, target)
        if connection is None:
            return None
        values = {
            "connection": connection,
            "install": self._install_command(connection, choice),
            "caveat": "" if connection.is_remote else caveat,
            "placeholder": TOKEN_PLACEHOLDER,
            **self._describe_choice(visit, choice),
        }
        return PageView("connect_tool.html", f"Connect {adapter.title}", {**self._frame(visit), **values})

    @property
    def _endpoint(self) -> str:
        """The URL that AI tools connect to; empty if there is none, as where only the page is served."""
        http, base = self.context.http, self.context.base_url
        if http.public_url is not None:
            return http.public_url
        is_page_alone = isinstance(http.listen, TcpAddress) and base and urlsplit(base).port != http.listen.port
        return f"{base}{http.path}" if base and not is_page_alone else ""

    def _choose(self, visit: Visit) -> _Choice:
        profile = visit.query.get("profile", "")
        is_here = visit.authentication.is_local
        way = visit.query.get("way", "url" if self._endpoint else "start")
        way = "start" if (is_here and way == "start") or not self._endpoint else "url"
        wants_token = visit.query.get("token") != "no"
        profile = profile if profile in self.context.config.profiles else ""
        query = {"way": visit.query.get("way", ""), "token": "" if wants_token else "no", "profile": profile}
        return _Choice(way, self._takes_tokens and wants_token and way == "url", profile, query)

    @property
    def _takes_tokens(self) -> bool:
        return any(isinstance(each, BearerAuth) for each in self.context.http.auth)

    def _describe_choice(self, visit: Visit, choice: _Choice) -> Mapping[str, object]:
        auth = self.context.http.auth
        return {
            "choice": choice,
            "url": self._whole_url(choice) if choice.way == "url" else "",
            "ways": {"url": "by its address", "start": "by starting it"}
            if self._endpoint and visit.authentication.is_local
            else {},
            "profiles": [*self.context.config.profiles],
            "asks_token": self._takes_tokens and choice.way == "url" and len(auth) > 1,
            "logs_in": bool(auth) and choice.way == "url" and not choice.has_token,
            "is_nowhere": not self._endpoint and not visit.authentication.is_local,
        }

    def _whole_url(self, choice: _Choice) -> str:
        url = self._endpoint
        return f"{url.rstrip('/')}/profile/{quote(choice.profile, safe='')}" if choice.profile else url

    def _find_target(self, visit: Visit, choice: _Choice) -> tuple[ConnectionTarget, str]:
        """Return what a tool is connected to, and a warning about our own program."""
        if choice.way == "url":
            url, variable = self._whole_url(choice), _VARIABLE if choice.has_token else ""
            headers = bearer_headers(variable)
            words = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
            program, caveat = find_own_program() if visit.authentication.is_local else (["dynamic-mcp"], "")
            requested = (variable,) if variable else ()
            return ConnectionTarget((*program, "connect", url, *words), url, variable, requested), caveat
        file = self.context.config.file.absolute()
        program, caveat = find_own_program()
        try:
            names = find_required_variables(file, os.environ).names
        except ConfigError:  # what is on the disk is not what is served
            names = ()
        profile = ("--profile", choice.profile) if choice.profile else ()
        return ConnectionTarget((*program, str(file), *profile), requested=tuple(names)), caveat

    def _install_command(self, connection: ToolConnection, choice: _Choice) -> str:
        words = ["install", connection.tool]
        if choice.way == "url":
            words += ["--url", self._endpoint]
        if choice.profile:
            words += ["--profile", choice.profile]
        for name, value in bearer_headers(_VARIABLE if choice.has_token else "").items():
            words += ["--header", f"{name}: {value}"]
        file = self.context.config.file.absolute()
        if choice.way == "start" and file != paths.config_dir() / FILE_NAME:
            words += ["-c", str(file)]
        return format_command(*words)

    # --- tokens ----------------------------------------------------------------------------------------

    async def _show_tokens(self, visit: Visit, made: str = "", made_id: str = "") -> PageView | None:
        if not self._tokens.are_accepted:
            return None
        tokens = await self._tokens.load(visit)
        pages = max(-(-len(tokens) // _TOKENS_PER_PAGE), 1)
        page = 1 if made else find_page(visit, pages)
        values = {
            "tokens": tokens[(page - 1) * _TOKENS_PER_PAGE : page * _TOKENS_PER_PAGE],
            "page": page,
            "pages": pages,
            "made": made,
            "made_id": made_id,
            "variable": _VARIABLE,
            "may_make": self._tokens.may_make(visit),
            "roles": self._tokens.roles_for(visit),
            "lifetimes": _LIFETIMES if visit.is_operator else {k: v for k, v in _LIFETIMES.items() if k != "never"},
        }
        return PageView("connect_tokens.html", "Tokens", {**self._frame(visit), **values})

    async def _create_token(self, visit: Visit) -> Reply | None:
        """Make a token, and show it in the answer: it is in no other place."""
        if not self._tokens.are_accepted:
            return None
        roles = [name.removeprefix("role:") for name in visit.form if name.startswith("role:")]
        expires = visit.form.get("expires", "")
        if expires not in _LIFETIMES:
            raise InvalidArguments("choose when the token expires")
        token, stored = await self._tokens.create(visit, visit.form.get("subject", ""), roles, expires)
        self.note(visit, "token.created", facts_of(stored))
        return await self._show_tokens(visit, token, stored.id)

    # --- logins ----------------------------------------------------------------------------------------

    async def _show_logins(self, visit: Visit) -> PageView:
        values = {"logins": await self._logins.load(visit)}
        return PageView("connect_logins.html", "Logins at servers", {**self._frame(visit), **values})

    async def _end_login(self, visit: Visit, group: str) -> PageRedirect:
        remote, warning = await self._logins.end(visit, group)
        person = remote.login_of
        whose = {} if person is None else {"of": person.subject, "of_issuer": person.issuer}
        self.note(visit, "login.ended", {"group": group, **whose})
        text = f"The login at {group} is forgotten."
        return PageRedirect(f"connect/{_LOGINS}", f"{text} {warning}".strip(), is_error=bool(warning))

    def _frame(self, visit: Visit) -> Mapping[str, object]:
        """Return what the head of each page of the section shows."""
        tabs = {"": "AI tools"}
        if self._tokens.are_accepted:
            tabs[_TOKENS] = "Tokens"
        if self.context.proxy.logins is not None:
            tabs[_LOGINS] = "Logins at servers"
        return {"tabs": tabs}
