"""Writes the body of a request: JSON, forms, texts and bytes."""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from collections.abc import Iterator

from msgspec import Raw, Struct

from dynamic_mcp.openapi.document import Json
from dynamic_mcp.openapi.operations import BODY, FORM_TYPE, MULTIPART_TYPE, Body, Parameter, is_json_type
from dynamic_mcp.upstream.openapi import styles
from dynamic_mcp.upstream.openapi.styles import refuse


class EncodedBody(Struct, frozen=True):
    """The bytes of a body, and its content type."""

    content_type: str
    data: bytes


def write_body(body: Body, raw: Raw, binary: frozenset[str]) -> EncodedBody:
    """Return a body. `binary` are the members of a form that are bytes. Raises UnsendableArguments."""
    if body.is_json:
        return EncodedBody(body.media_type, bytes(raw))
    try:
        value = styles.decode(bytes(raw))
    except (ValueError, RecursionError):
        refuse(BODY, "cannot be read")
    if body.media_type == FORM_TYPE:
        return EncodedBody(FORM_TYPE, _write_form(body, value))
    if body.media_type == MULTIPART_TYPE:
        boundary = secrets.token_hex(16)
        return EncodedBody(f"{MULTIPART_TYPE}; boundary={boundary}", _write_multipart(body, value, binary, boundary))
    if not isinstance(value, str) or isinstance(value, styles.JsonNumber):
        refuse(BODY, "must be a text")
    if body.is_binary:
        return EncodedBody(body.media_type, _read_base64(value))
    return EncodedBody(f"{body.media_type}; charset=utf-8", styles.write_scalar(BODY, value).encode())


def _read_base64(text: object) -> bytes:
    try:
        if not isinstance(text, str):
            raise TypeError
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        refuse(BODY, "must have its bytes as base64")


def _members(value: object) -> Json:
    if not isinstance(value, dict):
        refuse(BODY, "must be an object")
    return {name: each for name, each in value.items() if each is not None}


def _write_form(body: Body, value: object) -> bytes:
    """Return a form (OpenAPI 3.1, "Support for x-www-form-urlencoded Request Bodies")."""
    pairs = [pair for name, each in _members(value).items() for pair in _write_field(body, name, each)]
    return "&".join(map("=".join, pairs)).encode()


def _write_field(body: Body, name: str, value: object) -> styles.Pairs:
    encoding = body.encoding.get(name, {})
    has_style = any(key in encoding for key in ("style", "explode", "allowReserved"))
    is_nested = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    )
    if is_nested and not has_style:
        return [(styles.encode(name), styles.encode(styles.write_json(value)))]
    style = str(encoding.get("style") or "form")
    field = Parameter(name, "query", {}, style, bool(encoding.get("explode", style == "form")), argument=BODY)
    return styles.write_query(field, value, names=frozenset())


def _write_multipart(body: Body, value: object, binary: frozenset[str], boundary: str) -> bytes:
    """Return parts (RFC 7578), one for each member, or each item of one that is a list."""
    parts = []
    for name, each in _members(value).items():
        for headers, data in _parts(body, name, each, is_binary=name in binary):
            if boundary.encode() in data:
                refuse(BODY, "cannot be divided into parts; try again")
            head = "\r\n".join([f"--{boundary}", *headers])
            parts += [head.encode(), b"\r\n\r\n", data, b"\r\n"]
    return b"".join((*parts, f"--{boundary}--\r\n".encode()))


def _parts(body: Body, name: str, value: object, *, is_binary: bool) -> Iterator[tuple[list[str], bytes]]:
    content_type = str(body.encoding.get(name, {}).get("contentType") or "").partition(",")[0].strip()
    items = value if isinstance(value, list) and not is_json_type(content_type) else [value]
    for item in items:
        quoted = _quote_name(name)
        if is_binary:
            kind = content_type if _is_plain(content_type) else "application/octet-stream"
            disposition = f'Content-Disposition: form-data; name="{quoted}"; filename="{quoted}"'
            yield [disposition, f"Content-Type: {kind}"], _read_base64(item)
        elif isinstance(item, dict | list) or is_json_type(content_type):
            kind = content_type if is_json_type(content_type) and _is_plain(content_type) else "application/json"
            yield [_disposition(quoted), f"Content-Type: {kind}"], styles.write_json(item).encode()
        else:
            types = [f"Content-Type: {content_type}"] if content_type and _is_plain(content_type) else []
            yield [_disposition(quoted), *types], styles.write_scalar(BODY, item).encode()


def _disposition(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


def _is_plain(content_type: str) -> bool:
    return content_type.isascii() and content_type.isprintable() and "*" not in content_type and content_type != ""


def _quote_name(name: str) -> str:
    """Return the name of a part as browsers write it (HTML, "multipart/form-data")."""
    styles.write_scalar(BODY, name)
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
