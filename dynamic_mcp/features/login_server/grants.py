"""Authorization codes and logins. A login is a family of refresh tokens, of which only the newest is valid.

A code is valid once, and a refresh token until its successor was issued (RFC 9700, sections 2.1.1 and 4.14). Reuse
means theft: the whole login is revoked. Every function is part of a transaction.

The database never has a token: it has the hash of the newest refresh token, and an answer that may be repeated is
sealed with the refresh token that it answers.
"""

from __future__ import annotations

import hmac
import secrets
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from typing import ClassVar

import msgspec
from msgspec import Struct

from dynamic_mcp.config.section import Private
from dynamic_mcp.features.login_server import sealing
from dynamic_mcp.features.login_server.records import AccessGrant
from dynamic_mcp.features.login_server.store import hash_of
from dynamic_mcp.system.decoding import decode_as

CODE_S = 60.0
# How long an answer is repeated, for a client that did not receive it, or that has two processes.
GRACE_S = 30.0
MAX_CODES = 10_000
MAX_FAMILIES = 100_000
MAX_PER_OWNER = 100
# A login ends after this many times the lifetime of an unused one: its claims may be outdated.
MAX_LIFETIMES = 3
# At least the lifetime of any access token, including those of an earlier version of the config.
_REVOKED_S = 7 * 24 * 3600.0
# How long a used code is stored, to detect its reuse.
REMEMBERED_S = 3600.0

# Creates the answer with new tokens for a login and its newest refresh token.
Issue = Callable[[sqlite3.Connection, "Family", str | None], bytes]


class GrantError(Struct, frozen=True):
    """The reason why no tokens are issued. `was_reused`: the login was revoked, because of a reused code or token."""

    why: str
    was_reused: bool = False
    is_client_unknown: bool = False


class Family(Struct, frozen=True):
    """A login, by its id, and its grant."""

    id: str
    grant: AccessGrant


class Lifetimes(Struct, frozen=True):
    """The lifetimes of access tokens and of unused logins."""

    access_s: float
    refresh_s: float


def add_code(connection: sqlite3.Connection, grant: AccessGrant, now: float) -> str:
    """Return a new code for a grant."""
    connection.execute("DELETE FROM codes WHERE until < ?", (now - REMEMBERED_S,))
    (count,) = connection.execute("SELECT count(*) FROM codes").fetchone()
    if count >= MAX_CODES:
        connection.execute("DELETE FROM codes WHERE id IN (SELECT id FROM codes ORDER BY until LIMIT 1)")
    code = secrets.token_urlsafe(32)
    row = (hash_of(code), msgspec.json.encode(grant), now + CODE_S)
    connection.execute("INSERT INTO codes (id, data, until) VALUES (?, ?, ?)", row)
    return code


def redeem_code(
    connection: sqlite3.Connection, code: str, client_id: str, lifetimes: Lifetimes, now: float, issue: Issue
) -> bytes | GrantError:
    """Start the login for a code, and return the answer with its first tokens."""
    key = hash_of(code)
    row = connection.execute("SELECT data, until, family FROM codes WHERE id = ?", (key,)).fetchone()
    if row is None:
        return GrantError("unknown code")
    data, until, used_by = row
    grant = decode_as(data, AccessGrant)
    if grant.client_id != client_id:
        return GrantError("the code was issued to another client")
    if used_by is not None:
        revoke(connection, used_by, lifetimes, now)
        return GrantError("the code was already used: its login is revoked", was_reused=True)
    if until <= now:
        return GrantError("the code has expired")
    family = Family(secrets.token_urlsafe(16), grant)
    connection.execute("UPDATE codes SET family = ? WHERE id = ?", (family.id, key))
    secret = secrets.token_bytes(32)
    token = new_token(family.id, secret, 1) if grant.may_refresh else None
    _add_family(connection, family, secret, token, lifetimes, now)
    return issue(connection, family, token)


def spend_code(connection: sqlite3.Connection, code: str) -> None:
    """Invalidate a code whose sender cannot prove that it is theirs."""
    connection.execute("UPDATE codes SET until = 0 WHERE id = ?", (hash_of(code),))


def find_code(connection: sqlite3.Connection, code: str, client_id: str) -> AccessGrant | None:
    """Return the grant of a client's code, valid or not."""
    row = connection.execute("SELECT data FROM codes WHERE id = ?", (hash_of(code),)).fetchone()
    grant = None if row is None else decode_as(row[0], AccessGrant)
    return grant if grant is not None and grant.client_id == client_id else None


def refresh(
    connection: sqlite3.Connection, token: str, client_id: str, lifetimes: Lifetimes, now: float, issue: Issue
) -> bytes | GrantError:
    """Return the answer with new tokens, or repeat the last one, which a client may not have received."""
    login = _find(connection, token)
    if login is None:
        return GrantError("unknown refresh token")
    row, number = login
    if row.grant.client_id != client_id:
        return GrantError("the refresh token was issued to another client")
    if row.until <= now:
        return GrantError("the login has expired")
    if number == row.number - 1 and now <= row.renewed + GRACE_S and row.answer is not None:
        answer = sealing.open_sealed(row.answer, token)
        if answer is not None:
            return answer
    if number != row.number or not hmac.compare_digest(hash_of(token), row.newest):
        revoke(connection, row.id, lifetimes, now)
        return GrantError("the refresh token was already used: the login is revoked", was_reused=True)
    forget_answers(connection, now)
    successor = new_token(row.id, row.secret, number + 1)
    answer = issue(connection, Family(row.id, row.grant), successor)
    until = min(now + lifetimes.refresh_s, row.created + MAX_LIFETIMES * lifetimes.refresh_s)
    connection.execute(
        "UPDATE families SET number = ?, newest = ?, renewed = ?, until = ?, answer = ? WHERE id = ?",
        (number + 1, hash_of(successor), now, until, sealing.seal(answer, token), row.id),
    )
    return answer


def forget_answers(connection: sqlite3.Connection, now: float) -> bool:
    """Delete answers that are not repeated any more; return whether there are others."""
    connection.execute("UPDATE families SET answer = NULL WHERE answer IS NOT NULL AND renewed < ?", (now - GRACE_S,))
    return connection.execute("SELECT 1 FROM families WHERE answer IS NOT NULL LIMIT 1").fetchone() is not None


def find_family(connection: sqlite3.Connection, token: str) -> Family | None:
    """Return the login of a refresh token, newest or not."""
    login = _find(connection, token)
    return None if login is None else Family(login[0].id, login[0].grant)


def revoke(connection: sqlite3.Connection, family: str, lifetimes: Lifetimes, now: float) -> None:
    """End a login, and invalidate its access tokens."""
    connection.execute("DELETE FROM families WHERE id = ?", (family,))
    connection.execute("DELETE FROM revoked WHERE until < ?", (now,))
    until = now + max(lifetimes.access_s, _REVOKED_S)
    connection.execute("INSERT OR REPLACE INTO revoked VALUES (?, ?)", (family, until))


def revoked(connection: sqlite3.Connection, now: float) -> frozenset[str]:
    """Return the revoked logins whose access tokens may not have expired yet."""
    return frozenset(id for (id,) in connection.execute("SELECT family FROM revoked WHERE until > ?", (now,)))


class _LoginRow(Private, frozen=True):
    """A stored login; `number` and the hash `newest` are those of its newest refresh token."""

    shown: ClassVar = ("id", "number")
    id: str
    grant: AccessGrant
    secret: bytes
    number: int
    newest: str
    created: float
    renewed: float
    until: float
    answer: bytes | None


def _find(connection: sqlite3.Connection, token: str) -> tuple[_LoginRow, int] | None:
    """Return the login and the number of a refresh token that we have issued."""
    parsed = RefreshToken.parse(token)
    if parsed is None:
        return None
    row = connection.execute(
        "SELECT id, data, secret, number, newest, made, renewed, until, answer FROM families WHERE id = ?",
        (parsed.family,),
    ).fetchone()
    if row is None:
        return None
    login = _LoginRow(row[0], decode_as(row[1], AccessGrant), *row[2:])
    return (login, parsed.number) if parsed.is_signed_with(login.secret) else None


def _add_family(
    connection: sqlite3.Connection,
    family: Family,
    secret: bytes,
    token: str | None,
    lifetimes: Lifetimes,
    now: float,
) -> None:
    grant = family.grant
    connection.execute("DELETE FROM families WHERE until < ?", (now,))
    owner = (grant.client_id, grant.user.subject)
    connection.execute(
        "DELETE FROM families WHERE id IN (SELECT id FROM families WHERE client = ? AND subject = ?"
        " ORDER BY renewed DESC LIMIT -1 OFFSET ?)",
        (*owner, MAX_PER_OWNER - 1),
    )
    (count,) = connection.execute("SELECT count(*) FROM families").fetchone()
    if count >= MAX_FAMILIES:
        connection.execute("DELETE FROM families WHERE id IN (SELECT id FROM families ORDER BY renewed LIMIT 1)")
    until = now + (lifetimes.refresh_s if grant.may_refresh else lifetimes.access_s)
    newest = "" if token is None else hash_of(token)
    row = (family.id, *owner, msgspec.json.encode(grant), secret, 1, newest, now, now, until, None)
    connection.execute("INSERT INTO families VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def new_token(family: str, secret: bytes, number: int) -> str:
    """Return a new refresh token of a login.

    Its random part is not in the database; its number and its MAC tell an old token from a forged one.
    """
    body = f"{family}.{number}.{secrets.token_urlsafe(32)}"
    return f"{body}.{_mac(body, secret)}"


class RefreshToken(Private, frozen=True):
    """The parts of a refresh token: its login, its number, and what is signed by which MAC."""

    shown: ClassVar = ("family", "number")
    family: str
    number: int
    body: str
    mac: str

    @staticmethod
    def parse(token: str) -> RefreshToken | None:
        """Return the parts of a token, whoever has made it; None if it has another form."""
        body, _, mac = token.rpartition(".")
        family, _, rest = body.partition(".")
        number = rest.partition(".")[0]
        if not number.isdecimal() or len(number) > 9:
            return None
        return RefreshToken(family, int(number), body, mac)

    def is_signed_with(self, secret: bytes) -> bool:
        """Return whether we have made it, with the secret of its login."""
        return hmac.compare_digest(self.mac.encode(), _mac(self.body, secret).encode())


def _mac(body: str, secret: bytes) -> str:
    return hmac.new(secret, body.encode(), sha256).hexdigest()
