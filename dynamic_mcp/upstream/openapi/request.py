"""Makes the HTTP request of a call. No argument reaches a place that its schema does not name.

The method, the server, the fixed parts of the path and the names of all fields come from the document and the config;
a call gives values only, each of which is written so that it cannot end where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.openapi.document import Document, as_object
from dynamic_mcp.openapi.operations import BODY, Operation, Parameter
from dynamic_mcp.upstream.openapi import styles
from dynamic_mcp.upstream.openapi.body import EncodedBody, write_body
from dynamic_mcp.upstream.openapi.styles import Pairs, UnsendableArguments, refuse

MAX_TARGET_BYTES = 64_000
_COMBINING = ("allOf", "anyOf", "oneOf")
_FIELD = re.compile(r"\{([^{}]*)\}")


class HttpRequest(Struct, frozen=True):
    """A request. `target` is the path and the query below the server's own path, percent-encoded."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[tuple[str, str], ...] = ()
    body: EncodedBody | None = None


class CallForm(Struct, frozen=True):
    """What is needed to make the requests of one operation.

    `members` are, for each argument that is an object whose members become fields of their own, the names that they
    may have; None is any. None of them may be that of another field, which are `taken`. `binary` are members of a
    form that are bytes.
    """

    operation: Operation
    members: Mapping[str, frozenset[str] | None] = {}
    taken: frozenset[tuple[str, str]] = frozenset()
    binary: frozenset[str] = frozenset()
    may_have_slashes: bool = False


def build_request(form: CallForm, arguments: Mapping[str, Raw]) -> HttpRequest:
    """Return the request of a call. Raises UnsendableArguments."""
    try:
        return _build(form, arguments)
    except RecursionError:  # writing goes deeper than reading
        raise UnsendableArguments("the arguments are nested too deeply") from None


def _build(form: CallForm, arguments: Mapping[str, Raw]) -> HttpRequest:
    operation = form.operation
    values = _read_arguments(operation, arguments)
    by_place: dict[str, list[tuple[Parameter, object]]] = {"path": [], "query": [], "header": [], "cookie": []}
    for parameter in operation.parameters:
        if parameter.argument in values:
            by_place[parameter.place].append((parameter, values[parameter.argument]))
    query = [pair for parameter, value in by_place["query"] for pair in _write_pairs(form, parameter, value)]
    target = _write_path(form, by_place["path"]) + ("?" + "&".join(map("=".join, query)) if query else "")
    if len(target) > MAX_TARGET_BYTES:
        raise UnsendableArguments(f"the arguments make an address of more than {MAX_TARGET_BYTES} bytes")
    return HttpRequest(
        method=operation.method,
        target=target,
        headers=tuple(
            (parameter.name, styles.write_header(parameter, value)) for parameter, value in by_place["header"]
        ),
        cookies=tuple(pair for each, value in by_place["cookie"] for pair in _write_pairs(form, each, value)),
        body=_write_body(form, arguments.get(BODY)),
    )


def _read_arguments(operation: Operation, arguments: Mapping[str, Raw]) -> dict[str, object]:
    """Return the values of parameters; null is none. Raises UnsendableArguments."""
    parameters = {each.argument: each for each in operation.parameters}
    values: dict[str, object] = {}
    for name, raw in arguments.items():
        if name == BODY and operation.body is not None:
            continue
        if name not in parameters:
            raise UnsendableArguments(f"there is no argument `{name[:100]}`")
        try:
            value = styles.decode(bytes(raw))
        except (ValueError, RecursionError):
            refuse(name, "cannot be read")
        if value is not None:
            values[name] = value
    for name, each in parameters.items():
        if each.required and name not in values:
            refuse(name, "is missing")
    return values


def _write_path(form: CallForm, given: Iterable[tuple[Parameter, object]]) -> str:
    texts = {
        each.name: styles.write_path(each, value, may_have_slashes=form.may_have_slashes) for each, value in given
    }
    path = _FIELD.sub(lambda match: texts[match[1]], form.operation.path)
    _check_whole_path(path, _FIELD.sub("x", form.operation.path), may_have_slashes=form.may_have_slashes)
    return path


def _check_whole_path(path: str, plain: str, *, may_have_slashes: bool) -> None:
    """Check a path whose segments may be made of several values; `plain` has letters for these."""
    for _ in range(styles.MOST_DECODINGS):
        path, plain = unquote(path).replace("\\", "/"), unquote(plain)
        has_more = not may_have_slashes and path.count("/") != plain.count("/")
        if has_more or any(segment in (".", "..") for segment in path.split("/")):
            raise UnsendableArguments("the arguments make the path of something else together")


def _write_pairs(form: CallForm, parameter: Parameter, value: object) -> Pairs:
    names = form.members.get(parameter.argument, frozenset())
    pairs = styles.write_query(parameter, value, names=names)
    if parameter.explode and parameter.style != "deepObject" and isinstance(value, dict):
        for name in value:
            if (parameter.place, name) in form.taken:
                refuse(parameter.argument, f"must not have the member `{name[:100]}`, which is another parameter")
    if parameter.place == "cookie" and isinstance(value, dict):
        for name, _ in pairs:
            if "%" in name:
                refuse(parameter.argument, "must have members whose names cookies can have")
    return pairs


def _write_body(form: CallForm, raw: Raw | None) -> EncodedBody | None:
    body = form.operation.body
    if body is None:
        return None
    if raw is None:
        if body.required:
            refuse(BODY, "is missing")
        return None
    if wire.find_duplicate_name(raw) is not None:
        refuse(BODY, "must not have a member twice")
    return write_body(body, raw, form.binary)


def open_members(document: Document, schema: object, seen: set[int] | None = None) -> frozenset[str] | None:
    """Return the names that the members of an object may have; None if any. Raises BadReference.

    `seen` are the ids of schemas whose members are counted: a few can refer to each other in billions of ways.
    """
    found = document.resolve(schema)
    seen = set() if seen is None else seen
    if id(found) in seen:
        return frozenset()
    seen.add(id(found))
    rest = found.get("additionalProperties")
    if rest is True or isinstance(rest, dict):
        return None
    names = set(as_object(found.get("properties")))
    parts = [part for key in _COMBINING if isinstance(each := found.get(key), list) for part in each]
    for part in parts:
        inner = open_members(document, part, seen)
        if inner is None:
            return None
        names |= inner
    return None if not names and not parts and rest is not False else frozenset(names)
