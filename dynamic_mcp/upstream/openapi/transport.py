"""An MCP server made of an HTTP service: it reads the document of the service, and makes a request for each call.

Imports httpx2: load this in a thread, with the first such server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from msgspec.structs import replace

from dynamic_mcp.config.openapi import make_selection
from dynamic_mcp.config.resolved import ApiDocument, GroupConfig, Remote
from dynamic_mcp.errors import INVALID_PARAMS, DynamicMcpError, HttpError, LoginNeeded, ProtocolViolation, Unreachable
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.authorization import ServerCredentials
from dynamic_mcp.observe.log_output import STDERR, group_logger
from dynamic_mcp.openapi.document import MAX_BYTES, Json, is_same_origin, is_url
from dynamic_mcp.openapi.service import ApiService, BadService, read_service, shown_location
from dynamic_mcp.openapi.tools import binary_members
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason, pluralize
from dynamic_mcp.upstream.endpoint import MAX_REDIRECTS, Headers, HttpEndpoint
from dynamic_mcp.upstream.endpoint import is_same_origin as is_same_place
from dynamic_mcp.upstream.mask import mask_secrets
from dynamic_mcp.upstream.openapi.patterns import without_bad_patterns
from dynamic_mcp.upstream.openapi.request import CallForm, HttpRequest, build_request, open_members
from dynamic_mcp.upstream.openapi.result import HttpResponse, make_result, refusal
from dynamic_mcp.upstream.openapi.styles import UnsendableArguments, encode
from dynamic_mcp.upstream.own_transport import OwnTransport

log = logging.getLogger(__name__)
stderr_log = logging.getLogger(STDERR)

_DOCUMENT_TYPES = b"application/json, application/yaml;q=0.9, */*;q=0.8"
_FOLLOWED = frozenset((301, 302, 303))
_READING = frozenset(("GET", "HEAD"))
# A body is in a result up to three times: as a text, as structured content, and escaped.
_BODY_SHARE = 4


class ApiTransport(OwnTransport):
    """Answers the requests of one link with requests to the service."""

    def __init__(
        self, config: GroupConfig, remote: Remote, api: ApiDocument, authorization: ServerCredentials | None
    ) -> None:
        super().__init__(config.name, log)
        self._stderr_logger = group_logger(stderr_log, config.name)
        self._config = config
        self._remote = remote
        self._api = api
        self._authorization = authorization
        self._body_limit = config.max_message_bytes // _BODY_SHARE
        self._query = "&".join(f"{encode(name)}={encode(value)}" for name, value in remote.query.items())
        self._service: ApiService
        self._tools: list[Json] = []
        self._mask_query: Callable[[str], str] = str
        self._endpoint: HttpEndpoint | None = None
        self._forms: dict[str, CallForm] = {}

    async def start(self) -> None:
        """Read the document. Raises Unreachable, LoginNeeded and other errors of HTTP."""
        try:
            async with asyncio.timeout(self._config.timeouts.connect_s):
                data = await self._read_document()
        except TimeoutError as exc:
            raise Unreachable(
                self.group, f"the document `{shown_location(self._api.location)}` was not read in time"
            ) from exc
        try:
            self._service = await asyncio.to_thread(read_service, data, make_selection(self._remote, self._api))
        except BadService as exc:
            raise Unreachable(self.group, str(exc), hint=exc.hint, final=not is_url(self._api.location)) from exc
        self._tools = await asyncio.to_thread(lambda: [*map(without_bad_patterns, self._service.tools)])
        self._log_service()
        endpoint = self._endpoint = self._create_endpoint(replace(self._remote, url=self._base_url()))
        values = self._remote.query.values()
        self._mask_query = mask_secrets(encode(value) for value in values if endpoint.mask(value) != value)

    def _base_url(self) -> str:
        """Return the URL of the service, with the name and the password in that of the document, if there are any."""
        url = self._service.base_url
        user, at, _ = urlsplit(self._remote.url).netloc.rpartition("@")
        if not at or "@" in urlsplit(url).netloc or not is_same_origin(url, self._remote.url):
            return url
        parts = urlsplit(url)
        return parts._replace(netloc=f"{user}@{parts.netloc}").geturl()

    def _log_service(self) -> None:
        """Write what becomes of the document where `doctor` and `logs` show what servers say."""
        service = self._service
        unfilled = (
            f"the config does not set {what}, which {pluralize(len(tools), 'tool')} may need"
            for what, tools in service.find_unfilled().items()
        )
        for line in (service.summarize(), *service.list_reasons(), *unfilled):
            self._stderr_logger.debug("group %s on stderr: %s", self.group, line)

    async def close(self) -> None:
        await super().close()
        if self._endpoint is not None:
            await self._endpoint.close()

    # --- the document ----------------------------------------------------------------------------------

    async def _read_document(self) -> bytes:
        location = self._api.location
        if not is_url(location):
            try:
                return await asyncio.to_thread(read_bytes, Path(location), most=MAX_BYTES)
            except OSError as exc:
                raise Unreachable(self.group, f"`{location}` cannot be read: {os_reason(exc)}") from exc
        source = self._source_of_document()
        endpoint = self._create_endpoint(source)
        try:
            headers: Headers = ((b"accept", _DOCUMENT_TYPES), *_cookie_header(source, ()))
            async with _follow(endpoint, "GET", headers, url=endpoint.url) as response:
                if response.status_code != 200:
                    raise await endpoint.status_error(response)
                return await endpoint.read_body(response, MAX_BYTES)
        except ProtocolViolation as exc:
            why = f"the document `{shown_location(location)}` cannot be read, or has more than {MAX_BYTES >> 20} MiB"
            raise Unreachable(self.group, why) from exc
        finally:
            await endpoint.close()

    def _source_of_document(self) -> Remote:
        """Return where the document is. The credentials of the service go there only if it is the service itself."""
        if is_same_origin(self._api.location, self._remote.url):
            return replace(self._remote, url=self._api.location)
        return Remote(kind=None, url=self._api.location, headers={}, api=ApiDocument(self._api.location))

    def _create_endpoint(self, remote: Remote) -> HttpEndpoint:
        uses_login = remote.api is not None and remote.api.has_login
        headers = {name: value for name, value in remote.headers.items() if name.lower() != "cookie"}
        return HttpEndpoint(
            self.group,
            replace(remote, headers=headers),  # there is one cookie header, with the cookies of a call, too
            connect_s=0.9 * self._config.timeouts.connect_s,
            authorization=self._authorization if uses_login else None,
            keeps_cookies=False,
        )

    # --- answers ---------------------------------------------------------------------------------------

    async def _handle(self, frame: Frame) -> Frame | None:
        match frame.method:
            case "tools/list":
                return wire.result_frame({"tools": self._tools})
            case "tools/call":
                return await self._call(frame)
        return None

    def _introduce(self) -> Mapping[str, object]:
        document = self._service.document
        return {
            "capabilities": {"tools": {}},
            "serverInfo": {"name": document.title or self.group, "version": self._service.version},
            **({"instructions": words} if (words := document.description or document.title) else {}),
        }

    async def _call(self, frame: Frame) -> Frame:
        name = wire.text(wire.member(frame.params, "name")) or ""
        if name not in self._service.operations:
            return wire.error_frame(INVALID_PARAMS, f"unknown tool: `{name[:100]}`")
        raw = wire.member(frame.params, "arguments")
        try:
            arguments = wire.members(raw) if len(raw) else {}
            if wire.find_duplicate_name(raw, is_flat=True) is not None:
                raise UnsendableArguments("an argument is there twice")
        except (wire.Malformed, UnsendableArguments) as exc:
            return wire.error_frame(INVALID_PARAMS, f"`arguments` must be an object: {exc}")
        try:
            form = self._form(name)
            request = build_request(form, arguments)
        except UnsendableArguments as exc:
            return wire.result_frame(refusal(f"{exc}; nothing was sent"))
        try:
            response = await self._send(request, form, bytes(frame.id))
        except LoginNeeded:
            raise
        except DynamicMcpError as exc:
            return wire.result_frame(refusal(str(exc)))
        return wire.result_frame(make_result(response, form.operation.headers))

    def _form(self, name: str) -> CallForm:
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = make_call_form(self._service, name)
        return form

    # --- requests --------------------------------------------------------------------------------------

    async def _send(self, request: HttpRequest, form: CallForm, id: bytes) -> HttpResponse:
        endpoint = self._endpoint
        assert endpoint is not None, "it has started"
        url = endpoint.url.copy_with(raw_path=_target(endpoint.url, request.target, self._query))
        headers = self._headers(request, form)
        body = request.body.data if request.body is not None else b""
        # what changes something is not sent again, not even if the service asks for it
        left_s = (lambda: self.left_s(id)) if request.method in _READING else (lambda: 0.0)
        async with _follow(endpoint, request.method, headers, body=body, url=url, left_s=left_s) as response:
            if not 200 <= response.status_code < 300:
                beginning = (await endpoint.read_beginning(response)).decode("utf-8", "replace")
                content = self._mask(endpoint, beginning).encode()
            else:
                content = await self._read_body(endpoint, response)
            headers_shown = {
                name: self._mask(endpoint, value) for name, value in _join_headers(response.headers).items()
            }
            shown_url = self._mask(endpoint, str(url.copy_with(query=None, userinfo=b"")))
            return HttpResponse(response.status_code, headers_shown, content, shown_url)

    def _mask(self, endpoint: HttpEndpoint, text: str) -> str:
        """Return a text without the secrets of the config: links to other pages often repeat the whole query."""
        return self._mask_query(endpoint.mask(text))

    async def _read_body(self, endpoint: HttpEndpoint, response: httpx2.Response) -> bytes:
        try:
            return await endpoint.read_body(response, self._body_limit)
        except ProtocolViolation as exc:
            why = f"`{endpoint.host}` answered with more than {self._body_limit} bytes"
            raise HttpError(self.group, why, status=response.status_code, hint="ask for less at once") from exc

    def _headers(self, request: HttpRequest, form: CallForm) -> Headers:
        own = {name.lower(): value for name, value in self._remote.headers.items()}
        accept = own.get("accept") or ", ".join((*form.operation.accepts, "application/json;q=0.9", "*/*;q=0.8"))
        found = [("accept", accept), *request.headers]
        if request.body is not None:
            found.append(("content-type", request.body.content_type))
        encoded = tuple((name.encode(), value.encode()) for name, value in found)
        return (*encoded, *_cookie_header(self._remote, request.cookies))


def make_call_form(service: ApiService, name: str) -> CallForm:
    """Return what is needed to make the requests of an operation."""
    operation = service.operations[name]
    body = operation.body
    forms_members = [each for each in operation.parameters if each.place in ("query", "cookie") and each.explode]
    return CallForm(
        operation=operation,
        members={each.argument: open_members(service.document, each.schema) for each in forms_members},
        taken=frozenset(
            (
                *((each.place, each.name) for each in operation.parameters),
                *((scheme.place, scheme.field) for scheme in service.schemes.values()),
                *service.hidden,
            )
        ),
        binary=frozenset() if body is None else binary_members(service.document, body.schema),
        may_have_slashes=name in service.with_slashes,
    )


def _target(base: httpx2.URL, target: str, query: str) -> bytes:
    """Return the path and the query of a request, below the path of the service."""
    path = base.raw_path.partition(b"?")[0].rstrip(b"/") + target.encode()
    if query:
        path += (b"&" if b"?" in path else b"?") + query.encode()
    return path


def _cookie_header(remote: Remote, cookies: Iterable[tuple[str, str]]) -> Headers:
    """Return the header with the cookies of the config and of a call."""
    own = (value.strip(" ;") for name, value in remote.headers.items() if name.lower() == "cookie")
    text = "; ".join(filter(None, (*own, *map("=".join, cookies))))
    return ((b"cookie", text.encode()),) if text else ()


def _join_headers(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): ", ".join(headers.get_list(name)) for name in headers}


@asynccontextmanager
async def _follow(
    endpoint: HttpEndpoint,
    method: str,
    headers: Headers,
    *,
    url: httpx2.URL,
    body: bytes = b"",
    left_s: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[httpx2.Response]:
    """Send a request, and follow redirects of what only reads, within the origin."""
    for _ in range(MAX_REDIRECTS):
        async with endpoint.exchange(method, headers, body, url=url, left_s=left_s) as response:
            target = _redirect(url, response) if method in _READING else None
            if target is None:
                yield response
                return
            await endpoint.read_beginning(response)
        url = target
    async with endpoint.exchange(method, headers, body, url=url, left_s=left_s) as response:
        yield response


def _redirect(url: httpx2.URL, response: httpx2.Response) -> httpx2.URL | None:
    """Return where a redirect leads; None if there is none, or it leads to another origin."""
    if response.status_code not in _FOLLOWED:
        return None
    try:
        target = url.join(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        return None
    return target if is_same_place(target, url) else None
