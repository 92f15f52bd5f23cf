"""One run of a script: its calls, each an ordinary request of its client, its bounds, and the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property, partial
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, DynamicMcpError
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.names import read_names
from dynamic_mcp.features.scripts.plan import plan_calls
from dynamic_mcp.features.scripts.sandbox import Execution, Functions, Sandbox, ScriptFailed
from dynamic_mcp.features.scripts.suspended import KeptCall, SuspendedScript, SuspendedScripts
from dynamic_mcp.features.scripts.type_check import check_types
from dynamic_mcp.features.scripts.values import Contents, encode_error, is_alone, read_result
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import RETRY_MEMBERS, StateRefused
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.own_tools import OwnToolContext
from dynamic_mcp.proxy.request import CallPlan, ForwardingChannel, OwnQuestion, Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.session.modern_client import ModernCall
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.shared_store import StoreUnavailable
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
# The pauses before each try to remove from the store what is kept.
_REMOVE_AFTER_S = (0.0, 0.2, 0.3, 0.5, 1.0, 1.0)
_MAY_HAVE_RUN = "dynamic-mcp was restarted before this call was answered; it may have run"


class _Call(Struct):
    """A call that a script has made, by its number in the script; `outcome` is empty while it has no answer.

    `is_unsent`: it waits for an approval. `retry` are the params by which a modern server goes on with it, once there
    are answers to what is `asked`, by the server's keys.
    """

    id: int
    group: str
    name: str
    arguments: str
    started: float = 0.0
    outcome: str = ""
    took_s: float = 0.0
    is_unsent: bool = False
    retry: Raw = wire.ABSENT
    asked: dict[str, Frame] = {}

    def __str__(self) -> str:
        if not self.outcome:
            return f"{self.group}.{self.name}: it was cancelled, and may have run"
        return f"{self.group}.{self.name}: {self.outcome} ({self.took_s * 1000:.0f} ms)"


class ScriptRun:
    """Runs one script for the call `request`, whose params are `params`. `suspended` keeps scripts that wait."""

    def __init__(
        self,
        context: OwnToolContext,
        request: Request,
        params: Mapping[str, Raw],
        settings: Scripts,
        suspended: SuspendedScripts | None = None,
    ) -> None:
        self._context = context
        self._request = request
        self._settings = settings
        self._contents = Contents()
        self._calls: list[_Call] = []
        self._used_tools: set[tuple[str, str]] = set()  # each after its group
        self._marking: GroupView | None = None
        self._places = asyncio.Semaphore(settings.parallel)
        token = wire.member(params.get("_meta", wire.EMPTY_OBJECT), "progressToken")
        self._channel = _ScriptChannel(request, token)
        self._meta = {"_meta": {"progressToken": token}} if len(token) else {}
        self._follows_view = context.view_for(request.client) is request.view
        self._plan: CallPlan | None = None
        self._printed = ""
        self._stop: ScriptFailed | None = None
        self._work: asyncio.Task[bytes] | None = None
        self._started = context.clock.now()
        self._loop = asyncio.get_running_loop()
        arguments = params.get("arguments", wire.EMPTY_OBJECT)
        self._code = wire.text(wire.member(arguments, "code")) or ""
        self._data = wire.member(arguments, "input") or wire.NULL
        functions: Functions = {"_call": self.call, "_tools": self.list_tools}
        self._execution = Execution(self._code, self._data, settings, functions, self._print_soon, self._on_resume)
        self._suspended = suspended
        self._arguments = arguments
        self._kept = ""  # the name of what is kept
        self._version = 0  # of what is kept
        self._turn = asyncio.Lock()  # to write it, or to remove it
        self._given = ""  # the name that the client has
        self._questions: Mapping[str, Frame] = {}  # of the client, by its keys
        self._keeping: asyncio.Task[str] | None = None

    async def answer(self, sandbox: Sandbox) -> Frame:
        """Run the script; return its result, or the error and what was done before it.

        Raises DynamicMcpError if a person has not allowed what it is going to call.
        """
        self._set_keep(self._keep_unbegun)
        names = await asyncio.to_thread(read_names, self._code)
        try:
            await check_types(self._code, names, self._context.finder_for(self._request), self._context.clock)
        except ScriptFailed as exc:
            return self._describe_failure(exc, self._code)
        most = self._settings.calls
        self._plan = await plan_calls(self._request, self._view(), self._code, names, self._data, most)
        if self._plan is not None:
            try:
                await self._ask_ahead(self._plan)
            except ScriptFailed as exc:
                return self._describe_failure(exc, self._code)
        self._started = self._context.clock.now()
        return await self._answer(sandbox)

    async def resume(self, sandbox: Sandbox, name: str, responses: Mapping[str, Raw]) -> Frame:
        """Go on with a script of a process that has ended, with what the client says.

        Raises StateRefused, and DynamicMcpError if the store that has it cannot be reached.
        """
        if self._suspended is None:
            raise StateRefused("invalid")
        try:
            script = await self._suspended.take(name, self._binding)
        except StoreUnavailable as exc:
            raise DynamicMcpError(f"the script cannot go on here: {exc}", hint="repeat the request") from None
        if not script.state:
            return await self.answer(sandbox)
        self._restore(script)
        if self._left_s <= 0:
            return self._describe_failure(self._late(), self._code)
        self._call_again(script, responses)
        return await self._answer(sandbox)

    async def _answer(self, sandbox: Sandbox) -> Frame:
        self._set_keep(self._keep_suspended)
        self._work = asyncio.create_task(sandbox.run(self._execution, self._request.client))
        try:
            value = await self._finish(self._work)
            await self._forget()
        except ScriptFailed as exc:
            with contextlib.suppress(ScriptFailed):
                await self._forget()
            return self._describe_failure(exc, self._code)
        return self._describe_result(value)

    async def _finish(self, work: asyncio.Task[bytes]) -> bytes:
        """Return the result of a script that ends within its bounds. Raises ScriptFailed."""
        bound = asyncio.create_task(self._context.clock.sleep(self._left_s))
        try:
            await asyncio.wait([work, bound], return_when=asyncio.FIRST_COMPLETED)
            if self._stop is not None:
                raise self._stop
            if not work.done():
                raise self._late()
            return work.result()
        finally:
            bound.cancel()
            work.cancel()
            await asyncio.wait([work, bound])
            await self._execution.close()  # if the work has not begun

    @property
    def _left_s(self) -> float:
        return self._started + self._settings.total_s - self._context.clock.now()

    def _late(self) -> ScriptFailed:
        return ScriptFailed(f"it took more than {self._settings.total_s:g} s in all (the bound `total`)")

    # --- while it waits ----------------------------------------------------------------------------------

    @cached_property
    def _binding(self) -> bytes:
        """What is kept is bound to this; a long input takes a while, which only a script that is kept pays."""
        return _bind(self._request, self._arguments)

    def _set_keep(self, keep: Callable[[SuspendedScripts, Mapping[str, Frame]], Awaitable[str]]) -> None:
        """Have the script kept like this while its client is asked; only clients that come back are."""
        call = self._request.channel
        if self._suspended is not None and isinstance(call, ModernCall):
            call.keep = partial(keep, self._suspended)

    async def _ask_ahead(self, plan: CallPlan) -> None:
        """Ask the one question about a script. Raises DynamicMcpError, and ScriptFailed if it goes on elsewhere."""
        try:
            await self._context.ask_ahead(self._request, plan)
        finally:
            await self._forget()  # it begins, and must not begin twice, or is denied

    async def _keep_unbegun(self, suspended: SuspendedScripts, questions: Mapping[str, Frame]) -> str:
        """Keep the script before it begins: it begins again, so that a person is asked again."""
        return await self._keep(suspended, {})

    async def _keep_suspended(self, suspended: SuspendedScripts, questions: Mapping[str, Frame]) -> str:
        """Keep the script while its client is asked these questions; return its name, or nothing."""
        self._given = ""
        if not await self._execution.suspend():
            return ""
        self._questions = questions
        self._given = await self._keep(suspended, questions)
        return self._given

    async def _keep_again(self, suspended: SuspendedScripts, name: str) -> str:
        """Keep the script under the name that its client has, when it waits again."""
        if not await self._execution.suspend() or name != self._given:
            return ""
        return await self._save(suspended, self._questions, name)

    async def _keep(self, suspended: SuspendedScripts, questions: Mapping[str, Frame]) -> str:
        """Keep the script under a new name, instead of what was kept before; return the name, or nothing."""
        try:
            await self._forget()
        except ScriptFailed:
            return ""  # nor does it go on before what was kept is removed
        return await self._save(suspended, questions)

    async def _save(self, suspended: SuspendedScripts, questions: Mapping[str, Frame], name: str = "") -> str:
        version, script = self._version, self._describe_state(questions)
        async with self._turn:
            if version != self._version:
                return ""
            self._kept = name
            try:
                name = await suspended.write(script, self._binding, name)
            except OSError as exc:
                log.warning("a script that waits cannot be kept: %s", exc)
                return ""
            self._kept = name or self._kept
        return name if version == self._version else ""  # it has gone on meanwhile, once what was kept is removed

    async def _on_resume(self) -> None:
        """Called before the script goes on: what is kept is removed first, so that no call is repeated.

        Raises ScriptFailed.
        """
        await self._forget()
        call, suspended, name = self._request.channel, self._suspended, self._given
        if suspended is not None and name and isinstance(call, ModernCall) and call.is_parked and not call.is_over:
            self._keeping = asyncio.create_task(self._keep_again(suspended, name))

    async def _forget(self) -> None:
        """Remove what is kept of the script, which is not true any more.

        Raises ScriptFailed if the script goes on in another process, or may do so.
        """
        call = self._request.channel
        if isinstance(call, ModernCall) and call.is_over:
            return  # its client has gone, or the program ends: the client may come back with what was kept
        self._version += 1
        if self._suspended is None:
            return
        async with self._turn:
            if self._kept:
                await self._remove(self._suspended, self._kept)
            self._kept = ""

    async def _remove(self, suspended: SuspendedScripts, name: str) -> None:
        """Remove what is kept by a name, as soon as the store can be reached that has it. Raises ScriptFailed."""
        why = ""
        for pause_s in _REMOVE_AFTER_S:
            if pause_s:
                await self._context.clock.sleep(pause_s)
            try:
                return await suspended.forget(name)
            except StateRefused:
                raise ScriptFailed("another replica goes on with it") from None
            except StoreUnavailable as exc:
                why = str(exc)
        raise ScriptFailed(f"another replica may go on with it: {why}")

    async def _forget_before_sending(self) -> None:
        """Remove what is kept of the script before a call of it is sent, or end the script."""
        try:
            await self._forget()
        except ScriptFailed as exc:
            self._end(exc.message)
            await asyncio.Event().wait()  # until it is cancelled

    def _describe_state(self, questions: Mapping[str, Frame]) -> SuspendedScript:
        execution = self._execution
        results = {id: result for id in execution.pending if (result := execution.result_of(id)) is not None}
        return SuspendedScript(
            state=execution.state,
            pending=dict(execution.pending),
            results=results,
            calls=[_to_kept(each, questions) for each in self._calls],
            elapsed_s=self._context.clock.now() - self._started,
            saved_at=time.time(),
            printed=self._printed,
            handles=self._contents.prefix,
            blocks=self._contents.blocks,
            used_tools=[*self._used_tools],
            marked_by="" if self._marking is None else self._marking.name,
        )

    def _restore(self, script: SuspendedScript) -> None:
        self._started = self._context.clock.now() - script.elapsed_s - max(time.time() - script.saved_at, 0.0)
        self._printed, self._used_tools = script.printed, set(script.used_tools)
        self._marking = self._view().get(script.marked_by) if script.marked_by else None
        self._contents = Contents(script.handles, script.blocks)
        self._calls = [
            _Call(each.id, each.group, each.name, each.arguments, outcome=each.outcome, took_s=each.took_s)
            for each in script.calls
        ]

    def _call_again(self, script: SuspendedScript, responses: Mapping[str, Raw]) -> None:
        """Begin again what was not done, and say so of what may have run."""
        work: dict[int, Awaitable[bytes]] = {id: _return(each.encode()) for id, each in script.results.items()}
        for call, kept in zip(self._calls, script.calls, strict=True):
            if call.id in script.pending and call.id not in work:
                work[call.id] = self._continue(call, kept, responses)
        self._execution.restore(script.state, script.pending, work)

    def _continue(self, call: _Call, kept: KeptCall, responses: Mapping[str, Raw]) -> Awaitable[bytes]:
        if kept.is_unsent:
            return self._make(call, partial(self._call, call))
        if not kept.retry:
            call.outcome = f"failed: {_MAY_HAVE_RUN}"
            return _return(encode_error(INTERNAL_ERROR, _MAY_HAVE_RUN))
        answers = {key: responses[ours] for ours, key in kept.questions.items() if ours in responses}
        return self._make(call, partial(self._go_on, call, Raw(kept.retry), answers))

    def _end(self, why: str) -> None:
        """End the script at a bound, which it cannot catch."""
        if self._stop is None and self._work is not None:
            self._stop = ScriptFailed(why)
            self._work.cancel()

    def _print_soon(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._print, text)

    def _print(self, text: str) -> None:
        if self._stop is not None:
            return
        self._printed += text
        if len(self._printed.encode("utf-8", "replace")) > self._settings.output:
            self._end(f"it printed more than {self._settings.output} bytes (the bound `output`)")

    # --- what a script can do --------------------------------------------------------------------------

    async def call(self, id: int, group: str, name: str = "", arguments: str = "{}") -> bytes:
        """Call a tool; return its result as JSON, or the error that is to be raised."""
        if len(self._calls) >= self._settings.calls:
            self._end(f"it made more than {pluralize(self._settings.calls, 'call')} (the bound `calls`)")
            await asyncio.Event().wait()  # until it is cancelled
        call = _Call(id, group, name, arguments)
        self._calls.append(call)
        return await self._make(call, partial(self._call, call))

    async def _make(self, call: _Call, send: Callable[[], Awaitable[Frame | bytes]]) -> bytes:
        """Send a call when it is its turn, and note what comes of it."""
        async with self._places:
            call.started = time.perf_counter()
            answer = await send()
        try:
            answer = answer if isinstance(answer, bytes) else read_result(answer, self._contents)
        except wire.Malformed as exc:
            answer = encode_error(INTERNAL_ERROR, f"the result cannot be read: {exc}")
        call.took_s = time.perf_counter() - call.started
        call.outcome = _outcome_of(answer)
        self._channel.report(f"{one_line(f'{call.group}.{call.name}', 100)}: {call.outcome}")
        return answer

    async def _call(self, call: _Call) -> Frame | bytes:
        try:
            args = decode_as(call.arguments.encode(), Raw)  # goes into the request as it is
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return encode_error(INVALID_PARAMS, "the arguments are no JSON")
        view = self._view()
        answer = await self._answer_request({"group": call.group, "name": call.name, "args": args}, CALL, call)
        self._record_use(view, call.group, call.name)
        return answer

    async def _go_on(self, call: _Call, retry: Raw, answers: Mapping[str, Raw]) -> Frame | bytes:
        """Go on with a call at a server that has asked something, in another process."""
        view = self._view()
        params = {**wire.members(retry), **({"inputResponses": Raw(wire.encode(answers))} if answers else {})}
        answer = await self._answer_params(Raw(wire.encode(params)), call)
        self._record_use(view, call.group, call.name)
        return answer

    def _record_use(self, view: View, group: str, name: str) -> None:
        """Record which tool a result is from: of a name without a group, all that it may be."""
        named = view.get(group)
        groups = view.offering("tools") if named is None else [named]
        unlisted = "" if named is None else name
        tools = [(each, tool) for each in groups if (tool := _find_tool(each, name) or unlisted)]
        self._used_tools.update((each.name, tool) for each, tool in tools if view.has_tool(each.name, tool))
        marking = (each for each, _ in tools or [(each, "") for each in groups] if each.presentation.answers.marks)
        self._marking = self._marking or next(marking, None)

    async def list_tools(self, id: int, group: str, query: str = "") -> bytes:
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

    async def _answer_request(
        self, arguments: Mapping[str, object], name: str, call: _Call | None = None
    ) -> Frame | bytes:
        """Answer a request of the script like any other of its client; return an error as JSON for the script."""
        return await self._answer_params(Raw(wire.encode({"name": name, "arguments": arguments, **self._meta})), call)

    async def _answer_params(self, params: Raw, call: _Call | None) -> Frame | bytes:
        request = Request(
            "tools/call",
            params,
            self._request.client,
            self._view(),
            self._channel
            if call is None
            else _CallChannel(self._channel, self._request, call, self._forget_before_sending),
            self._request.id,
            parent=self._request,
            plan=self._plan,
        )
        try:
            return await self._send(request, call)
        except DynamicMcpError as exc:
            return encode_error(exc.rpc_code, str(exc))
        except (wire.Malformed, StateRefused) as exc:
            return encode_error(INVALID_PARAMS, str(exc))
        except Exception:
            log.exception("a bug: a call of a script failed")
            return encode_error(INTERNAL_ERROR, "internal error; see the log of dynamic-mcp")

    def _open_channel(self, call: _Call) -> _CallChannel:
        return _CallChannel(self._channel, self._request, call, self._forget_before_sending)

    def _view(self) -> View:
        """Return what the client may see at this moment."""
        return self._context.view_for(self._request.client) if self._follows_view else self._request.view

    async def _send(self, request: Request, call: _Call | None) -> Frame:
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
            request = structs.replace(request, params=await self._answer_questions(request, answer.result, call))
        raise DynamicMcpError(f"the server asked for input more than {_MAX_ROUNDS} times")

    async def _answer_questions(self, request: Request, result: Raw, call: _Call | None) -> Raw:
        """Return the params to send again, with the client's answers to the questions of a result."""
        asked = wire.members(wire.member(result, "inputRequests") or wire.EMPTY_OBJECT)
        frames = {
            key: Frame(method=wire.text(wire.member(each, "method")) or "", params=wire.member(each, "params"))
            for key, each in asked.items()
        }
        params = {name: value for name, value in wire.members(request.params).items() if name not in RETRY_MEMBERS}
        state = wire.member(result, "requestState")
        params |= {"requestState": state} if len(state) else {}
        if call is not None:
            call.retry, call.asked = Raw(wire.encode(params)), frames
        try:
            answers = await asyncio.gather(*(request.ask(each, lambda status: None) for each in frames.values()))
        finally:
            if call is not None:
                call.retry, call.asked = wire.ABSENT, {}
        await self._forget_before_sending()
        for answer in answers:
            if len(answer.error):
                why = wire.text(wire.member(answer.error, "message")) or "an error"
                raise DynamicMcpError(f"the tool needs input, which the client refused: {why}")
        responses = {key: answer.result for key, answer in zip(frames, answers, strict=True)}
        return Raw(wire.encode({**params, "inputResponses": responses}))

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
        mark = None if self._marking is None else self._marking.mark_text
        handling = _RESULT if mark is None else structs.replace(_RESULT, marks=True)
        if not results.can_pass_unchanged(result, handling):
            keep = self._context.results().own_keeper(self._request.client, self._marking, self._used_tools)
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


class _CallChannel(ForwardingChannel):
    """The way of one call of a script to its client, which knows whether the call waits for an approval, unsent.

    `on_answer` is awaited before the call goes on.
    """

    def __init__(
        self, channel: _ScriptChannel, request: Request, call: _Call, on_answer: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(request)
        self._channel = channel
        self._call = call
        self._on_answer = on_answer

    def notify(self, frame: Frame) -> None:
        self._channel.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        if not isinstance(frame, OwnQuestion):
            return await super().ask(frame, on_status)
        self._call.is_unsent = True
        try:
            answer = await super().ask(frame, on_status)
        finally:
            self._call.is_unsent = False
        await self._on_answer()
        return answer


def _to_kept(call: _Call, questions: Mapping[str, Frame]) -> KeptCall:
    keys = {id(frame): key for key, frame in call.asked.items()}
    return KeptCall(
        call.id,
        call.group,
        call.name,
        call.arguments,
        call.outcome,
        call.took_s,
        is_unsent=call.is_unsent,
        retry=bytes(call.retry),
        questions={ours: keys[id(frame)] for ours, frame in questions.items() if id(frame) in keys},
    )


def _bind(request: Request, arguments: Raw) -> bytes:
    """Return a digest of who calls and of what is called, which a retry shares."""
    client, principal = request.client, request.principal
    whole = [principal.issuer, principal.subject, client.only, client.profile, wire.value(arguments)]
    return sha256(json.dumps(whole, sort_keys=True).encode()).digest()


async def _return(result: bytes) -> bytes:
    return result


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
