"""Where texts are replaced in what servers say by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.mcp.wire import Frame

if TYPE_CHECKING:
    from dynamic_mcp.policy.redact import Redactor


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
