"""Applies the rules of features to messages that servers send by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.mcp.wire import Frame

if TYPE_CHECKING:  # loaded with the first rule
    from dynamic_mcp.policy.call_rules import RuleSet


class MessageRules:
    """Changes notifications and questions of servers.

    They can reach clients of several workspaces, so the rules of all configs are followed.
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        self._configs = configs
        self._rules: dict[str, tuple[RuleSet, ...]] = {}

    def present(self, server: str, frame: Frame) -> Frame:
        """Return a message as clients may see it; the same object if there is nothing to change."""
        rules = self._rules.get(server)
        if rules is None:
            rules = self._rules[server] = tuple(dict.fromkeys(self._find(server)))
        for each in rules if len(frame.params) else ():
            params = each.present_message(frame.params)
            frame = frame if params is frame.params else structs.replace(frame, params=params)
        return frame

    def _find(self, server: str) -> Iterator[RuleSet]:
        for config in self._configs:
            shown = config.presentations.get(server)
            if shown is not None and shown.rules:
                from dynamic_mcp.policy.call_rules import compile_message_rules

                yield from compile_message_rules(shown, server)
