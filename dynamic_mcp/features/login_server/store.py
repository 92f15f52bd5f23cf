"""Stores clients, their documents, and requests in progress. Every function is part of a transaction."""

from __future__ import annotations

import secrets
import sqlite3
from hashlib import sha256
from typing import TypeVar

import msgspec

from dynamic_mcp.features.login_server.clients import OAuthClient
from dynamic_mcp.system.decoding import decode_as

T = TypeVar("T")

MAX_CLIENTS = 10_000
MAX_DOCUMENTS = 1_000
MAX_REQUESTS = 10_000
# Clients without a login are deleted sooner: others keep using their id, and do not register again.
UNUSED_S = 30 * 24 * 3600.0
FORGOTTEN_S = 400 * 24 * 3600.0
REQUEST_S = 600.0


def hash_of(secret: str) -> str:
    """Return the hash that is stored for a secret."""
    return sha256(secret.encode()).hexdigest()


# --- clients -------------------------------------------------------------------------------------------


def add_client(connection: sqlite3.Connection, client: OAuthClient, now: float) -> None:
    """Store a new client; at the limit, the oldest unused one is deleted."""
    connection.execute(
        "DELETE FROM clients WHERE used < CASE has_logged_in WHEN 0 THEN ? ELSE ? END",
        (now - UNUSED_S, now - FORGOTTEN_S),
    )
    (count,) = connection.execute("SELECT count(*) FROM clients").fetchone()
    if count >= MAX_CLIENTS:
        connection.execute(
            "DELETE FROM clients WHERE id IN (SELECT id FROM clients ORDER BY has_logged_in, used LIMIT ?)",
            (count - MAX_CLIENTS + 1,),
        )
    connection.execute(
        "INSERT INTO clients (id, data, used) VALUES (?, ?, ?)", (client.id, msgspec.json.encode(client), now)
    )


def find_client(connection: sqlite3.Connection, id: str) -> OAuthClient | None:
    """Return a registered client."""
    row = connection.execute("SELECT data FROM clients WHERE id = ?", (id,)).fetchone()
    return None if row is None else decode_as(row[0], OAuthClient)


def touch_client(connection: sqlite3.Connection, id: str, now: float) -> None:
    """Record a login with a client, so that it is not deleted."""
    connection.execute("UPDATE clients SET used = ?, has_logged_in = 1 WHERE id = ?", (now, id))


# --- documents -----------------------------------------------------------------------------------------


def keep_document(connection: sqlite3.Connection, client: OAuthClient, until: float, now: float) -> None:
    """Cache the client that a document describes."""
    connection.execute("DELETE FROM documents WHERE until < ?", (now,))
    (count,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    if count >= MAX_DOCUMENTS:
        connection.execute("DELETE FROM documents WHERE url IN (SELECT url FROM documents ORDER BY until LIMIT 1)")
    row = (client.id, msgspec.json.encode(client), until)
    connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", row)


def find_document(connection: sqlite3.Connection, url: str, now: float) -> OAuthClient | None:
    """Return the client of a cached document."""
    row = connection.execute("SELECT data FROM documents WHERE url = ? AND until > ?", (url, now)).fetchone()
    return None if row is None else decode_as(row[0], OAuthClient)


# --- requests in progress ------------------------------------------------------------------------------


def add_request(
    connection: sqlite3.Connection, pending: msgspec.Struct, now: float, *, secret: str | None = None
) -> str:
    """Store a request for ten minutes, and return the secret that finds it, which may be given."""
    connection.execute("DELETE FROM requests WHERE until < ?", (now,))
    (count,) = connection.execute("SELECT count(*) FROM requests").fetchone()
    if count >= MAX_REQUESTS:
        connection.execute("DELETE FROM requests WHERE id IN (SELECT id FROM requests ORDER BY until LIMIT 1)")
    secret = secret or secrets.token_urlsafe(32)
    row = (_key(secret, type(pending)), msgspec.json.encode(pending), now + REQUEST_S)
    connection.execute("INSERT INTO requests VALUES (?, ?, ?)", row)
    return secret


def find_request(connection: sqlite3.Connection, secret: str, kind: type[T], now: float) -> T | None:
    """Return a request of this kind that is in progress."""
    row = connection.execute(
        "SELECT data FROM requests WHERE id = ? AND until > ?", (_key(secret, kind), now)
    ).fetchone()
    return None if row is None else decode_as(row[0], kind)


def end_request(connection: sqlite3.Connection, secret: str, kind: type) -> None:
    """Delete a request: each is decided once."""
    connection.execute("DELETE FROM requests WHERE id = ?", (_key(secret, kind),))


def _key(secret: str, kind: type) -> str:
    return f"{kind.__name__}:{hash_of(secret)}"
