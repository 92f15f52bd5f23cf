"""The steps by which observers hear of calls: what a call is about, and what is sent and answered."""

from __future__ import annotations

from collections.abc import Awaitable

from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest


class ObserveTarget(Step):
    """Writes into the observation where a call goes, with the arguments that are sent."""

    decides = True  # about the arguments that are recorded

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        if call.request.observation is not None:
            call.request.observation.note_target(call.group, call.method, call.params)
        return next(call)


class ObserveSending(Step):
    """Tells observers of a call right before it is sent, and of the server's answer."""

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Send a call. Raises what an observer raises to keep it from being sent."""
        observation = call.request.observation
        return next(call) if observation is None else observation.observers.send(call, next)
