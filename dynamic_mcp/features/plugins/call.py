"""One call at one plug-in: implements its `next`, and handles its failures and timeouts.

Only the plug-in's own steps are timed: its clock stops while the later steps run. Whatever the plug-in does, the
server gets the call at most once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Raw, structs

from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, DynamicMcpError, InvalidArguments, PluginError
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.features.plugins.opened import OpenPlugin, describe
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RETRY_MEMBERS, StateRefused
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.middleware import CallerInfo, CallFailed, CallKind, CallRequest, CallResult
from dynamic_mcp.proxy.misfits import must_fit
from dynamic_mcp.proxy.request import Next, Restart, UpstreamRequest

log = logging.getLogger(__name__)

# The requests that pass plug-ins, with the operation that a plug-in sees.
KINDS: dict[str, CallKind] = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}


class PluginCall:
    """A call in the hands of a plug-in."""

    def __init__(
        self,
        opened: OpenPlugin,
        settings: Plugin,
        caller: CallerInfo,
        message: UpstreamRequest,
        following: Next,
        restart: Restart,
    ) -> None:
        self._opened = opened
        self._settings = settings
        self._message = message
        self._following = following
        self._restart = restart
        self._request = _describe(message, caller)
        self._loop = asyncio.get_running_loop()
        self._late: asyncio.Future[None] = self._loop.create_future()  # it timed out
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._next: asyncio.Task[Any] | None = None  # the task that called `next`
        self._has_next_ended = asyncio.Event()
        self._answer: Frame | None = None
        self._result: CallResult | None = None
        self._error: BaseException | None = None
        self._raised: BaseException | None = None

    async def run(self) -> Frame:
        """Return the plug-in's answer. Raises PluginError, and errors of later steps that the plug-in lets pass."""
        try:
            return await self._run()
        except PluginError as exc:
            if exc is self._error:  # from a later plug-in
                raise
            what = self._message.label or self._message.method
            log.error("%s: %s", what, exc.message, exc_info=exc.__cause__)  # noqa: TRY400 - of what it has raised
            if not self._settings.skips_errors:
                raise
        finally:
            self._is_over = True
        return await self._skip()

    async def _run(self) -> Frame:
        task = self._opened.start(partial(self._opened.plugin.call, self._request, self._go_on))
        self._start_clock()
        try:
            await asyncio.wait((task, self._late), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._is_over = True
            await self._opened.end(task)
            self._cancel_next()
            raise
        finally:
            self._stop_clock()
            self._is_over = True
        if not task.done():
            self._opened.abandon(task)
            raise self._failure(f"did not go on within {self._settings.timeout_s:g} s")
        if task.cancelled():
            raise self._failure("has cancelled itself")
        if (exc := task.exception()) is None:
            return self._read(task.result())
        if exc is self._raised:
            return self._pass_on()
        raise self._failure(describe(exc)) from exc

    # --- `next` ----------------------------------------------------------------------------------------

    async def _go_on(self, request: CallRequest) -> CallResult:
        """Run the later steps: the plug-in's `next`."""
        if self._is_over:
            raise RuntimeError("the call has ended")
        if self._next is not None:
            raise RuntimeError("`next` may be called once only")
        arguments = self._read_arguments(request)
        self._next = asyncio.current_task()
        self._stop_clock()
        try:
            self._answer = answer = await self._send(arguments)
        except (DynamicMcpError, wire.Malformed, StateRefused) as exc:
            self._error = exc
            self._raised = CallFailed(str(exc), exc.rpc_code if isinstance(exc, DynamicMcpError) else INVALID_PARAMS)
            raise self._raised from exc
        except BaseException as exc:
            self._error = self._raised = exc
            raise
        finally:
            self._has_next_ended.set()
            self._start_clock()
        if len(answer.error):
            code = wire.value(wire.member(answer.error, "code"))
            message = wire.text(wire.member(answer.error, "message")) or "the server has answered with an error"
            self._raised = CallFailed(message, code if isinstance(code, int) else INTERNAL_ERROR)
            raise self._raised
        self._result = CallResult(bytes(answer.result))
        return self._result

    def _read_arguments(self, request: CallRequest) -> Raw | None:
        """Return a request's arguments, or None if unchanged. Raises ValueError if they cannot be sent."""
        original = self._request
        if (request.kind, request.server, request.name) != (original.kind, original.server, original.name):
            raise ValueError("only the arguments of a call can be replaced")
        if request.raw_arguments == original.raw_arguments:
            return None
        if original.kind == "resource":
            raise ValueError("a resource is read without arguments")
        return _check(request.raw_arguments)

    def _send(self, arguments: Raw | None) -> Awaitable[Frame]:
        """Send the message, with these arguments once they have been checked. Raises DynamicMcpError."""
        if arguments is None:
            return self._following(self._message)
        _check_by_schema(self._message, self._request, arguments)
        params = {**(self._message.params or {}), "arguments": arguments}
        return self._restart(structs.replace(self._message, params=params), self._following)

    # --- the result ------------------------------------------------------------------------------------

    def _read(self, result: object) -> Frame:
        """Return the plug-in's answer. Raises PluginError if it is not a result."""
        if result is self._result and self._answer is not None:
            return self._answer
        if not isinstance(result, CallResult):
            raise self._failure(f"has returned no `CallResult`, but `{type(result).__name__}`")
        try:
            raw = _check(result.raw)
            if self._request.kind != "tool" and result.is_error:
                text = "\n".join(str(block.get("text", "")) for block in result.content)
                return wire.error_frame(INTERNAL_ERROR, text)
        except ValueError as exc:
            raise self._failure("has returned a result that is not JSON") from exc
        return Frame(result=raw) if self._answer is None else structs.replace(self._answer, result=raw, error=Raw())

    def _pass_on(self) -> Frame:
        """Return or raise the outcome of the later steps, which the plug-in let pass."""
        if self._error is not None:
            raise self._error
        assert self._answer is not None, "`next` has raised because of it"
        return self._answer

    async def _skip(self) -> Frame:
        """Continue without the plug-in. Raises PluginError if cancelled later steps may have run."""
        if self._next is None:
            return await self._following(self._message)
        await self._has_next_ended.wait()
        if isinstance(self._error, asyncio.CancelledError):
            raise self._failure("has cancelled the call")
        return self._pass_on()

    def _failure(self, what: str) -> PluginError:
        if not self._settings.skips_errors:
            self._cancel_next()
        sent = "nothing was sent" if self._next is None else "the call may have run"
        return PluginError(self._settings.use, f"{what}; {sent}")

    def _cancel_next(self) -> None:
        """Cancel the later steps, if another task than the plug-in's own waits for them."""
        if self._next is not None and not self._has_next_ended.is_set():
            self._next.cancel()

    # --- its clock -------------------------------------------------------------------------------------

    def _start_clock(self) -> None:
        if not self._is_over and not self._late.done():
            self._timer = self._loop.call_later(self._settings.timeout_s, self._ring)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        with suppress(asyncio.InvalidStateError):
            self._late.set_result(None)


def _describe(message: UpstreamRequest, caller: CallerInfo) -> CallRequest:
    params = message.params or {}
    kind = KINDS[message.method]
    return CallRequest(
        kind=kind,
        server=message.group.name,
        name=wire.text(params.get("uri" if kind == "resource" else "name")) or "",
        caller=caller,
        raw_arguments=bytes(params.get("arguments", wire.EMPTY_OBJECT)),
        raw_meta=bytes(params.get("_meta", wire.EMPTY_OBJECT)),
        is_retry=not RETRY_MEMBERS.isdisjoint(params),
    )


def _check_by_schema(message: UpstreamRequest, request: CallRequest, arguments: Raw) -> None:
    """Check arguments by the server's schema, where required. Raises InvalidArguments."""
    catalog, group = message.group.group.catalog, message.group
    if request.kind != "tool" or catalog is None or not must_fit(group, group.shown_name(request.name)):
        return
    schema = catalog.input_schema(request.name)
    if not schema.accepts(arguments):
        what = f"a plug-in has replaced the arguments of `{request.name}`, and they do not fit"
        raise InvalidArguments(f"{what}: {schema.describe_flaws(arguments)}; nothing was sent")


def _check(data: bytes) -> Raw:
    """Return a plug-in's object on one line. Raises ValueError if a server could not read it."""
    data.decode()
    if b"\n" in data or b"\r" in data:
        data = wire.compact(Raw(data))
    wire.members(data)
    if b"\n" in data or b"\r" in data:
        raise ValueError("it is not in one line")
    if (name := wire.find_duplicate_name(data)) is not None:
        raise ValueError(f"duplicate key `{name}`")
    return Raw(data)
