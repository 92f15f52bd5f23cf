"""The server of conformance_modern.py without its transports.

It answers each message from the message alone, after it has checked it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from . import conformance_offers, modern_offers, modern_tasks, modern_tools
    from .modern_headers import check_headers, check_version_header
    from .modern_request import (
        INVALID_PARAMS,
        INVALID_REQUEST,
        META,
        METHOD_NOT_FOUND,
        PARSE_ERROR,
        SERVER_INFO,
        VERSION,
        Json,
        NeedsInput,
        Refusal,
        Request,
        check_message,
        check_meta,
        check_version,
    )
else:  # started by its path, as an upstream is
    import conformance_offers
    import modern_offers
    import modern_tasks
    import modern_tools
    from modern_headers import check_headers, check_version_header
    from modern_request import (
        INVALID_PARAMS,
        INVALID_REQUEST,
        META,
        METHOD_NOT_FOUND,
        PARSE_ERROR,
        SERVER_INFO,
        VERSION,
        Json,
        NeedsInput,
        Refusal,
        Request,
        check_message,
        check_meta,
        check_version,
    )

__all__ = ["ModernServer", "read_message"]

LIST_TTL_MS = 60_000
_FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class Listen:
    """One `subscriptions/listen`, while it is open."""

    def __init__(self, request: Request, wanted: dict[str, Json]) -> None:
        self.wanted = wanted
        self.tag = {f"{META}subscriptionId": request.id}
        self.has_ended = asyncio.Event()
        self._request = request

    def notify(self, method: str, params: Json) -> None:
        self._request.notify(method, {**params, "_meta": self.tag})


class ModernServer:
    """What answers requests; only lists, tasks and open listens outlive them, and these belong to all clients."""

    def __init__(self) -> None:
        self.listens: list[Listen] = []
        self.in_flight: list[Request] = []
        self.cancelled: set[str] = set()
        self._added: dict[str, list[Json]] = {kind: [] for kind in _FILTERS}
        self._has_extra = dict.fromkeys(_FILTERS, False)
        self._tasks = modern_tasks.Tasks(self._tell_of_task)
        self._handlers: dict[str, Callable[[Request], Awaitable[Json]]] = {
            "server/discover": self._discover,
            "tools/list": self._list("tools", "tools", modern_offers.TOOLS),
            "prompts/list": self._list("prompts", "prompts", conformance_offers.PROMPTS),
            "resources/list": self._list("resources", "resources", modern_offers.RESOURCES),
            "resources/templates/list": self._list("", "resourceTemplates", conformance_offers.TEMPLATES),
            "tools/call": self._call,
            "prompts/get": modern_offers.get_prompt,
            "resources/read": modern_offers.read_resource,
            "completion/complete": modern_offers.complete,
            "subscriptions/listen": self._listen,
            "tasks/get": self._tasks.get,
            "tasks/update": self._tasks.update,
            "tasks/cancel": self._tasks.cancel,
        }

    async def answer(
        self,
        message: Json,
        send: Callable[[Json], None],
        *,
        open_stream: Callable[[], None] = lambda: None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Json]:
        """Return the answer to a request and its HTTP status; `headers` are those that it came with over HTTP."""
        try:
            self._check(message, headers)
            request = Request(message["id"], message["method"], message["params"], send, open_stream)
            self.in_flight.append(request)
            try:
                result = await self._handlers[request.method](request)
            finally:
                self.in_flight.remove(request)
        except Refusal as refusal:
            return refusal.status, self._response(message, error=refusal.error)
        except NeedsInput as needs:
            result = needs.result
        except (KeyError, TypeError, AttributeError) as error:
            wrong = {"code": INVALID_PARAMS, "message": f"the params are not what they should be: {error!r}"}
            return 200, self._response(message, error=wrong)
        meta = {f"{META}serverInfo": SERVER_INFO, **result.get("_meta", {})}
        return 200, self._response(message, result={"resultType": "complete", **result, "_meta": meta})

    def end_listens(self) -> None:
        """End all open listens well."""
        for listen in self.listens:
            listen.has_ended.set()

    def close(self) -> None:
        """End the tasks that still work."""
        self._tasks.close()

    def toggle(self, kind: str) -> None:
        """Add an entry to a list, or take it away again, and tell who listens."""
        self._has_extra[kind] = not self._has_extra[kind]
        self._tell_of_change(kind)

    def add_prompt(self, name: str) -> None:
        """Add a prompt, and tell who listens."""
        self._added["prompts"].append({"name": name})
        self._tell_of_change("prompts")

    def _tell_of_change(self, kind: str) -> None:
        for listen in self.listens:
            if listen.wanted.get(_FILTERS[kind]):
                listen.notify(f"notifications/{kind}/list_changed", {})

    def update(self, uri: str) -> None:
        """Tell who listens that a resource has changed."""
        for listen in self.listens:
            if uri in listen.wanted.get("resourceSubscriptions", ()):
                listen.notify("notifications/resources/updated", {"uri": uri})

    def _check(self, message: Json, headers: dict[str, str] | None) -> None:
        check_message(message)
        if "id" not in message:
            raise Refusal(INVALID_REQUEST, "there is no such notification")
        if headers is not None:
            check_version_header(headers, message)
        check_meta(message)
        if headers is not None:
            check_headers(headers, message, modern_offers.TOOLS)
        check_version(message)
        if message["method"] not in self._handlers:
            raise Refusal(METHOD_NOT_FOUND, f"there is no method {message['method']}")

    def _response(self, message: Json, **members: Json) -> Json:
        id = message.get("id") if isinstance(message, dict) else None
        has_id = isinstance(id, str | int) and not isinstance(id, bool)
        return {"jsonrpc": "2.0", **({"id": id} if has_id else {}), **members}

    # --- methods ---------------------------------------------------------------------------------------

    async def _discover(self, _request: Request) -> Json:
        about = {"supportedVersions": [VERSION], "capabilities": modern_offers.CAPABILITIES}
        return {**about, "instructions": "A server for tests.", "ttlMs": 3_600_000, "cacheScope": "public"}

    def _list(self, kind: str, member: str, entries: list[Json]) -> Callable[[Request], Awaitable[Json]]:
        async def list_entries(request: Request) -> Json:
            if request.params.get("cursor") is not None:
                raise Refusal(INVALID_PARAMS, "there is one page only")
            extra = [conformance_offers.EXTRA[kind]] if self._has_extra.get(kind) else []
            return {
                member: [*entries, *extra, *self._added.get(kind, ())],
                "ttlMs": LIST_TTL_MS,
                "cacheScope": "public",
            }

        return list_entries

    async def _call(self, request: Request) -> Json:
        name = request.params["name"]
        if name in conformance_offers.CONTENT:
            return {"content": conformance_offers.CONTENT[name]}
        if name in modern_tasks.TOOLS:
            return await self._tasks.call(request)
        if name not in modern_tools.TOOLS:
            raise Refusal(INVALID_PARAMS, f"there is no tool {name}")
        return await modern_tools.TOOLS[name](request, self)

    # --- listens ---------------------------------------------------------------------------------------

    async def _listen(self, request: Request) -> Json:
        wanted = {name: value for name, value in request.params["notifications"].items() if value}
        if "taskIds" in wanted and not request.has_extension(modern_tasks.EXTENSION):
            raise modern_tasks.needs_extension()
        known = {*_FILTERS.values(), "resourceSubscriptions", "taskIds"}
        listen = Listen(request, {name: value for name, value in wanted.items() if name in known})
        request.open_stream()
        listen.notify("notifications/subscriptions/acknowledged", {"notifications": listen.wanted})
        self.listens.append(listen)
        try:
            await listen.has_ended.wait()
        finally:
            self.listens.remove(listen)
        return {"_meta": listen.tag}

    def _tell_of_task(self, task: modern_tasks.Task) -> None:
        for listen in self.listens:
            if task.id in listen.wanted.get("taskIds", ()):
                listen.notify("notifications/tasks", task.details())


def read_message(data: bytes) -> Json:
    """Return what a body or a line says."""
    try:
        return json.loads(data)
    except ValueError:
        raise Refusal(PARSE_ERROR, "not JSON") from None
