"""The operations of a document: what a call of each takes, and where it goes in the request.

An operation that cannot be called exactly as the document says is left out, with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Literal, cast
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.openapi.document import BadReference, Document, Json, as_object
from dynamic_mcp.system.text import one_line

Place = Literal["path", "query", "header", "cookie"]
PLACES: tuple[Place, ...] = ("path", "query", "header", "cookie")

METHODS = ("get", "head", "post", "put", "patch", "delete")
_OTHER_METHODS = ("options", "trace")
NAME_LENGTH = 64
_DIGEST_LENGTH = 8
BODY = "body"
_MAX_OPERATIONS = 5000
# Of all operations together: thousands of paths can refer to the same one, with a list of thousands.
_MAX_PARTS = 500_000
_PARTS = ("parameters", "tags", "security", "responses")
_STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# OpenAPI says that the first three are described elsewhere; the others are ours. The forbidden ones would change
# where a request goes, or as whom.
_IGNORED_HEADERS = frozenset(
    (
        *("accept", "content-type", "authorization"),
        *("accept-encoding", "user-agent", "traceparent", "tracestate", "baggage"),
    )
)
_FORBIDDEN_HEADERS = frozenset(
    (
        *("connection", "content-encoding", "content-length", "cookie", "expect", "forwarded", "host", "keep-alive"),
        *("proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "via"),
        *("x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix", "x-real-ip"),
    )
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+", re.ASCII)
_FIELD = re.compile(r"\{([^{}]*)\}")
# What a path may have besides its parameters (RFC 3986, section 3.3).
_PATH_CHARACTERS = "/:@!$&'()*+,;=~%-._"
JSON_TYPE, FORM_TYPE, MULTIPART_TYPE, TEXT_TYPE = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
)


class Parameter(Struct, frozen=True):
    """A parameter, and the argument of a call that has its value. `media_type` is that of a value in JSON."""

    name: str
    place: Place
    schema: object
    style: str
    explode: bool
    required: bool = False
    description: str = ""
    argument: str = ""
    media_type: str = ""


class Body(Struct, frozen=True):
    """The body of a request, and how single members of it are written in forms."""

    media_type: str
    schema: object
    required: bool = False
    description: str = ""
    encoding: Mapping[str, Json] = {}

    @property
    def is_json(self) -> bool:
        return is_json_type(self.media_type)

    @property
    def is_binary(self) -> bool:
        return not (
            self.is_json or self.media_type in (FORM_TYPE, MULTIPART_TYPE) or self.media_type.startswith("text/")
        )


class Operation(Struct, frozen=True):
    """An operation: the tool that it is, and the request that a call makes.

    `path` is percent-encoded, but for its parameters. `security` are the alternatives of what the service wants to
    see of its caller, each the names of schemes. `headers` are those of responses that the document describes.
    """

    tool: str
    id: str
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    body: Body | None = None
    tags: tuple[str, ...] = ()
    summary: str = ""
    description: str = ""
    is_deprecated: bool = False
    security: tuple[tuple[str, ...], ...] = ()
    accepts: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The method and the path, as the document has them."""
        return f"{self.method} {self.path}"


class LeftOut(Struct, frozen=True):
    """An operation that is no tool, and the reason. If not `is_whole`, it is only a part that no call can give."""

    where: str
    why: str
    is_whole: bool = True
    id: str = ""


class SecurityScheme(Struct, frozen=True):
    """How a caller shows who it is: a key at a place, or an `Authorization` header."""

    name: str
    place: Place
    field: str
    kind: str


class Operations(Struct, frozen=True):
    """The operations of a document, what of it is left out, and its security schemes by name."""

    operations: tuple[Operation, ...]
    left_out: tuple[LeftOut, ...]
    schemes: Mapping[str, SecurityScheme]


def is_json_type(media_type: str) -> bool:
    """Return whether a media type is JSON."""
    return media_type == JSON_TYPE or media_type.endswith("+json")


def read_operations(document: Document, hidden: Iterable[tuple[Place, str]] = ()) -> Operations:
    """Return the operations of a document.

    `hidden` are the places and names of parameters that the config fills, which no call may give.
    """
    schemes = _read_schemes(document)
    secret = {(each.place, each.field) for each in schemes.values()}
    reader = _Reader(document, secret | set(hidden))
    found = [*reader.read()]
    operations, clashing = _with_unique_names(found)
    return Operations(tuple(operations), (*reader.left_out, *clashing), schemes)


def _read_schemes(document: Document) -> dict[str, SecurityScheme]:
    written = as_object(as_object(document.tree.get("components")).get("securitySchemes"))
    found: dict[str, SecurityScheme] = {}
    for name, value in written.items():
        try:
            scheme = document.resolve(value)
        except BadReference:
            continue
        kind, place = str(scheme.get("type")), scheme.get("in")
        if kind == "apiKey" and place in ("query", "header", "cookie"):
            found[name] = SecurityScheme(name, cast(Place, place), _field_name(place, str(scheme.get("name"))), kind)
        elif kind == "http":
            found[name] = SecurityScheme(name, "header", "authorization", str(scheme.get("scheme")).lower())
        else:
            found[name] = SecurityScheme(name, "header", "authorization", kind)
    return found


def _field_name(place: object, name: str) -> str:
    """Return the name of a field at a place: those of headers have no case."""
    return name.lower() if place == "header" else name


class _Refusal(Exception):
    """An operation cannot be a tool. The message is the reason."""


class _Reader:
    def __init__(self, document: Document, hidden: set[tuple[Place, str]]) -> None:
        self.left_out: list[LeftOut] = []
        self._document = document
        self._hidden = hidden
        self._parts_left = _MAX_PARTS

    def read(self) -> Iterator[Operation]:
        """Yield the operations that can be tools, in the order of the document."""
        paths = as_object(self._document.tree.get("paths"))
        for path, written in paths.items():
            try:
                item = self._document.resolve(written)
            except BadReference as exc:
                self.left_out.append(LeftOut(one_line(path, 200), str(exc)))
                continue
            for method in (*METHODS, *_OTHER_METHODS):
                if not isinstance(item.get(method), dict):
                    continue
                where = f"{method.upper()} {one_line(path, 200)}"
                try:
                    yield self._read_operation(path, method, item)
                except (BadReference, _Refusal) as exc:
                    id = str(item[method].get("operationId") or "")
                    self.left_out.append(LeftOut(where, str(exc), id=id))
                except RecursionError:
                    self.left_out.append(LeftOut(where, "it is nested too deeply"))

    def _read_operation(self, path: str, method: str, item: Json) -> Operation:
        written = self._document.resolve(item[method])  # no document should, but many do
        self._count(item, written)
        if method in _OTHER_METHODS:
            raise _Refusal(f"the method {method.upper()} is about the connection, not about the service")
        if written.get("servers") or item.get("servers"):
            raise _Refusal("it has a server of its own; only that of the whole document is called")
        where = f"{method.upper()} {one_line(path, 200)}"
        parameters = self._read_parameters(where, item, written)
        body = self._read_body(written)
        if body is not None and method in ("get", "head"):
            if body.required:
                raise _Refusal(f"it needs a body, which a {method.upper()} does not have")
            body = None
        id = str(written.get("operationId") or "")
        operation = Operation(
            tool=_tool_name(id or f"{method}{path}"),
            id=id,
            method=method.upper(),
            path=_encode_path(path, parameters),
            parameters=_with_arguments(parameters, has_body=body is not None),
            body=body,
            tags=tuple(str(each) for each in _as_list(written.get("tags"))),
            summary=str(written.get("summary") or item.get("summary") or ""),
            description=str(written.get("description") or item.get("description") or ""),
            is_deprecated=written.get("deprecated") is True,
            security=self._read_security(written),
        )
        accepts, headers = self._read_responses(written)
        return replace(operation, accepts=accepts, headers=headers)

    def _count(self, item: Json, operation: Json) -> None:
        """Raise _Refusal for an operation with which the document would have too much to read."""
        lists = [item.get("parameters"), *(operation.get(each) for each in _PARTS)]
        count = 1 + sum(len(each) for each in lists if isinstance(each, list | dict))
        if count > self._parts_left:
            raise _Refusal(f"the operations of this document have more than {_MAX_PARTS} parameters and responses")
        self._parts_left -= count

    # --- parameters ------------------------------------------------------------------------------------

    def _read_parameters(self, where: str, item: Json, operation: Json) -> list[Parameter]:
        """Return the parameters of an operation, which override those of its path."""
        found: dict[tuple[str, str], Json] = {}
        for written in (*_as_list(item.get("parameters")), *_as_list(operation.get("parameters"))):
            parameter = self._document.resolve(written)
            found[str(parameter.get("in")), str(parameter.get("name"))] = parameter
        parameters = []
        for (place, name), each in found.items():
            try:
                read = self._read_parameter(place, name, each)
            except (_Refusal, BadReference) as exc:
                if each.get("required") is True or place == "path":
                    raise _Refusal(f"its parameter `{one_line(name, 100)}` {exc}") from exc
                self.left_out.append(LeftOut(where, f"its parameter `{one_line(name, 100)}` {exc}", is_whole=False))
                continue
            if read is not None:
                parameters.append(read)
        return parameters

    def _read_parameter(self, place: str, name: str, written: Json) -> Parameter | None:
        """Return a parameter; None for one that no call gives. Raises _Refusal."""
        if place not in PLACES or not name:
            raise _Refusal(f"is in `{one_line(place, 50)}`, which is not supported")
        field = _field_name(place, name)
        if (place, field) in self._hidden or (place == "header" and field in _IGNORED_HEADERS):
            return None
        if place == "header" and (field in _FORBIDDEN_HEADERS or not _TOKEN.fullmatch(name)):
            raise _Refusal("is a header that no call may set")
        if place == "cookie" and not _TOKEN.fullmatch(name):
            raise _Refusal("has a name that no cookie can have")
        styles = _STYLES[place]
        style = str(written.get("style") or styles[0])
        schema, media_type = written.get("schema", {}), ""
        if content := as_object(written.get("content")):
            media_type, described = next(iter(content.items()))
            if not is_json_type(media_type):
                raise _Refusal(f"is written as `{one_line(media_type, 100)}`, which is not supported")
            schema = as_object(described).get("schema", {})
        elif style not in styles:
            raise _Refusal(f"has the style `{one_line(style, 50)}`, which is not one of its place")
        return Parameter(
            name=name,
            place=place,
            schema=schema,
            style=style,
            explode=bool(written.get("explode", style == "form")),
            required=written.get("required") is True or place == "path",
            description=str(written.get("description") or ""),
            media_type=media_type,
        )

    # --- bodies, responses, security -------------------------------------------------------------------

    def _read_body(self, operation: Json) -> Body | None:
        if "requestBody" not in operation:
            return None
        written = self._document.resolve(operation["requestBody"])
        content = {
            name.partition(";")[0].strip().lower(): each for name, each in as_object(written.get("content")).items()
        }
        required = written.get("required") is True
        media_type = min(content, key=_rank, default="")
        if not media_type or _rank(media_type) == _UNSUPPORTED:
            if required:
                names = ", ".join(f"`{one_line(each, 50)}`" for each in content) or "nothing"
                raise _Refusal(f"its body can only be {names}, which is not supported")
            return None
        described = self._document.resolve(content[media_type])
        encoding = {name: self._document.resolve(each) for name, each in as_object(described.get("encoding")).items()}
        return Body(
            media_type=_concrete(media_type, self._document.resolve(described.get("schema"))),
            schema=described.get("schema", {}),
            required=required,
            description=str(written.get("description") or ""),
            encoding=encoding,
        )

    def _read_responses(self, operation: Json) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the media types and the headers of the answers that are no errors."""
        accepts: dict[str, None] = {}
        headers: dict[str, None] = {}
        for status, written in as_object(operation.get("responses")).items():
            if not status.startswith("2") and status != "default":
                continue
            try:
                response = self._document.resolve(written)
            except BadReference:  # nothing is sent differently
                continue
            media_types = (name.partition(";")[0].strip() for name in as_object(response.get("content")))
            accepts.update(dict.fromkeys(name for name in media_types if _MEDIA_TYPE.fullmatch(name)))
            headers.update(dict.fromkeys(name.lower() for name in as_object(response.get("headers"))))
        return tuple(accepts), tuple(headers)

    def _read_security(self, operation: Json) -> tuple[tuple[str, ...], ...]:
        written = operation.get("security", self._document.tree.get("security"))
        return tuple(tuple(as_object(each)) for each in _as_list(written))


_ANY_TYPES = ("*/*", "application/*")
_RANKED = (JSON_TYPE, FORM_TYPE, MULTIPART_TYPE, TEXT_TYPE)
_OTHER_JSON, _OTHER_TEXT, _BYTES, _UNSUPPORTED = 1.5, 4.0, 5.0, 9.0


def _rank(media_type: str) -> float:
    """Return which media type of a body is taken first."""
    if media_type in _RANKED:
        return 1.0 + _RANKED.index(media_type)
    if is_json_type(media_type) and _MEDIA_TYPE.fullmatch(media_type):
        return _OTHER_JSON
    if media_type in _ANY_TYPES:
        return _BYTES
    if not _MEDIA_TYPE.fullmatch(media_type) or media_type.startswith("multipart/"):
        return _UNSUPPORTED
    if media_type.endswith(("/xml", "+xml")):  # a model could write it, but its schema says nothing of how
        return _UNSUPPORTED
    if media_type.startswith("text/"):
        return _OTHER_TEXT
    return _BYTES


def _concrete(media_type: str, schema: Json) -> str:
    """Return the media type that is sent where the document leaves it open: JSON for what is no text."""
    if "*" not in media_type:
        return media_type
    if media_type == "text/*":
        return TEXT_TYPE
    is_json = media_type in _ANY_TYPES and bool(schema) and schema.get("type") != "string"
    return JSON_TYPE if is_json else "application/octet-stream"


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


# --- names ----------------------------------------------------------------------------------------------------------


def _tool_name(text: str) -> str:
    """Return a name that every client accepts: letters, digits, `_` and `-`, at most 64."""
    name = re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_") or "operation"
    return name if len(name) <= NAME_LENGTH else _with_digest(name, text)


def _with_digest(name: str, text: str) -> str:
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: NAME_LENGTH - 1 - _DIGEST_LENGTH]}_{digest}"


def _with_unique_names(operations: list[Operation]) -> tuple[list[Operation], list[LeftOut]]:
    """Return the operations, where those of the same name get another one that does not depend on their order."""
    counts = Counter(each.tool for each in operations)
    found: dict[str, Operation] = {}
    left_out = []
    for number, each in enumerate(operations):
        tool = each.tool if counts[each.tool] == 1 else _with_digest(each.tool, each.where)
        if number >= _MAX_OPERATIONS:
            left_out.append(LeftOut(each.where, f"there are more than {_MAX_OPERATIONS} operations"))
        elif tool in found:
            left_out.append(LeftOut(each.where, f"its name `{tool}` is that of {found[tool].where}"))
        else:
            found[tool] = replace(each, tool=tool)
    return [*found.values()], left_out


def _with_arguments(parameters: list[Parameter], *, has_body: bool) -> tuple[Parameter, ...]:
    """Return the parameters with the names of their arguments.

    A name that parameters at several places have, or that is the body's, begins with the place: `path_id`.
    """
    names = [_argument_name(each.name) for each in parameters]
    counts = Counter(names) + Counter([BODY] * has_body)
    taken = {name for name in names if counts[name] == 1} | {BODY}
    found = []
    for name, each in zip(names, parameters, strict=True):
        if counts[name] > 1:
            name = _free_name(f"{each.place}_{name}", taken)
            taken.add(name)
        found.append(replace(each, argument=name))
    return tuple(found)


def _argument_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:NAME_LENGTH] or "argument"


def _free_name(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


# --- paths ----------------------------------------------------------------------------------------------------------


def _encode_path(path: str, parameters: Iterable[Parameter]) -> str:
    """Return a path whose fixed parts are percent-encoded. Raises _Refusal if it cannot be called."""
    names = {each.name for each in parameters if each.place == "path"}
    fields = _FIELD.findall(path)
    if missing := [name for name in fields if name not in names]:
        raise _Refusal(f"its path has `{{{one_line(missing[0], 100)}}}`, which no parameter describes")
    fixed = _FIELD.sub("x", path)
    if not path.startswith("/") or any(c in fixed for c in "?#\\") or not path.isprintable():
        raise _Refusal("its path is not one, without a query")
    if any(segment in (".", "..") for segment in re.sub(r"%2[eE]", ".", fixed).split("/")):
        raise _Refusal("its path leads upwards")
    if unused := names.difference(fields):
        raise _Refusal(f"its parameter `{one_line(min(unused), 100)}` is not in its path")
    parts = re.split(r"(\{[^{}]*\})", path)
    return "".join(part if number % 2 else quote(part, _PATH_CHARACTERS) for number, part in enumerate(parts))
