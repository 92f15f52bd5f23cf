"""The `token` command: tokens of HTTP clients, stored as hashes only."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.created_tokens import find_tokens, tokens_of
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config import auth
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import InvalidArguments, closest
from dynamic_mcp.face.auth.token_store import StoredToken
from dynamic_mcp.system.text import escape

_DAY_S = 24 * 3600.0
_DAYS = re.compile(r"([0-9]{1,6})\s*d")
_LONGEST_S = 100 * 365 * _DAY_S
_LONGEST_NAME = 200


def create_token(context: Invocation, subject: str, roles: tuple[str, ...], expires: str) -> None:
    """Make a token and print it. Raises DynamicMcpError."""
    subject = subject.strip()
    if not 0 < len(subject) <= _LONGEST_NAME or not subject.isprintable():
        raise InvalidArguments(f"`--as` needs a name of 1 to {_LONGEST_NAME} printable characters")
    lifetime_s = _parse_lifetime(expires)
    config = context.read_config()
    token, stored_token = tokens_of(config).create(
        subject, tuple(dict.fromkeys(roles)), lifetime_s=lifetime_s, now=time.time()
    )
    record(context, config.file, "token.created", _facts(stored_token))
    if context.out.is_json_requested:
        context.out.print_json({**_row(stored_token), "token": token})
    else:
        context.out.print_text(token)
    until = (
        "it does not expire"
        if stored_token.expires_at is None
        else f"it expires on {_format_time(stored_token.expires_at)}"
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
    record(context, file, "token.revoked", _facts(revoked))
    if context.out.is_json_requested:
        context.out.print_json(_row(revoked))
    context.out.say(f"token {revoked.id} of `{revoked.subject}` is revoked, and refused from now on")


def _parse_lifetime(text: str) -> float | None:
    """Return seconds; None for `never`. Raises InvalidArguments."""
    if text.strip() == "never":
        return None
    days = _DAYS.fullmatch(text.strip())
    try:
        seconds = int(days[1]) * _DAY_S if days else parse_seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"`--expires {escape(text)}` {exc}", hint="write `30d`, `12h` or `never`") from exc
    if not 1 <= seconds <= _LONGEST_S:
        raise InvalidArguments(f"`--expires {escape(text)}` is not from a second to 100 years", hint="or `never`")
    return seconds


def _find_doubts(config: Config, roles: tuple[str, ...]) -> list[str]:
    """Return the reasons why a token may not work as intended."""
    doubts: list[str] = []
    if config.http is None or not any(isinstance(each, auth.BearerAuth) for each in config.http.auth):
        doubts.append(
            f"`{config.file}` does not accept it yet\n"
            'hint: add `"http": { "auth": [{ "kind": "bearer" }] }` to its `settings`'
        )
    if config.access is None:
        return [*doubts, "the config has no `settings.access`, so roles mean nothing yet"] if roles else doubts
    role_names = list(config.access.roles)
    for role in roles:
        if role not in role_names:
            near = closest(role, role_names)
            guess = f"\nhint: did you mean `{near[0]}`?" if near else ""
            doubts.append(f"`settings.access` has no role `{escape(role)}`, so it allows nothing{guess}")
    return doubts


def _facts(token: StoredToken) -> dict[str, object]:
    """Return the fields of a token for the audit log; its `id` is not part of the secret."""
    row = _row(token)
    return {"id": row["id"], "for": row["subject"], "roles": row["roles"], "expires_at": row["expires_at"]}


def _row(token: StoredToken) -> dict[str, object]:
    return {
        "id": token.id,
        "subject": token.subject,
        "roles": list(token.roles),
        "created_at": _format_time(token.created_at),
        "expires_at": None if token.expires_at is None else _format_time(token.expires_at),
    }


def _format_end(token: StoredToken, now: float) -> str:
    if token.expires_at is None:
        return "never"
    return f"{_format_time(token.expires_at)}{' (has expired)' if token.has_expired(now) else ''}"


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
