"""Results of calls, from the responses of a service."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.openapi.operations import is_json_type

_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_TEXTS = frozenset(
    (
        *(
            "application/xml",
            "application/javascript",
            "application/yaml",
            "application/x-yaml",
            "application/graphql",
        ),
        *("application/x-www-form-urlencoded", "application/x-ndjson", "application/sql", "application/toml"),
    )
)
# What tells a model how to go on: to the next page, to what was made, or later.
_USEFUL = ("link", "location", "content-location", "content-range", "retry-after", "x-next-page", "x-total-count")
# What is about the connection, or could be a credential.
_NEVER_SHOWN = frozenset(
    ("connection", "content-length", "content-encoding", "date", "server", "set-cookie", "transfer-encoding")
)
# Python has more encodings, and takes hours for a long text in some of them, such as `punycode`.
_CHARSET = re.compile(r"(us-)?ascii|big5|cp\d|euc|gb|hz|iso|johab|koi8|latin|mac|ms9|shift|s-?jis|tis|utf|windows")
_LONGEST_HEADER = 2000
_LONGEST_ERROR = 8000


class HttpResponse(Struct, frozen=True):
    """A response whose body was read; `url` is that of the request, without its query."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def text(self) -> str:
        """Return the body as a text, whatever it is."""
        _, _, charset = self.headers.get("content-type", "").lower().partition("charset=")
        charset = charset.partition(";")[0].strip(" \"'")
        try:
            return self.body.decode(charset if _CHARSET.match(charset) else "utf-8", "replace")
        except (LookupError, ValueError):
            return self.body.decode("utf-8", "replace")


def make_result(response: HttpResponse, described: Iterable[str] = ()) -> dict[str, object]:
    """Return the result of a call that the service has answered; `described` are headers that its document names."""
    if not response.is_success:
        return make_error(response)
    result = _make_content(response)
    headers = _show_headers(response.headers, (*_USEFUL, *described))
    if headers:
        content = result["content"]
        assert isinstance(content, list)
        content.append(make_text(headers))
    return result


def make_error(response: HttpResponse) -> dict[str, object]:
    """Return the result of a call that the service has refused."""
    text = response.text() if _is_text(response) else ""
    text = text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"
    headers = _show_headers(response.headers, ("location", "retry-after"))
    return refusal("\n".join(filter(None, (status_line(response.status), text.strip(), headers))))


def refusal(why: str) -> dict[str, object]:
    """Return the result of a call that has failed."""
    return {"content": [make_text(why)], "isError": True}


def make_text(text: str) -> dict[str, str]:
    """Return a part of a result."""
    return {"type": "text", "text": text}


def status_line(status: int) -> str:
    """Return a status and its name: `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _make_content(response: HttpResponse) -> dict[str, object]:
    kind = response.media_type
    if not response.body:
        return {"content": [make_text(status_line(response.status))]}
    if is_json_type(kind):
        structured = {"structuredContent": _on_one_line(response.body)} if _is_object(response.body) else {}
        return {"content": [make_text(response.text())], **structured}
    if _is_text(response):
        return {"content": [make_text(response.text())]}
    data = b64encode(response.body).decode()
    if kind in _IMAGES or kind.startswith("audio/"):
        return {"content": [{"type": kind.partition("/")[0], "data": data, "mimeType": kind}]}
    resource = {"uri": response.url, "mimeType": kind or "application/octet-stream", "blob": data}
    return {"content": [{"type": "resource", "resource": resource}]}


def _is_text(response: HttpResponse) -> bool:
    kind = response.media_type
    if kind.startswith("text/") or kind in _TEXTS or is_json_type(kind) or kind.endswith("+xml"):
        return True
    if kind:
        return False
    try:
        response.body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in response.body


def _is_object(body: bytes) -> bool:
    """Return whether a body is a JSON object, which a result can have as it is."""
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except (ValueError, RecursionError):  # what cannot be read here may be unreadable to clients, too
        return False


def _on_one_line(body: bytes) -> Raw:
    """Return JSON as a message can have it; a line break in it is only white space."""
    return Raw(body.replace(b"\n", b" ").replace(b"\r", b" "))


def _show_headers(headers: Mapping[str, str], names: Iterable[str]) -> str:
    shown = [name for name in dict.fromkeys(names) if name in headers and name not in _NEVER_SHOWN]
    return "\n".join(f"{name}: {headers[name][:_LONGEST_HEADER]}" for name in shown)
