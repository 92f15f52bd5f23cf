"""The redaction steps: replace texts in arguments, answers and progress notifications.

Long texts are redacted in a thread, except for progress, which must not be overtaken by the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.features.redaction.redactor import Redactor
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import ChangingStep, Services, Step
from dynamic_mcp.proxy.request import ForwardingChannel, Next, Request, Restart, UpstreamRequest
from dynamic_mcp.system.workers import MAX_BYTES_IN_LOOP, Workers

if TYPE_CHECKING:
    from dynamic_mcp.proxy.view import GroupView

_WITH_ARGUMENTS = frozenset(("tools/call", "prompts/get"))


class RedactArguments(ChangingStep):
    """Passes on requests with redacted arguments."""

    decides = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._workers = Workers("redact", count=2)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        redactor = group.find_rules("redaction", Redactor)
        return redactor is not None and redactor.has_for_arguments(tool)

    def bind(self, group: GroupView, tool: str | None, next: Next, restart: Restart) -> Next:
        return partial(self._redact, group.find_rules("redaction", Redactor), next, restart)

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Redact a request, once for the same params."""
        return self._redact(call.group.find_rules("redaction", Redactor), next, restart, call)

    def _redact(
        self, redactor: Redactor | None, next: Next, restart: Restart, call: UpstreamRequest
    ) -> Awaitable[Frame]:
        params = call.params
        if redactor is None or params is None or call.redacted is params or call.method not in _WITH_ARGUMENTS:
            return next(call)
        arguments = params.get("arguments")
        if arguments is None:
            return next(call)
        if len(arguments) > MAX_BYTES_IN_LOOP:
            return self._redact_in_thread(redactor, next, restart, call)
        return next(_redact_arguments(redactor, call))

    async def _redact_in_thread(
        self, redactor: Redactor, next: Next, restart: Restart, call: UpstreamRequest
    ) -> Frame:
        return await restart(await self._workers.run(partial(_redact_arguments, redactor, call)), next)


class RedactAnswers(Step):
    """Returns redacted answers and progress notifications."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._workers = Workers("redact", count=2)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether rules may apply; a task may belong to any tool."""
        redactor = group.find_rules("redaction", Redactor)
        return redactor is not None and (tool is None or redactor.has_for_answers(tool))

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        redactor = group.find_rules("redaction", Redactor)
        return next if redactor is None else partial(self._redact, redactor, next)

    async def _redact(self, redactor: Redactor, next: Next, call: UpstreamRequest) -> Frame:
        """Return the redacted answer; the same object if there is no match."""
        if call.params is not None and "_meta" in call.params:
            call = _with_redacted_progress(redactor, call)
        answer = await next(call)
        if call.tool is None and call.is_about_skill and not len(answer.error):
            return answer  # its digest is of the bytes
        payload = answer.error if len(answer.error) else answer.result
        if len(payload) <= MAX_BYTES_IN_LOOP:
            redacted = _redact_payload(redactor, call, payload)
        else:
            redacted = await self._workers.run(partial(_redact_payload, redactor, call, payload))
        if redacted is payload:
            return answer
        return structs.replace(answer, **{"error" if len(answer.error) else "result": redacted})


def _redact_arguments(redactor: Redactor, call: UpstreamRequest) -> UpstreamRequest:
    params = call.params or {}
    arguments = params.get("arguments")
    redacted = redactor.redact_arguments(call.tool, arguments)
    if redacted is not arguments and redacted is not None:
        params = {**params, "arguments": redacted}
    return structs.replace(call, params=params, redacted=params)


def _redact_payload(redactor: Redactor, call: UpstreamRequest, payload: Raw) -> Raw:
    if call.method.startswith("tasks/"):  # of any tool
        return redactor.present_message(payload)
    return redactor.redact_answer(call.tool, payload)


def _with_redacted_progress(redactor: Redactor, call: UpstreamRequest) -> UpstreamRequest:
    """Return a request whose client receives redacted progress notifications."""
    meta = (call.params or {}).get("_meta")
    if meta is None or not len(wire.member(meta, "progressToken")):
        return call
    redact = partial(redactor.redact_answer, call.tool)
    request = structs.replace(call.request, channel=_RedactedProgress(call.request, redact))
    return structs.replace(call, request=request)


class _RedactedProgress(ForwardingChannel):
    """The channel of a request, with redacted progress notifications."""

    def __init__(self, request: Request, redact: Callable[[Raw], Raw]) -> None:
        super().__init__(request)
        self._redact = redact

    def notify(self, frame: Frame) -> None:
        if frame.method == "notifications/progress":
            frame = structs.replace(frame, params=self._redact(frame.params))
        super().notify(frame)
