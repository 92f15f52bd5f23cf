"""The fields of a remote server: address, headers, login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from dynamic_mcp.config import types
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.importer.adapter import Meaning
from dynamic_mcp.importer.convert.draft import FieldValue, ServerDraft, UnusableError, describe_kind, parse_members
from dynamic_mcp.importer.convert.fields import OAUTH

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSUPPORTED = {
    "ws": "WebSockets are not supported",
    "wss": "WebSockets are not supported",
    "unix": "Unix sockets are not supported",
    "pipe": "named pipes are not supported",
}


def convert_remote(draft: ServerDraft, address: FieldValue, kind_of: str | None) -> dict[str, object]:
    """Return the fields of a remote entry; `kind_of` is `http`, `sse` or None. Raises UnusableError."""
    url = _convert_url(draft, address)
    entry: dict[str, object] = {}
    if found := kind_of or _guess_type(draft, address, url):
        entry["type"] = found
    entry["url"] = url
    if headers := _convert_headers(draft):
        entry["headers"] = headers
    if oauth := _convert_oauth(draft):
        entry["oauth"] = oauth
    return entry


def _convert_url(draft: ServerDraft, address: FieldValue) -> str:
    if not isinstance(address.value, str):
        raise UnusableError(address.name, f"is {describe_kind(address.value)}, not a URL")
    scheme = address.value.strip().partition(":")[0].lower()
    if reason := _UNSUPPORTED.get(scheme):
        raise UnusableError(address.name, reason)
    url = draft.convert_text(address.name, address.value.strip())
    if url is None:
        raise UnusableError(address.name, "is not a URL")
    if "${" not in url:
        try:
            types.check_url(url)
        except FlawError as exc:
            raise UnusableError(address.name, str(exc)) from exc
    return url


def _guess_type(draft: ServerDraft, address: FieldValue, url: str) -> str | None:
    if address in draft.fields.get(Meaning.HTTP_URL, ()):
        return "http"
    if re.search(r"/sse/?$", re.split(r"[?#]", url)[0]):
        return "sse"
    return draft.context.adapter.untyped


def _convert_headers(draft: ServerDraft) -> dict[str, str]:
    headers: dict[str, str] = {}
    for original in draft.find_all(Meaning.HEADERS):
        for name, value in _read_members(draft, original).items():
            field = f"{original.name}.{name}"
            if (text := draft.convert_text(field, value, is_header=True)) is not None:
                _set_header(draft, headers, field, name, text.strip())
    for original in draft.find_all(Meaning.HEADERS_FROM_ENV):
        for name, value in _read_members(draft, original).items():
            field = f"{original.name}.{name}"
            if isinstance(value, str) and _NAME.fullmatch(value):
                _set_header(draft, headers, field, name, f"${{{value}}}")
            else:
                draft.note(field, "is not a valid variable name and is left out")
    _authorize(draft, headers)
    return headers


def _read_members(draft: ServerDraft, original: FieldValue) -> Mapping[str, object]:
    fields = parse_members(original.value)
    if fields is None and original.value is not None:
        draft.note(original.name, f"is {describe_kind(original.value)}, not an object, and is left out")
    return fields or {}


def _set_header(draft: ServerDraft, headers: dict[str, str], field: str, name: str, text: str) -> None:
    if not re.fullmatch(types.HEADER_NAME, name):
        draft.note(field, "is not a valid header name and is left out")
    elif re.search(r"[\r\n]", text):
        draft.note(field, "contains a line break and is left out")
    else:
        headers[name] = text


def _authorize(draft: ServerDraft, headers: dict[str, str]) -> None:
    """Add the `Authorization` header for a bearer token in a separate field."""
    token, field = None, ""
    if original := draft.choose(Meaning.BEARER_FROM_ENV):
        field = original.name
        if isinstance(original.value, str) and _NAME.fullmatch(original.value):
            token = f"${{{original.value}}}"
        else:
            draft.note(field, "is not a valid variable name and is left out")
    elif original := draft.choose(Meaning.BEARER):
        field, token = original.name, draft.convert_text(original.name, original.value)
    if token is None:
        return
    if any(name.lower() == "authorization" for name in headers):
        draft.note(field, "is left out: there already is an `Authorization` header")
        return
    _set_header(draft, headers, field, "Authorization", f"Bearer {token.strip()}")


def _convert_oauth(draft: ServerDraft) -> dict[str, object]:
    oauth: dict[str, object] = {}
    for original in draft.find_all(
        Meaning.CLIENT_ID, Meaning.CLIENT_SECRET, Meaning.SCOPES, Meaning.REDIRECT_PORT, Meaning.METADATA_URL
    ):
        meaning = next(meaning for meaning, found in draft.fields.items() if original in found)
        _set_oauth(draft, oauth, original.name, meaning, original.value)
    for original in draft.find_all(Meaning.OAUTH):
        match original.value:
            case dict():
                _add_oauth_object(draft, oauth, original.name, original.value)
            case False:
                draft.note(original.name, "disables logins; it has no counterpart here and is left out")
            case None | True | "oauth" | "bearer" | "none" | "":  # the need for a login is detected at run time
                pass
            case _:
                draft.note(original.name, "has no counterpart here and is left out")
    return oauth


def _add_oauth_object(
    draft: ServerDraft, oauth: dict[str, object], where: str, settings: Mapping[str, object]
) -> None:
    for name, value in settings.items():
        field = f"{where}.{name}"
        meaning = OAUTH.get(re.sub(r"[_-]", "", name).lower())
        if meaning is Meaning.TOKENS:
            draft.note(field, "is a stored login; logins are never imported, so log in again")
        elif meaning is None:
            draft.note(field, "has no counterpart here and is left out")
        elif meaning is not Meaning.SILENT:
            _set_oauth(draft, oauth, field, meaning, value)


def _set_oauth(draft: ServerDraft, oauth: dict[str, object], field: str, meaning: Meaning, value: object) -> None:
    if value in (None, "", []):
        return
    match meaning:
        case Meaning.CLIENT_ID | Meaning.CLIENT_SECRET:
            key = "client_id" if meaning is Meaning.CLIENT_ID else "client_secret"
            if (text := draft.convert_text(field, value)) is not None:
                oauth.setdefault(key, text)
        case Meaning.SCOPES:
            _set_scopes(draft, oauth, field, value)
        case Meaning.REDIRECT_PORT:
            _set_port(draft, oauth, field, value)
        case Meaning.METADATA_URL:
            url = draft.convert_text(field, value)
            if url and ("${" in url or _is_url(url)):
                oauth.setdefault("metadata_url", url)
            else:
                draft.note(field, "is not a URL and is left out")


def _set_scopes(draft: ServerDraft, oauth: dict[str, object], field: str, value: object) -> None:
    words = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
    if not isinstance(words, list):
        draft.note(field, f"is {describe_kind(value)}, not a list, and is left out")
        return
    texts = [draft.convert_text(f"{field}[{i}]", word) for i, word in enumerate(words)]
    if scopes := [text for text in texts if text]:
        oauth.setdefault("scopes", scopes)


def _set_port(draft: ServerDraft, oauth: dict[str, object], field: str, value: object) -> None:
    port: object = value
    if isinstance(value, str):
        port = _parse_port(value)
        if "://" in value and port:
            draft.note(field, "becomes the port of the login callback; the path cannot be chosen")
    if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536:
        oauth.setdefault("redirect_port", port)
    else:
        draft.note(field, "is not a local callback port and is left out")


def _parse_port(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 6:
        return int(text)
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return parts.port if parts.hostname in ("localhost", "127.0.0.1", "::1") else None
    except ValueError:
        return None


def _is_url(text: str) -> bool:
    try:
        return bool(types.check_url(text))
    except FlawError:
        return False
