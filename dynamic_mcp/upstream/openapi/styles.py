"""Writes values of parameters as their styles say (OpenAPI 3.1, "Style Values").

Every character of a value that could end it is percent-encoded or refused, so a value stays where its parameter is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import quote, unquote

from dynamic_mcp.openapi.operations import Parameter

# What some servers decode before they look at the path, perhaps twice.
MOST_DECODINGS = 4
_MOST_LEVELS = 20
_CONTROLS = frozenset(map(chr, (*range(32), 127)))
_DELIMITERS: Mapping[str, str] = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_LITERAL: Mapping[str, str] = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

Pairs = list[tuple[str, str]]


class UnsendableArguments(ValueError):
    """Nothing is sent with these arguments; the message is for the model that chose them."""


class JsonNumber(str):
    """A number of JSON, with all its digits."""

    __slots__ = ()


def decode(data: bytes) -> object:
    """Return a value of JSON, with numbers as they are written. Raises ValueError and RecursionError."""
    return json.loads(data, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is no JSON")


def refuse(argument: str, why: str) -> NoReturn:
    """Raise UnsendableArguments about an argument."""
    raise UnsendableArguments(f"`{argument}` {why}")


def write_scalar(argument: str, value: object) -> str:
    """Return the text of a value that has no parts. Raises UnsendableArguments."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():  # a JsonNumber, too
            try:
                value.encode()
            except UnicodeEncodeError:
                refuse(argument, "is not valid Unicode")
            return str(value)
    refuse(argument, "must be a text, a number, or true or false")


def encode(text: str) -> str:
    """Return a text in which only letters, digits, `-`, `.`, `_` and `~` stand for themselves."""
    return quote(text, safe="")


def write_json(value: object) -> str:
    """Return JSON, with numbers as they were written."""
    match value:
        case JsonNumber():
            return str(value)
        case dict():
            return "{" + ",".join(f"{write_json(str(name))}:{write_json(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(write_json, value)) + "]"
    return json.dumps(value)


# --- paths ----------------------------------------------------------------------------------------------------------


def write_path(parameter: Parameter, value: object, *, may_have_slashes: bool) -> str:
    """Return what replaces a parameter in a path. Raises UnsendableArguments."""

    def text(part: object) -> str:
        return encode(_check_path_part(parameter.argument, part, may_have_slashes=may_have_slashes))

    if parameter.media_type:
        value = write_json(value)
    name, prefix, explode = (
        encode(parameter.name),
        {"label": ".", "matrix": ";"}.get(parameter.style, ""),
        parameter.explode,
    )
    is_matrix = parameter.style == "matrix"
    between = prefix if explode and prefix else ","
    match value:
        case list() if value:
            parts = [text(each) for each in value]
            if is_matrix:
                return ";" + (
                    ";".join(f"{name}={part}" for part in parts) if explode else f"{name}={','.join(parts)}"
                )
            return prefix + between.join(parts)
        case dict() if value:
            pairs = [(text(key), text(each)) for key, each in value.items()]
            if explode:
                return prefix + between.join(f"{key}={each}" for key, each in pairs)
            flat = ",".join(part for pair in pairs for part in pair)
            return f";{name}={flat}" if is_matrix else prefix + flat
        case list() | dict() | None:
            refuse(parameter.argument, "must not be empty: it is a part of the path")
    return f";{name}={text(value)}" if is_matrix else prefix + text(value)


def _check_path_part(argument: str, value: object, *, may_have_slashes: bool) -> str:
    text = write_scalar(argument, value)
    if not text:
        refuse(argument, "must not be empty: it is a part of the path")
    decoded = text
    for _ in range(MOST_DECODINGS):
        if _CONTROLS.intersection(decoded):
            refuse(argument, "must not have control characters")
        segments = decoded.replace("\\", "/").split("/")
        if any(each in (".", "..") for each in segments):
            refuse(argument, "must not be `.` or `..`, nor have such a part: it would lead to another path")
        if len(segments) > 1 and not may_have_slashes:
            refuse(argument, "must not have `/` or `\\`: it would lead to another path (see `slashes` in the config)")
        if "" in segments:
            refuse(argument, "must not have an empty part between `/`")
        decoded = unquote(decoded)
    return text


# --- queries, cookies, headers ----------------------------------------------------------------------------------


def write_query(parameter: Parameter, value: object, *, names: frozenset[str] | None) -> Pairs:
    """Return the encoded names and values of a parameter in a query, a form or cookies. Raises UnsendableArguments.

    `names` are the members that an object whose members become parameters of their own may have; None is any.
    """
    argument, name = parameter.argument, encode(parameter.name)
    if parameter.media_type:
        return [(name, encode(write_json(value)))]
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return _write_deep(argument, name, value, 0)
    match value:
        case list():
            return _write_list(parameter, name, [write_scalar(argument, each) for each in value])
        case dict():
            members = [(key, write_scalar(argument, each)) for key, each in value.items() if each is not None]
            if not parameter.explode:
                return _write_list(parameter, name, [part for pair in members for part in pair])
            for key, _ in members:
                if not key or (names is not None and key not in names):
                    refuse(argument, f"must not have the member `{key[:100]}`")
            return [(encode(key), encode(each)) for key, each in members]
    return [(name, encode(write_scalar(argument, value)))]


def _write_list(parameter: Parameter, name: str, items: list[str]) -> Pairs:
    if parameter.explode:
        return [(name, encode(each)) for each in items]
    if not items:
        return []
    style = parameter.style if parameter.style in _DELIMITERS else "form"
    if style != "form" and any(_LITERAL[style] in each for each in items):
        refuse(parameter.argument, f"must not have `{_LITERAL[style]}` in an item: it separates them")
    return [(name, _DELIMITERS[style].join(map(encode, items)))]


def _write_deep(argument: str, name: str, value: object, depth: int) -> Pairs:
    """Return `name[key]=value` for each member or item, at any depth; items are numbered."""
    if depth > _MOST_LEVELS:
        refuse(argument, "is nested too deeply")
    match value:
        case None:
            return []
        case dict() | list():
            members = value if isinstance(value, dict) else {str(number): each for number, each in enumerate(value)}
            pairs = []
            for key, each in members.items():
                if not key or "[" in key or "]" in key:
                    refuse(argument, "must not have members without a name, or with `[` or `]` in it")
                pairs += _write_deep(argument, f"{name}%5B{encode(key)}%5D", each, depth + 1)
            return pairs
    return [(name, encode(write_scalar(argument, value)))]


def write_header(parameter: Parameter, value: object) -> str:
    """Return the value of a header. Raises UnsendableArguments."""
    argument = parameter.argument
    if parameter.media_type:
        return _check_header(argument, write_json(value))
    match value:
        case list():
            return ",".join(_check_header_part(argument, each) for each in value)
        case dict():
            pairs = [
                (_check_header_part(argument, key), _check_header_part(argument, each)) for key, each in value.items()
            ]
            return ",".join(f"{key}={each}" if parameter.explode else f"{key},{each}" for key, each in pairs)
    return _check_header(argument, write_scalar(argument, value))


def _check_header_part(argument: str, value: object) -> str:
    text = _check_header(argument, write_scalar(argument, value))
    if "," in text:
        refuse(argument, "must not have `,` in an item: it separates them")
    return text


def _check_header(argument: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        refuse(argument, "must have printable ASCII characters only: it is a header")
    if text != text.strip():
        refuse(argument, "must not begin or end with a space: it is a header")
    return text
