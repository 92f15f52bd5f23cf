"""The part of an entry that is about a server elsewhere: address, headers, login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from dynamic_mcp.config import values
from dynamic_mcp.importer.adapter import Field
from dynamic_mcp.importer.draft import Draft, Given, UnusableError, kind, members
from dynamic_mcp.importer.fields import OAUTH

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSUPPORTED = {
    "ws": "websockets are not supported",
    "wss": "websockets are not supported",
    "unix": "unix sockets are not supported",
    "pipe": "named pipes are not supported",
}


def remote(draft: Draft, address: Given, kind_of: str | None) -> dict[str, object]:
    """The fields of an entry that reaches a server: `kind_of` is `http`, `sse` or not known. Raises UnusableError."""
    url = _url(draft, address)
    entry: dict[str, object] = {}
    if found := kind_of or _type(draft, address, url):
        entry["type"] = found
    entry["url"] = url
    if headers := _headers(draft):
        entry["headers"] = headers
    if oauth := _oauth(draft):
        entry["oauth"] = oauth
    return entry


def _url(draft: Draft, address: Given) -> str:
    if not isinstance(address.value, str):
        raise UnusableError(address.name, f"is {kind(address.value)} and not a URL")
    scheme = address.value.strip().partition(":")[0].lower()
    if reason := _UNSUPPORTED.get(scheme):
        raise UnusableError(address.name, reason)
    url = draft.text(address.name, address.value.strip())
    if url is None:
        raise UnusableError(address.name, "is not a URL")
    if "${" not in url:
        try:
            values.check_url(url)
        except values.FlawError as exc:
            raise UnusableError(address.name, str(exc)) from exc
    return url


def _type(draft: Draft, address: Given, url: str) -> str | None:
    if address in draft.fields.get(Field.HTTP_URL, ()):
        return "http"
    if re.search(r"/sse/?$", re.split(r"[?#]", url)[0]):
        return "sse"
    return draft.context.adapter.untyped


def _headers(draft: Draft) -> dict[str, str]:
    headers: dict[str, str] = {}
    for given in draft.all(Field.HEADERS):
        for name, value in _members(draft, given).items():
            field = f"{given.name}.{name}"
            if (text := draft.text(field, value, is_header=True)) is not None:
                _set(draft, headers, field, name, text.strip())
    for given in draft.all(Field.HEADERS_FROM_ENV):
        for name, value in _members(draft, given).items():
            field = f"{given.name}.{name}"
            if isinstance(value, str) and _NAME.fullmatch(value):
                _set(draft, headers, field, name, f"${{{value}}}")
            else:
                draft.note(field, "is not a valid name of a variable and is left out")
    _authorize(draft, headers)
    return headers


def _members(draft: Draft, given: Given) -> Mapping[str, object]:
    fields = members(given.value)
    if fields is None and given.value is not None:
        draft.note(given.name, f"is {kind(given.value)} and not an object, and is left out")
    return fields or {}


def _set(draft: Draft, headers: dict[str, str], field: str, name: str, text: str) -> None:
    if not re.fullmatch(values.HEADER_NAME, name):
        draft.note(field, "is not a valid name of a header and is left out")
    elif re.search(r"[\r\n]", text):
        draft.note(field, "holds a line break and is left out")
    else:
        headers[name] = text


def _authorize(draft: Draft, headers: dict[str, str]) -> None:
    """A bearer token that has a field of its own."""
    token, field = None, ""
    if given := draft.take(Field.BEARER_FROM_ENV):
        field = given.name
        if isinstance(given.value, str) and _NAME.fullmatch(given.value):
            token = f"${{{given.value}}}"
        else:
            draft.note(field, "is not a valid name of a variable and is left out")
    elif given := draft.take(Field.BEARER):
        field, token = given.name, draft.text(given.name, given.value)
    if token is None:
        return
    if any(name.lower() == "authorization" for name in headers):
        draft.note(field, "is left out, since there is an `Authorization` header")
        return
    _set(draft, headers, field, "Authorization", f"Bearer {token.strip()}")


def _oauth(draft: Draft) -> dict[str, object]:
    oauth: dict[str, object] = {}
    for given in draft.all(
        Field.CLIENT_ID, Field.CLIENT_SECRET, Field.SCOPES, Field.REDIRECT_PORT, Field.METADATA_URL
    ):
        meaning = next(meaning for meaning, found in draft.fields.items() if given in found)
        _set_oauth(draft, oauth, given.name, meaning, given.value)
    for given in draft.all(Field.OAUTH):
        match given.value:
            case dict():
                _from_object(draft, oauth, given.name, given.value)
            case False:
                draft.note(given.name, "switches logins off, which has no counterpart here and is left out")
            case None | True | "oauth" | "bearer" | "none" | "":  # whether there is a login is found out
                pass
            case _:
                draft.note(given.name, "has no counterpart here and is left out")
    return oauth


def _from_object(draft: Draft, oauth: dict[str, object], where: str, settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        field = f"{where}.{name}"
        meaning = OAUTH.get(re.sub(r"[_-]", "", name).lower())
        if meaning is Field.TOKENS:
            draft.note(field, "is a stored login, which is never imported: log in again")
        elif meaning is None:
            draft.note(field, "has no counterpart here and is left out")
        elif meaning is not Field.SILENT:
            _set_oauth(draft, oauth, field, meaning, value)


def _set_oauth(draft: Draft, oauth: dict[str, object], field: str, meaning: Field, value: object) -> None:
    if value in (None, "", []):
        return
    match meaning:
        case Field.CLIENT_ID | Field.CLIENT_SECRET:
            key = "client_id" if meaning is Field.CLIENT_ID else "client_secret"
            if (text := draft.text(field, value)) is not None:
                oauth.setdefault(key, text)
        case Field.SCOPES:
            _set_scopes(draft, oauth, field, value)
        case Field.REDIRECT_PORT:
            _set_port(draft, oauth, field, value)
        case Field.METADATA_URL:
            url = draft.text(field, value)
            if url and ("${" in url or _is_url(url)):
                oauth.setdefault("metadata_url", url)
            else:
                draft.note(field, "is not a URL, and is left out")


def _set_scopes(draft: Draft, oauth: dict[str, object], field: str, value: object) -> None:
    words = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
    if not isinstance(words, list):
        draft.note(field, f"is {kind(value)} and not a list, and is left out")
        return
    texts = [draft.text(f"{field}[{i}]", word) for i, word in enumerate(words)]
    if scopes := [text for text in texts if text]:
        oauth.setdefault("scopes", scopes)


def _set_port(draft: Draft, oauth: dict[str, object], field: str, value: object) -> None:
    port: object = value
    if isinstance(value, str):
        port = _port_of(value)
        if "://" in value and port:
            draft.note(field, "becomes the port to come back to; the path of it is ours")
    if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536:
        oauth.setdefault("redirect_port", port)
    else:
        draft.note(field, "is not a local port to come back to, and is left out")


def _port_of(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 6:
        return int(text)
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return parts.port if parts.hostname in ("localhost", "127.0.0.1", "::1") else None
    except ValueError:
        return None


def _is_url(text: str) -> bool:
    try:
        return bool(values.check_url(text))
    except values.FlawError:
        return False
