"""The `auth` command: logs in to remote servers, with a browser here or on another machine, and out again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace as with_fields

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.direct_server import DirectServer, configure
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import Config, GroupConfig, Remote
from dynamic_mcp.errors import TOKEN_HINT, DynamicMcpError, InvalidArguments, LoginFailed, LoginNeeded
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.bearer import BearerCredentials
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.oauth.store import list_persons
from dynamic_mcp.oauth.user_logins import login_command, login_folder
from dynamic_mcp.proxy.shared_store import has_shared_store, using_shared_store
from dynamic_mcp.system import paths
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.web.authorization_response import UnexpectedResponse

if TYPE_CHECKING:
    from dynamic_mcp.oauth.replica_logins import ReplicaLogins

_LONGEST_TOKEN = 1 << 20
LOGIN_NEEDED = LoginNeeded.exit_code
_STORE_HINT = "try again; `dynamic-mcp cluster check` tries the store"
_SAVE_HINT = f"check the free space and the permissions of `{paths.state_dir()}`"


@dataclass(frozen=True)
class _RemoteGroup:
    """A remote group and its credentials."""

    name: str
    remote: Remote
    bearer: BearerCredentials
    out: Output
    config: Config
    # a warning about a variable in its headers that is not set
    unset: str = ""


# A group by its name, or a server given by its URL; None means all groups.
Which = str | DirectServer | None


def log_in(context: Invocation, which: Which, *, open_browser: bool, ask_token: bool) -> None:
    """Log in to one server, or to all groups that are not logged in. Raises DynamicMcpError."""
    groups = _select_groups(context, which)
    failures: list[DynamicMcpError] = []
    for group in groups:
        try:
            is_explicit = which is not None
            if asyncio.run(_log_in(group, is_explicit=is_explicit, open_browser=open_browser, ask_token=ask_token)):
                _record(context, which, "login.done", group)
        except DynamicMcpError as exc:
            failures.append(exc)
    for failure in failures[:-1]:
        context.out.print_error(str(failure))
    if failures:
        raise failures[-1]


def log_out(context: Invocation, which: Which) -> None:
    """Revoke and delete the tokens of one server, or of all groups. Raises DynamicMcpError."""
    for group in _select_groups(context, which):
        if asyncio.run(_log_out(group)):
            _record(context, which, "login.ended", group)


def log_person_out(context: Invocation, which: Which, subject: str, issuer: str | None) -> None:
    """Revoke and delete the tokens of one user at one server, or at all groups. Raises DynamicMcpError."""
    found = [
        (group, person)
        for group in _select_groups(context, which)
        for person in _list_persons(group)
        if person.subject == subject and issuer in (None, person.issuer)
    ]
    issuers = sorted({person.issuer for _, person in found})
    if len(issuers) > 1:
        names = " and ".join(f"`{each}`" for each in issuers)
        raise InvalidArguments(f"{names} have a `{subject}` each", hint="say which one with `--issuer`")
    if not found:
        context.out.say(f"no login of `{subject}` is stored")
    for group, person in found:
        if asyncio.run(_log_out(_of_person(group, person))):
            _record(context, which, "login.ended", _of_person(group, person))


def show_status(context: Invocation, which: Which) -> int:
    """Print which groups are logged in; return the exit code."""
    groups = _select_groups(context, which, only_remote=which is not None)
    group_rows = asyncio.run(_list_rows(groups))
    rows = [*group_rows, *asyncio.run(_list_rows(_list_personal(groups)))]
    persons = ("person",) if len(rows) > len(group_rows) else ()
    columns = ("group", *persons, "state", "until", "scope", "issuer")
    context.out.print_rows(
        rows,
        [column.upper() for column in columns],
        [[row.get(column) or "" for column in columns] for row in rows],
        if_none="no group has a `url`, so there is nothing to log in to",
    )
    failures = {"expired"} if which is None else {"expired", "not logged in"}
    failures |= {group.unset for group in groups if group.unset}
    return LOGIN_NEEDED if any(row["state"] in failures for row in group_rows) else 0


def read_login_states(config: Config, out: Output) -> dict[str, str]:
    """Return the state of the login of each remote group, by its name."""
    remote = [each for each in config.groups if isinstance(each.upstream, Remote) and each.upstream.may_log_in]
    groups = [_remote_group(each, config, login_command(config.file, each.name), out) for each in remote]
    return {row["group"] or "": row["state"] or "" for row in asyncio.run(_list_rows(groups))}


# --- selection -------------------------------------------------------------------------------------------


def _select_groups(context: Invocation, which: Which, *, only_remote: bool = True) -> list[_RemoteGroup]:
    if isinstance(which, DirectServer):
        config, name, command = configure(which, os.environ).base, None, which.login_command
    else:
        config, name = context.read_config(which), which
        command = partial(login_command, config.file)
    remote = [each for each in config.groups if isinstance(each.upstream, Remote) and each.upstream.may_log_in]
    groups = [_remote_group(each, config, command(each.name), context.out) for each in remote]
    if name is not None and only_remote and not groups:
        why = "it is a local program or a service without `oauth`, or its entry is invalid"
        raise InvalidArguments(f"group `{name}` needs no login: {why}")
    return groups


def _remote_group(config: GroupConfig, root: Config, command: str, out: Output) -> _RemoteGroup:
    assert isinstance(config.upstream, Remote)
    bearer = BearerCredentials(config.name, config.upstream, login_folder(), command)
    headers = format_path(("mcpServers", config.name, "headers"))
    warnings = [each for each in root.warnings if each.startswith((f"{headers}.", f"{headers}["))]
    unset = warnings[0].partition(": ")[2] if warnings else ""
    return _RemoteGroup(config.name, config.upstream, bearer, out, root, unset)


def _list_personal(groups: list[_RemoteGroup]) -> list[_RemoteGroup]:
    """Return an entry for each group and each user with a personal login to it."""
    return [_of_person(group, person) for group in groups for person in _list_persons(group)]


def _list_persons(group: _RemoteGroup) -> list[Principal]:
    if not has_shared_store(group.config):
        return list_persons(login_folder(), group.remote)
    return asyncio.run(_list_persons_of_replicas(group))


async def _list_persons_of_replicas(group: _RemoteGroup) -> list[Principal]:
    async with _opened(group) as logins:
        assert logins is not None, "its config names a store"
        try:
            return await logins.list_persons(group.remote)
        except OSError as exc:
            raise DynamicMcpError(f"could not read whose logins there are: {exc}", hint=_STORE_HINT) from exc


@contextlib.asynccontextmanager
async def _opened(group: _RemoteGroup) -> AsyncIterator[ReplicaLogins | None]:
    """Use the logins that replicas share, if the config names a store."""
    if not has_shared_store(group.config):
        yield None
        return
    from dynamic_mcp.oauth.replica_logins import ReplicaLogins

    async with using_shared_store(group.config) as store:
        logins = ReplicaLogins(store)
        group.bearer.use_store(logins.open(group.remote))
        try:
            yield logins
        finally:
            await logins.close()


def _of_person(group: _RemoteGroup, person: Principal) -> _RemoteGroup:
    remote = with_fields(group.remote, login_of=person)
    return replace(group, remote=remote, bearer=BearerCredentials(group.name, remote, login_folder(), ""))


def _record(context: Invocation, which: Which, event: str, group: _RemoteGroup) -> None:
    """Record a login or its end, at a server of a config."""
    if not isinstance(which, DirectServer):
        person = group.remote.login_of
        user_fields = {} if person is None else {"of": person.subject, "of_issuer": person.issuer}
        record(context, context.config_path(), event, {"group": group.name, **user_fields})


# --- login -----------------------------------------------------------------------------------------------


async def _log_in(group: _RemoteGroup, *, is_explicit: bool, open_browser: bool, ask_token: bool) -> bool:
    """Log in to a group; return whether there is a new token. Raises LoginFailed."""
    async with _opened(group):
        return await _log_in_there(group, is_explicit=is_explicit, open_browser=open_browser, ask_token=ask_token)


async def _log_in_there(group: _RemoteGroup, *, is_explicit: bool, open_browser: bool, ask_token: bool) -> bool:
    stored_login = await group.bearer.load_login()
    if group.unset:
        group.out.say(f"{group.name}: a header in the config is incomplete: {group.unset}")
        return False
    if group.remote.has_own_authorization:
        group.out.say(f"{group.name}: uses the Authorization header of the config")
        return False
    if not is_explicit and stored_login is not None and stored_login.token is not None and not ask_token:
        group.out.say(f"{group.name}: already logged in")
        return False
    if group.remote.oauth.exchanges:
        group.out.say(f"{group.name}: exchanges the token of each caller, and needs no login")
        return False
    if not group.remote.oauth.needs_user:
        await group.bearer.get_header()
        group.out.say(f"{group.name}: logs in by itself, with the configured client")
        return False
    login = await _ask_token(group) if ask_token else await _browse(group, stored_login, open_browser=open_browser)
    if login is None:
        return False
    if not await group.bearer.adopt(login):
        hint = _STORE_HINT if has_shared_store(group.config) else _SAVE_HINT
        raise LoginFailed(group.name, "the login worked, but its token could not be saved", hint=hint)
    group.out.say(f"{group.name}: logged in; what runs uses it from now on")
    return True


async def _browse(group: _RemoteGroup, stored_login: Login | None, *, open_browser: bool) -> Login | None:
    """Log in with a browser, or with a pasted token if there is no client id. Return None if no login is needed."""
    from dynamic_mcp.oauth.login import LoginAborted, NoClient, NoLogin, begin_login
    from dynamic_mcp.oauth.probe import probe

    outcome = await probe(group.remote)
    if outcome.status is None:
        raise LoginFailed(group.name, outcome.reason, hint="check the `url`, and the network or VPN")
    try:
        async with begin_login(group.remote, group.bearer.policy, outcome.challenge, stored_login) as attempt:
            if outcome.is_open() and attempt.is_assumed():
                _report_no_login(group)
                return None
            await _show_link(group.out, attempt.url, open_browser=open_browser)
            _read_pasted_address(group.out, attempt.paste)
            login = await attempt.finish()
    except (NoClient, NoLogin) as exc:
        if outcome.is_open():
            _report_no_login(group)
            return None
        group.out.say(f"{group.name}: {exc}")
        return await _ask_token(group)
    except LoginAborted as exc:
        raise LoginFailed(group.name, str(exc), hint=f"if the server takes a token instead, {TOKEN_HINT}") from exc
    for warning in attempt.warnings:
        group.out.say(f"warning: {group.name}: {warning}")
    return login


def _report_no_login(group: _RemoteGroup) -> None:
    group.out.say(f"{group.name}: needs no login")


async def _show_link(out: Output, url: str, *, open_browser: bool) -> None:
    """Open the link in a browser if there is one, and print it to stdout, as data."""
    from dynamic_mcp.oauth.browser import has_browser, open_link

    is_open = open_browser and has_browser(os.environ) and await open_link(url)
    out.say("Opening this page in a browser; log in there:" if is_open else "Open this page and log in:")
    out.print_text(url)
    out.say("If the browser is on another machine, paste the address of the page it ends up on here.")


def _read_pasted_address(out: Output, paste: Callable[[str], None]) -> None:
    """Read the redirect address from stdin, while also waiting for the browser."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        try:
            paste(line)
        except UnexpectedResponse as exc:
            out.say(f"cannot use this address: {exc}")

    def read() -> None:
        rest = b""
        # not `sys.stdin`: this thread would hold its lock at exit while it waits for a line
        while (data := _read_chunk()) and not loop.is_closed():
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                with contextlib.suppress(RuntimeError):  # the login has ended
                    loop.call_soon_threadsafe(take, line.decode("utf-8", "replace"))

    threading.Thread(target=read, name="pasted", daemon=True).start()


def _read_chunk() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:  # stdin is closed
        return b""


async def _ask_token(group: _RemoteGroup) -> Login:
    """Ask the user for a token, and test it. Raises LoginFailed."""
    from dynamic_mcp.oauth.probe import probe
    from dynamic_mcp.oauth.services import token_hint

    group.out.say(f"{group.name}: create a token ({token_hint(group.remote.url)})")
    text = await asyncio.to_thread(_read_token)
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        hint = f"pipe it in: `… | {format_command('auth', 'login', '--token', group.name)}`; or {TOKEN_HINT}"
        raise LoginFailed(group.name, "no token was given", hint=hint)
    outcome = await probe(group.remote, text)
    if outcome.status in (401, 403):
        raise LoginFailed(group.name, f"the server does not accept this token (HTTP {outcome.status})")
    return Login(group.remote.url, token=Token(text, time.time()))


def _read_token() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(_LONGEST_TOKEN).strip().removeprefix("Bearer ")
    token: str = click.prompt("token", hide_input=True, default="", show_default=False, err=True)
    return token.strip().removeprefix("Bearer ")


# --- logout and status -----------------------------------------------------------------------------------


async def _log_out(group: _RemoteGroup) -> bool:
    """Revoke and delete the tokens of a group; return whether there were any. Raises LoginFailed."""
    async with _opened(group):
        return await _log_out_there(group)


async def _log_out_there(group: _RemoteGroup) -> bool:
    from dynamic_mcp.oauth.logout import log_out

    label = group.name if group.remote.login_of is None else f"{group.name}, `{group.remote.login_of.subject}`"
    outcome = await log_out(group.bearer)
    if outcome.warning:
        group.out.say(f"warning: {label}: {outcome.warning}")
    group.out.say(f"{label}: logged out" if outcome.was_logged_in else f"{label}: not logged in")
    return outcome.was_logged_in


async def _list_rows(groups: list[_RemoteGroup]) -> list[dict[str, str | None]]:
    return [await _row(group) for group in groups]


async def _row(group: _RemoteGroup) -> dict[str, str | None]:
    row: dict[str, str | None] = {"group": group.name}
    if group.remote.login_of is not None:
        row |= {"person": group.remote.login_of.subject, "person_issuer": group.remote.login_of.issuer}
    if group.unset:
        return {**row, "state": group.unset}
    if group.remote.has_own_authorization:
        return {**row, "state": "authorized by the config"}
    if group.remote.oauth.exchanges:
        return {**row, "state": "exchanges the token of each caller", "issuer": group.remote.oauth.issuer}
    async with _opened(group):
        login = await group.bearer.load_login()
    token = login.token if login else None
    if not group.remote.oauth.needs_user:
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
