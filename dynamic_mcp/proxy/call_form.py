"""Refuses parameters that a server may read in another way than the rules do."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from msgspec import Raw, structs

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.globs import fold
from dynamic_mcp.proxy.chain import Step, has_middleware
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.proxy.view import GroupView

# Parameters that say what a request is about.
_TEXTS = frozenset(("name", "uri", "taskId", "type"))
_KEYS = _TEXTS | {"arguments", "ref"}
_PLAIN = frozenset(("name", "arguments", "_meta", "task"))
_FOLDED_KEYS = frozenset(map(fold, _KEYS))
# What concerns nothing that rules are about, or only what was decided before.
HARMLESS = frozenset(
    (
        "ping",
        "logging/setLevel",
        "resources/unsubscribe",
        "tasks/list",
    )
)


class CheckForm(Step):
    """Refuses requests whose parameters can be read in several ways, where rules or plug-ins look at them."""

    decides = True

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Check a request, and say which tool it calls. Raises wire.Malformed."""
        params = call.params or {}
        if call.method == "tools/call":
            tool = wire.text(params.get("name"))
            if (tool is None or not _PLAIN.issuperset(params)) and self._is_ruled(call.group):
                _check(call, params)
            return next(call if call.tool == tool else structs.replace(call, tool=tool))
        if call.group.rules is not None and call.method not in HARMLESS:
            _check(call, params)
        return next(call)

    def _is_ruled(self, group: GroupView) -> bool:
        return group.rules is not None or bool(group.call_rules) or has_middleware(group, self.services)


def _check(call: UpstreamRequest, params: Mapping[str, Raw]) -> None:
    try:
        check_form(params)
    except wire.Malformed:
        if call.request.observation is not None:
            plain = {name: value for name, value in params.items() if name != "arguments"}  # not redacted yet
            call.request.observation.note_target(call.group, call.method, plain)
        raise


def check_form(params: Mapping[str, Raw]) -> None:
    """Refuse params that servers may read in another way than we do. Raises wire.Malformed.

    Some do not care about the case of a key, some take the first of two equal keys, and some take a list for a text.
    """
    for key, value in params.items():
        if key in _TEXTS and wire.text(value) is None:
            raise wire.Malformed(f"`{key}` is not a string")
        if key not in _KEYS and fold(key) in _FOLDED_KEYS:
            raise wire.Malformed(f"`{key}` is not a parameter")
    if "ref" in params:
        try:
            names = wire.list_names(params["ref"])
        except RecursionError:
            raise wire.Malformed("`ref` is nested too deeply") from None
        reference = wire.members(params["ref"])
        if len(names) != len(reference):
            raise wire.Malformed("`ref` has a duplicate key")
        check_form(reference)
