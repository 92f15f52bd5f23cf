"""The `token` command: tokens of HTTP clients, stored as hashes only."""

from __future__ import annotations

import time

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.created_tokens import find_tokens, tokens_of
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config import auth
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import InvalidArguments, closest
from dynamic_mcp.face.auth.token_store import StoredToken, check_owner, facts_of, format_time, parse_lifetime
from dynamic_mcp.system.text import escape


def create_token(context: Invocation, subject: str, roles: tuple[str, ...], expires: str) -> None:
    """Make a token and print it. Raises DynamicMcpError."""
    try:
        subject = check_owner(subject)
    except FlawError as exc:
        raise InvalidArguments(f"`--as` {exc}") from exc
    lifetime_s = _parse_lifetime(expires)
    config = context.read_config()
    token, stored_token = tokens_of(config).create(
        subject, tuple(dict.fromkeys(roles)), lifetime_s=lifetime_s, now=time.time()
    )
    record(context, config.file, "token.created", facts_of(stored_token))
    if context.out.is_json_requested:
        context.out.print_json({**_row(stored_token), "token": token})
    else:
        context.out.print_text(token)
    until = (
        "it does not expire"
        if stored_token.expires_at is None
        else f"it expires on {format_time(stored_token.expires_at)}"
    )
    context.out.say(f"token {stored_token.id} is for `{subject}`, and is shown only now; {until}")
    for note in _find_doubts(config, roles):
        context.out.say(note)


def list_tokens(context: Invocation) -> None:
    """Print the tokens of a config. Raises DynamicMcpError."""
    tokens = find_tokens(context).load()
    now = time.time()
    context.out.print_rows(
        [_row(each) for each in tokens],
        ["ID", "FOR", "EXPIRES", "ROLES"],
        [[each.id, each.subject, _format_end(each, now), ", ".join(each.roles)] for each in tokens],
        if_none="there are no tokens yet; `dynamic-mcp token create --as NAME` makes one",
    )


def revoke_token(context: Invocation, id: str) -> None:
    """Revoke a token. Raises NotFound and DynamicMcpError."""
    file = context.config_path()
    revoked = find_tokens(context).revoke(id)
    record(context, file, "token.revoked", facts_of(revoked))
    if context.out.is_json_requested:
        context.out.print_json(_row(revoked))
    context.out.say(f"token {revoked.id} of `{revoked.subject}` is revoked, and refused from now on")


def _parse_lifetime(text: str) -> float | None:
    """Return seconds; None for `never`. Raises InvalidArguments."""
    try:
        return parse_lifetime(text)
    except FlawError as exc:
        raise InvalidArguments(f"`--expires {escape(text)}` {exc}", hint=exc.hint) from exc


def _find_doubts(config: Config, roles: tuple[str, ...]) -> list[str]:
    """Return the reasons why a token may not work as intended."""
    doubts: list[str] = []
    if config.http is None or not any(isinstance(each, auth.BearerAuth) for each in config.http.auth):
        doubts.append(
            f"`{config.file}` does not accept it yet\n"
            'hint: add `"http": { "auth": [{ "kind": "bearer" }] }` to its `settings`'
        )
    role_names = sorted(config.known_roles)
    if roles and not role_names:
        return [*doubts, "the config has no roles in `settings.access`, so roles mean nothing yet"]
    for role in roles:
        if role not in role_names:
            near = closest(role, role_names)
            guess = f"\nhint: did you mean `{near[0]}`?" if near else ""
            doubts.append(f"`settings.access` has no role `{escape(role)}`, so it allows nothing{guess}")
    return doubts


def _row(token: StoredToken) -> dict[str, object]:
    return {
        "id": token.id,
        "subject": token.subject,
        "roles": list(token.roles),
        "created_at": format_time(token.created_at),
        "expires_at": None if token.expires_at is None else format_time(token.expires_at),
    }


def _format_end(token: StoredToken, now: float) -> str:
    if token.expires_at is None:
        return "never"
    return f"{format_time(token.expires_at)}{' (has expired)' if token.has_expired(now) else ''}"
