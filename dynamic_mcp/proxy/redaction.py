"""Where texts of a server's messages are replaced on their way: in arguments, answers, and what comes in between.

What is long is done in a thread, except for notifications, which must not overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request

if TYPE_CHECKING:
    from dynamic_mcp.policy.redact import Redactor
    from dynamic_mcp.proxy.pipeline import Next, UpstreamRequest
    from dynamic_mcp.proxy.view import GroupView
    from dynamic_mcp.system.workers import Workers

# What is longer than this is judged and replaced in a thread, so that nobody else waits for it.
MAX_BYTES_IN_LOOP = 16 << 10
_WITH_ARGUMENTS = frozenset(("tools/call", "prompts/get"))


class Redaction:
    """Replaces in the requests to servers that have rules for it, and in the answers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def redact_arguments(self, message: UpstreamRequest) -> UpstreamRequest:
        """Return a request as it may be sent; the same object if there is nothing to replace."""
        given = (message.params or {}).get("arguments")
        if given is None or len(given) <= MAX_BYTES_IN_LOOP:
            return redact_arguments(message)
        return await self._workers.run(partial(redact_arguments, message))

    async def send(self, message: UpstreamRequest, following: Next) -> Frame:
        """Send a request and return the answer as the client may see it; what there is to replace in either is.

        The arguments are as they may be sent. The answer is the same object if there is nothing to replace.
        """
        answer = await following(with_redacted_progress(message))
        payload = answer.error if len(answer.error) else answer.result
        if len(payload) <= MAX_BYTES_IN_LOOP:
            redacted = _redact_payload(message, payload)
        else:
            redacted = await self._workers.run(partial(_redact_payload, message, payload))
        if redacted is payload:
            return answer
        return structs.replace(answer, **{"error" if len(answer.error) else "result": redacted})


def has_redactor(message: UpstreamRequest) -> bool:
    """Tell whether there are rules on what is replaced in a request, or in its answer."""
    return _redactor_of(message.group) is not None


def redact_arguments(message: UpstreamRequest) -> UpstreamRequest:
    """Return a request as it may be sent; the same object if there is nothing to replace."""
    redactor, given = _redactor_of(message.group), (message.params or {}).get("arguments")
    if redactor is None or message.method not in _WITH_ARGUMENTS:
        return message
    redacted = redactor.redact_arguments(message.tool, given)
    if redacted is given:
        return message
    return structs.replace(message, params={**(message.params or {}), "arguments": redacted})


def _redact_payload(message: UpstreamRequest, payload: Raw) -> Raw:
    redactor = _redactor_of(message.group)
    if redactor is None:
        return payload
    if message.method.startswith("tasks/"):  # of any tool
        return redactor.redact_message(payload)
    return redactor.redact_answer(message.tool, payload)


def with_redacted_progress(message: UpstreamRequest) -> UpstreamRequest:
    """Return a request whose client is told of progress as the rules want it."""
    redactor, meta = _redactor_of(message.group), (message.params or {}).get("_meta")
    if redactor is None or meta is None or not len(wire.member(meta, "progressToken")):
        return message
    redact = partial(redactor.redact_answer, message.tool)
    request = structs.replace(message.request, channel=_RedactedProgress(message.request, redact))
    return structs.replace(message, request=request)


class MessageRedaction:
    """Replaces in what servers say by themselves: notifications, and questions.

    They can reach clients of several workspaces, so the rules of all configs are followed.
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        self._configs = configs
        self._redactors: dict[str, tuple[Redactor, ...]] = {}

    def redact(self, server: str, frame: Frame) -> Frame:
        """Return a message as clients may see it; the same object if there is nothing to replace."""
        redactors = self._redactors.get(server)
        if redactors is None:
            redactors = self._redactors[server] = self._find(server)
        for each in redactors if len(frame.params) else ():
            params = each.redact_message(frame.params)
            frame = frame if params is frame.params else structs.replace(frame, params=params)
        return frame

    def _find(self, server: str) -> tuple[Redactor, ...]:
        shown = (config.presentations.get(server) for config in self._configs)
        rules = dict.fromkeys(each.rules.redact for each in shown if each is not None)
        if not any(rules):
            return ()
        from dynamic_mcp.policy.redact import redactor_for

        return tuple(redactor_for(each) for each in rules if each)


def _redactor_of(group: GroupView) -> Redactor | None:
    return None if group.call_rules is None else group.call_rules.redactor


class _RedactedProgress:
    """The channel of a request, with other texts in what it is told of progress."""

    def __init__(self, request: Request, redact: Callable[[Raw], Raw]) -> None:
        self._request = request
        self._redact = redact

    @property
    def address(self) -> str:
        """The address that the request came from."""
        return self._request.address

    @property
    def port(self) -> int:
        """The port that it came from."""
        return self._request.port

    @property
    def client(self) -> Hashable:
        """The client behind the request."""
        return self._request.client

    @property
    def recipient(self) -> Hashable:
        """Who gets what is said without a request."""
        return self._request.recipient

    @property
    def log_level(self) -> str:
        """The level of the log messages that the request asks for."""
        return self._request.log_level

    @property
    def is_parked(self) -> bool:
        """Whether the call waits for its client."""
        return self._request.is_parked

    def notify(self, frame: Frame) -> None:
        """Send the client a notification."""
        if frame.method == "notifications/progress":
            frame = structs.replace(frame, params=self._redact(frame.params))
        self._request.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Ask the client."""
        return await self._request.ask(frame, on_status)
