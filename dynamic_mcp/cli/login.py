"""Being logged in to remote servers, at a desk or over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.keys import path
from dynamic_mcp.config.resolved import Config, GroupConfig, Remote
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, LoginFailed, LoginNeeded
from dynamic_mcp.oauth.bearer import Bearer
from dynamic_mcp.oauth.callback import NotOurs
from dynamic_mcp.oauth.records import Login, Token
from dynamic_mcp.oauth.user_logins import login_command, login_folder
from dynamic_mcp.system import paths
from dynamic_mcp.system.own_command import command

_LONGEST_TOKEN = 1 << 20
LOGIN_NEEDED = LoginNeeded.exit_code
_SAVE_HINT = f"check the free space and the permissions of `{paths.state_dir()}`"


@dataclass(frozen=True)
class _Group:
    """A remote group and its credentials."""

    name: str
    remote: Remote
    bearer: Bearer
    out: Output
    # what is to be said of a variable in its headers that is not set
    unset: str = ""

    def is_static(self) -> bool:
        """Tell whether the config itself holds the credentials."""
        return any(name.lower() == "authorization" and value.strip() for name, value in self.remote.headers.items())


def log_in(this: Invocation, name: str | None, *, open_browser: bool, ask_token: bool) -> None:
    """Log in to one group, or to each that is not logged in. Raises DynamicMcpError."""
    groups = _groups(this, name)
    failures: list[DynamicMcpError] = []
    for group in groups:
        try:
            asyncio.run(_login(group, is_named=name is not None, open_browser=open_browser, ask_token=ask_token))
        except DynamicMcpError as exc:
            failures.append(exc)
    for failure in failures[:-1]:
        this.out.error(str(failure))
    if failures:
        raise failures[-1]


def log_out(this: Invocation, name: str | None) -> None:
    """Give the tokens of one group back, or of all, and forget them. Raises DynamicMcpError."""
    for group in _groups(this, name):
        asyncio.run(_logout(group))


def show_status(this: Invocation, name: str | None) -> int:
    """Show who is logged in; return the exit code."""
    groups = _groups(this, name, only_remote=name is not None)
    rows = asyncio.run(_status(groups))
    if this.out.is_json:
        this.out.json(rows)
    elif rows:
        columns = ("group", "state", "until", "scope", "issuer")
        rows_of_text = [[row.get(column) or "" for column in columns] for row in rows]
        this.out.table([column.upper() for column in columns], rows_of_text)
    else:
        this.out.words("no group has a `url`, so there is nothing to log in to")
    needs = {"expired"} if name is None else {"expired", "not logged in"}
    needs |= {group.unset for group in groups if group.unset}
    return LOGIN_NEEDED if any(row["state"] in needs for row in rows) else 0


# --- which groups ----------------------------------------------------------------------------------------


def _groups(this: Invocation, name: str | None, *, only_remote: bool = True) -> list[_Group]:
    config = this.config_of(name)
    found = [_group(each, config, this.out) for each in config.groups if isinstance(each.upstream, Remote)]
    if name is not None and only_remote and not found:
        raise InvalidArguments(f"group `{name}` needs no login: it is a program, or its entry cannot be used")
    return found


def _group(config: GroupConfig, root: Config, out: Output) -> _Group:
    assert isinstance(config.upstream, Remote)
    bearer = Bearer(config.name, config.upstream, login_folder(), login_command(root.file, config.name))
    headers = path(("mcpServers", config.name, "headers"))
    warnings = [each for each in root.warnings if each.startswith((f"{headers}.", f"{headers}["))]
    unset = warnings[0].partition(": ")[2] if warnings else ""
    return _Group(config.name, config.upstream, bearer, out, unset)


# --- login -----------------------------------------------------------------------------------------------


async def _login(group: _Group, *, is_named: bool, open_browser: bool, ask_token: bool) -> None:
    known = await group.bearer.login()
    if group.unset:
        group.out.words(f"{group.name}: a header in the config cannot be used: {group.unset}")
        return
    if group.is_static():
        group.out.words(f"{group.name}: uses the Authorization header of the config")
        return
    if not is_named and known is not None and known.token is not None and not ask_token:
        group.out.words(f"{group.name}: already logged in")
        return
    if group.remote.oauth.is_client_credentials:
        await group.bearer.header()
        group.out.words(f"{group.name}: the configured client gets its tokens by itself")
        return
    login = await _pasted_token(group) if ask_token else await _browsed(group, known, open_browser=open_browser)
    if login is None:
        return
    if not await group.bearer.adopt(login):
        raise LoginFailed(group.name, "the login worked, but its token could not be saved", hint=_SAVE_HINT)
    group.out.words(f"{group.name}: logged in; running proxies pick it up by themselves")


async def _browsed(group: _Group, known: Login | None, *, open_browser: bool) -> Login | None:
    """Log in by a browser; by a pasted token where no client can be had. None where no login is asked for."""
    from dynamic_mcp.oauth.login import NoClient, Stopped, begun
    from dynamic_mcp.oauth.probe import probed

    asked = await probed(group.remote)
    if asked.status is None:
        raise LoginFailed(group.name, asked.why, hint="check the `url`, and the network or VPN")
    try:
        async with begun(group.remote, group.bearer.reach, asked.demand, known) as attempt:
            if asked.is_open() and attempt.is_assumed():
                _no_login(group)
                return None
            await _show(group.out, attempt.url, open_browser=open_browser)
            _take_pasted(group.out, attempt.paste)
            login = await attempt.finished()
    except NoClient as exc:
        if asked.is_open():
            _no_login(group)
            return None
        group.out.words(f"{group.name}: {exc}")
        return await _pasted_token(group)
    except Stopped as exc:
        raise LoginFailed(group.name, str(exc)) from exc
    for warning in attempt.warnings:
        group.out.words(f"warning: {group.name}: {warning}")
    return login


def _no_login(group: _Group) -> None:
    group.out.words(f"{group.name}: needs no login")


async def _show(out: Output, url: str, *, open_browser: bool) -> None:
    """Bring a link to the person: the link is data, and goes to stdout."""
    from dynamic_mcp.oauth.browser import has_browser, open_link

    is_open = open_browser and has_browser(os.environ) and await open_link(url)
    out.words("Opening this page in a browser; log in there:" if is_open else "Open this page and log in:")
    out.text(url)
    out.words("If the browser is on another machine, paste the address that it ends up at here.")


def _take_pasted(out: Output, paste: Callable[[str], None]) -> None:
    """Let lines of stdin be the address that the browser ended up at, while the browser may still come by itself."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        try:
            paste(line)
        except NotOurs as exc:
            out.words(f"not usable: {exc}")

    def read() -> None:
        kept = b""
        # not by `sys.stdin`: its lock could not be had at the exit, while this waits for a line
        while (data := _read_some()) and not loop.is_closed():
            *lines, kept = (kept + data).split(b"\n")
            for line in filter(None, lines):
                with contextlib.suppress(RuntimeError):  # the login is over
                    loop.call_soon_threadsafe(take, line.decode("utf-8", "replace"))

    threading.Thread(target=read, name="pasted", daemon=True).start()


def _read_some() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:  # there is no stdin
        return b""


async def _pasted_token(group: _Group) -> Login:
    """Ask for a token that a person has made, and try it. Raises LoginFailed."""
    from dynamic_mcp.oauth.probe import probed
    from dynamic_mcp.oauth.services import token_hint

    group.out.words(f"{group.name}: create a token ({token_hint(group.remote.url)})")
    text = await asyncio.to_thread(_typed_token)
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        hint = f"pipe it in: `… | {command('auth', 'login', '--token', group.name)}`"
        raise LoginFailed(group.name, "no token was given", hint=hint)
    tried = await probed(group.remote, text)
    if tried.status in (401, 403):
        raise LoginFailed(group.name, f"the server does not accept this token (HTTP {tried.status})")
    return Login(group.remote.url, token=Token(text, time.time()))


def _typed_token() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(_LONGEST_TOKEN).strip().removeprefix("Bearer ")
    typed: str = click.prompt("token", hide_input=True, default="", show_default=False, err=True)
    return typed.strip().removeprefix("Bearer ")


# --- logout and status -----------------------------------------------------------------------------------


async def _logout(group: _Group) -> None:
    known = await group.bearer.login()
    if known is None or known.token is None:
        group.out.words(f"{group.name}: not logged in")
        return
    if known.revocation_endpoint is not None and known.client is not None:
        from dynamic_mcp.oauth.tokens import Denied, Failed, Tokens

        try:
            await Tokens(group.bearer.reach, known, group.remote.oauth).revoke(known.token)
        except (Denied, Failed) as exc:
            why = f"`{known.revocation_endpoint}` {exc}"
            group.out.words(f"warning: {group.name}: the token was deleted here, but not revoked: {why}")
    try:
        await group.bearer.forget()
    except OSError as exc:
        raise LoginFailed(group.name, f"the token cannot be deleted: {exc.strerror or exc}") from exc
    group.out.words(f"{group.name}: logged out")


async def _status(groups: list[_Group]) -> list[dict[str, str | None]]:
    return [await _row(group) for group in groups]


async def _row(group: _Group) -> dict[str, str | None]:
    row: dict[str, str | None] = {"group": group.name}
    if group.unset:
        return {**row, "state": group.unset}
    if group.is_static():
        return {**row, "state": "authorized by the config"}
    login = await group.bearer.login()
    token = login.token if login else None
    if group.remote.oauth.is_client_credentials:
        state = "logs in by itself"
    elif token is None:
        state = "not logged in"
    else:
        state = "expired" if token.is_expired(time.time()) and token.refresh is None else "logged in"
    until = None
    if token is not None and token.expires_at is not None and token.refresh is None:
        until = datetime.fromtimestamp(token.expires_at, UTC).isoformat(timespec="seconds")
    return {
        **row,
        "state": state,
        "issuer": login.issuer if login else None,
        "scope": token.scope if token else None,
        "until": until,
    }
