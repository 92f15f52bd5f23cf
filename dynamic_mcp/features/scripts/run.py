"""One run of a script: its calls, each an ordinary request of its client, its bounds, and the answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, DynamicMcpError
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.names import read_names
from dynamic_mcp.features.scripts.sandbox import Functions, Sandbox, ScriptFailed
from dynamic_mcp.features.scripts.type_check import check_types
from dynamic_mcp.features.scripts.values import Contents, encode_error, is_alone, read_result
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.own_tools import OwnToolContext
from dynamic_mcp.proxy.request import ForwardingChannel, Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import one_line, pluralize
from dynamic_mcp.tools import results
from dynamic_mcp.tools.arguments import split_name
from dynamic_mcp.tools.meta_tools import CALL, GET

log = logging.getLogger("dynamic_mcp")

# The result of a script is as long as that of a tool by default.
_RESULT = CallHandling(validate=None, limit=100_000, compact=False)
# How often a server may ask for input before it answers one call.
_MAX_ROUNDS = 10
_LONGEST_ERROR = 300


class _Call(Struct):
    """A call that a script has made; `outcome` is empty while it has no answer."""

    group: str
    name: str
    started: float
    outcome: str = ""
    took_s: float = 0.0

    def __str__(self) -> str:
        if not self.outcome:
            return f"{self.group}.{self.name}: it was cancelled, and may have run"
        return f"{self.group}.{self.name}: {self.outcome} ({self.took_s * 1000:.0f} ms)"


class ScriptRun:
    """Runs one script for the call `request`, whose params are `params`."""

    def __init__(
        self, context: OwnToolContext, request: Request, params: Mapping[str, Raw], settings: Scripts
    ) -> None:
        self._context = context
        self._request = request
        self._settings = settings
        self._contents = Contents()
        self._calls: list[_Call] = []
        self._used_tools: set[tuple[str, str]] = set()  # each after its group
        self._mark: results.Mark | None = None
        self._places = asyncio.Semaphore(settings.parallel)
        token = wire.member(params.get("_meta", wire.EMPTY_OBJECT), "progressToken")
        self._channel = _ScriptChannel(request, token)
        self._meta = {"_meta": {"progressToken": token}} if len(token) else {}
        self._follows_view = context.view_for(request.client) is request.view
        self._printed = ""
        self._stop: ScriptFailed | None = None
        self._work: asyncio.Task[bytes] | None = None

    async def answer(self, sandbox: Sandbox, code: str, data: Raw) -> Frame:
        """Run the script; return its result, or the error and what was done before it."""
        loop = asyncio.get_running_loop()

        def on_print(text: str) -> None:
            loop.call_soon_threadsafe(self._print, text)

        functions: Functions = {"_call": self.call, "_tools": self.list_tools}
        run = partial(sandbox.run, code, data, self._settings, functions, on_print)
        self._work = asyncio.create_task(self._check_and_run(code, run))
        try:
            value = await self._finish(self._work)
        except ScriptFailed as exc:
            return self._describe_failure(exc, code)
        return self._describe_result(value)

    async def _check_and_run(self, code: str, run: Callable[[], Awaitable[bytes]]) -> bytes:
        await check_types(code, read_names(code), self._context.finder_for(self._request), self._context.clock)
        return await run()

    async def _finish(self, work: asyncio.Task[bytes]) -> bytes:
        """Return the result of a script that ends within its bounds. Raises ScriptFailed."""
        bound = asyncio.create_task(self._context.clock.sleep(self._settings.total_s))
        try:
            await asyncio.wait([work, bound], return_when=asyncio.FIRST_COMPLETED)
            if self._stop is not None:
                raise self._stop
            if not work.done():
                raise ScriptFailed(f"it took more than {self._settings.total_s:g} s in all (the bound `total`)")
            return work.result()
        finally:
            bound.cancel()
            work.cancel()
            await asyncio.wait([work, bound])

    def _end(self, why: str) -> None:
        """End the script at a bound, which it cannot catch."""
        if self._stop is None and self._work is not None:
            self._stop = ScriptFailed(why)
            self._work.cancel()

    def _print(self, text: str) -> None:
        if self._stop is not None:
            return
        self._printed += text
        if len(self._printed.encode("utf-8", "replace")) > self._settings.output:
            self._end(f"it printed more than {self._settings.output} bytes (the bound `output`)")

    # --- what a script can do --------------------------------------------------------------------------

    async def call(self, group: str, name: str = "", arguments: str = "{}") -> bytes:
        """Call a tool; return its result as JSON, or the error that is to be raised."""
        if len(self._calls) >= self._settings.calls:
            self._end(f"it made more than {pluralize(self._settings.calls, 'call')} (the bound `calls`)")
            await asyncio.Event().wait()  # until it is cancelled
        call = _Call(group, name, time.perf_counter())
        self._calls.append(call)
        async with self._places:
            call.started = time.perf_counter()
            answer = await self._call(group, name, arguments)
        try:
            answer = answer if isinstance(answer, bytes) else read_result(answer, self._contents)
        except wire.Malformed as exc:
            answer = encode_error(INTERNAL_ERROR, f"the result cannot be read: {exc}")
        call.took_s = time.perf_counter() - call.started
        call.outcome = _outcome_of(answer)
        self._channel.report(f"{one_line(f'{group}.{name}', 100)}: {call.outcome}")
        return answer

    async def _call(self, group: str, name: str, arguments: str) -> Frame | bytes:
        try:
            args = decode_as(arguments.encode(), Raw)  # goes into the request as it is
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return encode_error(INVALID_PARAMS, "the arguments are no JSON")
        view = self._view()
        answer = await self._answer_request({"group": group, "name": name, "args": args}, CALL)
        self._record_use(view, group, name)
        return answer

    def _record_use(self, view: View, group: str, name: str) -> None:
        """Record which tool a result is from: of a name without a group, all that it may be."""
        named = view.get(group)
        groups = view.offering("tools") if named is None else [named]
        unlisted = "" if named is None else name
        tools = [(each, tool) for each in groups if (tool := _find_tool(each, name) or unlisted)]
        self._used_tools.update((each.name, tool) for each, tool in tools if view.has_tool(each.name, tool))
        marking = (each for each, _ in tools or [(each, "") for each in groups] if each.presentation.answers.marks)
        if self._mark is None and (found := next(marking, None)) is not None:
            self._mark = found.mark_text

    async def list_tools(self, group: str, query: str = "") -> bytes:
        """Return the definitions of tools as JSON: those of a group, or of all groups, or those that fit a query.

        Of all groups, those are left out that cannot be reached; what the script prints says so.
        """
        if group or query:
            answer = await self._find_tools(group, query)
            return answer if isinstance(answer, bytes) else b'{"value":[%s]}' % b",".join(_read_tools(answer, group))
        names = [each.name for each in self._view().offering("tools")]
        found: list[bytes] = []
        for name, answer in zip(names, await asyncio.gather(*map(self._find_tools, names)), strict=True):
            if isinstance(answer, bytes):
                self._print(f"[the tools of `{name}` are left out: {_outcome_of(answer)}]\n")
            else:
                found += _read_tools(answer, name)
        return b'{"value":[%s]}' % b",".join(found)

    async def _find_tools(self, group: str, query: str = "") -> Frame | bytes:
        wanted = {"detail": "full"} | ({"group": group} if group else {}) | ({"query": query} if query else {})
        async with self._places:
            return await self._answer_request(wanted, GET)

    async def _answer_request(self, arguments: Mapping[str, object], name: str) -> Frame | bytes:
        """Answer a request of the script like any other of its client; return an error as JSON for the script."""
        params = Raw(wire.encode({"name": name, "arguments": arguments, **self._meta}))
        request = Request(
            "tools/call",
            params,
            self._request.client,
            self._view(),
            self._channel,
            self._request.id,
            parent=self._request,
        )
        try:
            return await self._send(request)
        except DynamicMcpError as exc:
            return encode_error(exc.rpc_code, str(exc))
        except (wire.Malformed, StateRefused) as exc:
            return encode_error(INVALID_PARAMS, str(exc))
        except Exception:
            log.exception("a bug: a call of a script failed")
            return encode_error(INTERNAL_ERROR, "internal error; see the log of dynamic-mcp")

    def _view(self) -> View:
        """Return what the client may see at this moment."""
        return self._context.view_for(self._request.client) if self._follows_view else self._request.view

    async def _send(self, request: Request) -> Frame:
        """Send a request; a server that asks for input gets the client's."""
        for _ in range(_MAX_ROUNDS):
            answer = await self._context.answer(request)
            if not (request.revision.is_stateless and len(answer.result)):
                return answer
            kind = envelope.result_type(answer.result)
            if kind == envelope.COMPLETE:
                return answer
            if kind != envelope.INPUT_REQUIRED:
                raise DynamicMcpError(
                    f"the tool answered with a result of the type `{kind[:40]}`, not with its result"
                )
            request = structs.replace(request, params=await self._answer_questions(request, answer.result))
        raise DynamicMcpError(f"the server asked for input more than {_MAX_ROUNDS} times")

    async def _answer_questions(self, request: Request, result: Raw) -> Raw:
        """Return the params to send again, with the client's answers to the questions of a result."""
        asked = wire.members(wire.member(result, "inputRequests") or wire.EMPTY_OBJECT)
        frames = [
            Frame(method=wire.text(wire.member(each, "method")) or "", params=wire.member(each, "params"))
            for each in asked.values()
        ]
        answers = await asyncio.gather(*(request.ask(each, lambda status: None) for each in frames))
        for answer in answers:
            if len(answer.error):
                why = wire.text(wire.member(answer.error, "message")) or "an error"
                raise DynamicMcpError(f"the tool needs input, which the client refused: {why}")
        params: dict[str, object] = dict(wire.members(request.params))
        params["inputResponses"] = {key: answer.result for key, answer in zip(asked, answers, strict=True)}
        state = wire.member(result, "requestState")
        return Raw(wire.encode(params | ({"requestState": state} if len(state) else {})))

    # --- the answer ------------------------------------------------------------------------------------

    def _describe_result(self, value: bytes) -> Frame:
        found = self._contents.find(value)
        is_content = bool(found) and is_alone(value)
        texts = [*([] if is_content else [value.decode()]), *self._describe_prints()]
        result = Raw(wire.encode({"content": [*_text_blocks(texts), *found]}))
        return self._fit(result)

    def _describe_failure(self, exc: ScriptFailed, code: str) -> Frame:
        lines = code.splitlines()
        where = f"line {exc.line}: `{one_line(lines[exc.line - 1])}`\n" if 0 < exc.line <= len(lines) else ""
        done = "nothing was called"
        if self._calls:
            what = "\n".join(f"- {each}" for each in self._calls)
            done = f"what was done before, {pluralize(len(self._calls), 'call')}:\n{what}"
        texts = [f"{where}{exc.message}", done, *self._describe_prints()]
        return self._fit(Raw(wire.encode({"content": _text_blocks(texts), "isError": True})))

    def _describe_prints(self) -> list[str]:
        return [f"printed:\n{self._printed}"] if self._printed else []

    def _fit(self, result: Raw) -> Frame:
        mark = self._mark
        handling = _RESULT if mark is None else structs.replace(_RESULT, marks=True)
        if not results.can_pass_unchanged(result, handling):
            keep = self._context.results().own_keeper(self._request.client, mark, self._used_tools)
            has_links = self._request.revision.has_resource_links
            result = results.shape(result, handling, keep, links=has_links, keeps_structure=False, mark=mark)
        return wire.result_frame(bytes(result))


class _ScriptChannel(ForwardingChannel):
    """The way from the calls of a script to its client: their progress is that of the script, by its `token`."""

    def __init__(self, request: Request, token: Raw) -> None:
        super().__init__(request)
        self._token = token
        self._steps = 0

    def notify(self, frame: Frame) -> None:
        if frame.method != "notifications/progress":
            super().notify(frame)
            return
        self.report(wire.text(wire.member(frame.params, "message")) or "")

    def report(self, message: str) -> None:
        """Tell the client of one more step, if it wants to know."""
        if len(self._token):
            self._steps += 1
            body = {"progressToken": self._token, "progress": self._steps}
            params = Raw(wire.encode({**body, "message": message} if message else body))
            super().notify(Frame(method="notifications/progress", params=params))


def _find_tool(group: GroupView, name: str) -> str:
    """Return the server's name of the tool that this may be, where it has one."""
    tools = group.catalog.model_tools if group.catalog is not None else ()
    names = [name, *(tool for _, tool in split_name(name, [group.name]))]
    return next((group.own_name(each) for each in names if each in tools), "")


def _outcome_of(answer: bytes) -> str:
    error = wire.member(answer, "error")
    if not len(error):
        return "done"
    _, message, _ = wire.elements(error)
    return f"failed: {one_line(wire.text(message) or '', _LONGEST_ERROR)}"


def _read_tools(answer: Frame, group: str) -> Iterable[bytes]:
    """Yield the tools that a search has found, each with its group."""
    text = wire.text(wire.member(wire.elements(wire.member(answer.result, "content"))[0], "text")) or ""
    for tool in wire.elements(wire.member(text.encode(), "tools")):
        yield bytes(wire.with_member(tool, group, "group") if group else tool)


def _text_blocks(texts: Iterable[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]
