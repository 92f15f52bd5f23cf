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
from pathlib import Path

import click

from dynamic_mcp import paths
from dynamic_mcp.cli.credentials import login_command, login_folder
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, LoginFailed, LoginNeeded
from dynamic_mcp.oauth.bearer import Bearer
from dynamic_mcp.oauth.callback import NotOurs
from dynamic_mcp.oauth.records import Login, Token

LOGIN_NEEDED = LoginNeeded.exit_code
_SAVE_HINT = f"look at the disk and the rights of `{paths.state_dir()}`"


@dataclass(frozen=True)
class _Group:
    """A remote group and its credentials."""

    name: str
    remote: Remote
    bearer: Bearer

    def is_static(self) -> bool:
        """Tell whether the config itself holds the credentials."""
        return any(name.lower() == "authorization" and value.strip() for name, value in self.remote.headers.items())


def login(this: Invocation, name: str | None, *, open_browser: bool, ask_token: bool) -> None:
    """Log in to one group, or to each that is not logged in. Raises DynamicMcpError."""
    groups = _groups(this, name)
    failures: list[DynamicMcpError] = []
    for group in groups:
        try:
            asyncio.run(_login(group, is_named=name is not None, open_browser=open_browser, ask_token=ask_token))
        except DynamicMcpError as exc:
            failures.append(exc)
    _raise_all(failures)


def logout(this: Invocation, name: str | None) -> None:
    """Give the tokens of one group back, or of all, and forget them. Raises DynamicMcpError."""
    for group in _groups(this, name):
        asyncio.run(_logout(group))


def status(this: Invocation, name: str | None) -> int:
    """Show who is logged in; return the exit code."""
    rows = asyncio.run(_status(_groups(this, name, only_remote=name is not None)))
    if this.out.is_json:
        this.out.json(rows)
    elif rows:
        columns = ("group", "state", "until", "scope", "issuer")
        this.out.table(
            [column.capitalize() for column in columns], [[row.get(c) or "" for c in columns] for row in rows]
        )
    else:
        this.out.words("no group is reached by a url, so there is nothing to log in to")
    needs = {"expired"} if name is None else {"expired", "not logged in"}
    return LOGIN_NEEDED if any(row["state"] in needs for row in rows) else 0


# --- which groups ----------------------------------------------------------------------------------------


def _groups(this: Invocation, name: str | None, *, only_remote: bool = True) -> list[_Group]:
    config = this.config_of(name)
    found = [_group(each, config.file) for each in config.groups if isinstance(each.upstream, Remote)]
    if name is not None and only_remote and not found:
        raise InvalidArguments(f"group `{name}` is a program, or cannot be reached as things are: no login is needed")
    return found


def _group(config: GroupConfig, file: Path) -> _Group:
    assert isinstance(config.upstream, Remote)
    bearer = Bearer(config.name, config.upstream, login_folder(), login_command(file, config.name))
    return _Group(config.name, config.upstream, bearer)


def _raise_all(failures: list[DynamicMcpError]) -> None:
    for exc in failures[:-1]:
        click.echo(f"error: {exc}", err=True)
    if failures:
        raise failures[-1]


# --- login -----------------------------------------------------------------------------------------------


async def _login(group: _Group, *, is_named: bool, open_browser: bool, ask_token: bool) -> None:
    known = await group.bearer.login()
    if group.is_static():
        click.echo(f"{group.name}: the config has an Authorization header for it, which is used", err=True)
        return
    if not is_named and known is not None and known.token is not None and not ask_token:
        click.echo(f"{group.name}: is logged in already", err=True)
        return
    if group.remote.oauth.is_client_credentials:
        await group.bearer.header()
        click.echo(f"{group.name}: the client that the config names gets its tokens by itself", err=True)
        return
    login = await _pasted_token(group) if ask_token else await _browsed(group, known, open_browser=open_browser)
    if login is None:
        return
    if not await group.bearer.adopt(login):
        raise LoginFailed(group.name, "the login worked, but its token could not be saved", hint=_SAVE_HINT)
    click.echo(f"{group.name}: logged in; running proxies pick it up by themselves", err=True)


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
            await _show(attempt.url, open_browser=open_browser)
            _take_pasted(attempt.paste)
            login = await attempt.finished()
    except NoClient as exc:
        if asked.is_open():
            _no_login(group)
            return None
        click.echo(f"{group.name}: {exc}", err=True)
        return await _pasted_token(group)
    except Stopped as exc:
        raise LoginFailed(group.name, str(exc)) from exc
    for warning in attempt.warnings:
        click.echo(f"warning: {group.name}: {warning}", err=True)
    return login


def _no_login(group: _Group) -> None:
    click.echo(f"{group.name}: asks for no login", err=True)


async def _show(url: str, *, open_browser: bool) -> None:
    """Bring a link to the person: the link is data, and goes to stdout."""
    from dynamic_mcp.oauth.browser import has_browser, open_link

    is_open = open_browser and has_browser(os.environ) and await open_link(url)
    click.echo("A browser opens this page; log in there:" if is_open else "Open this page and log in:", err=True)
    click.echo(url)
    click.echo("Is the browser on another machine? Then paste the address that it ends up at here.", err=True)


def _take_pasted(paste: Callable[[str], None]) -> None:
    """Let lines of stdin be the address that the browser ended up at, while the browser may still come by itself."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        try:
            paste(line)
        except NotOurs as exc:
            click.echo(f"this does not help: {exc}", err=True)

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

    click.echo(f"{group.name}: make a token ({token_hint(group.remote.url)})", err=True)
    text = await asyncio.to_thread(_typed_token)
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        hint = f"pipe it in: `… | dynamic-mcp auth login --token {group.name}`"
        raise LoginFailed(group.name, "no token was given", hint=hint)
    tried = await probed(group.remote, text)
    if tried.status in (401, 403):
        raise LoginFailed(group.name, f"the server does not accept this token (HTTP {tried.status})")
    return Login(group.remote.url, token=Token(text, time.time()))


def _typed_token() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip().removeprefix("Bearer ")
    typed: str = click.prompt("token", hide_input=True, default="", show_default=False, err=True)
    return typed.strip().removeprefix("Bearer ")


# --- logout and status -----------------------------------------------------------------------------------


async def _logout(group: _Group) -> None:
    known = await group.bearer.login()
    if known is None or known.token is None:
        click.echo(f"{group.name}: is not logged in", err=True)
        return
    if known.revocation_endpoint is not None and known.client is not None:
        from dynamic_mcp.oauth.tokens import Denied, Failed, Tokens

        try:
            await Tokens(group.bearer.reach, known, group.remote.oauth).revoke(known.token)
        except (Denied, Failed) as exc:
            why = f"`{known.revocation_endpoint}` {exc}"
            click.echo(f"warning: {group.name}: the token is forgotten here, but not revoked: {why}", err=True)
    try:
        await group.bearer.forget()
    except OSError as exc:
        raise LoginFailed(group.name, f"the token cannot be deleted: {exc.strerror or exc}") from exc
    click.echo(f"{group.name}: logged out", err=True)


async def _status(groups: list[_Group]) -> list[dict[str, str | None]]:
    return [await _row(group) for group in groups]


async def _row(group: _Group) -> dict[str, str | None]:
    row: dict[str, str | None] = {"group": group.name}
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
