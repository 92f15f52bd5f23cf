"""The rules of features on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.table import FEATURES, Feature, Rules
from dynamic_mcp.groups.catalog import Catalog


class RuleSet:
    """The rules of one feature on the calls of one server. Tools have their upstream names."""

    def judges(self, tool: str) -> bool:
        """Return whether the rules depend on the arguments of a tool, so that these must be valid."""
        return False

    def check_arguments(self, tool: str, arguments: Raw) -> None:
        """Raise DynamicMcpError if a tool may not be called with these arguments, even after approval."""

    def present_text(self, tool: str, text: str) -> str:
        """Return one of our own texts in an answer of a tool as clients may see it; it may repeat arguments."""
        return text

    def present_message(self, payload: Raw) -> Raw:
        """Return the params of a server's own messages as clients may see them."""
        return payload

    def mark_text(self, text: str) -> str:
        """Return a text of a tool's result, as long as a model gets it, with marks around it."""
        return text


class ShownTool(Protocol):
    """A tool in the form that clients see."""

    @property
    def own_name(self) -> str:
        """The upstream name."""
        ...

    @property
    def entry(self) -> Raw:
        """The definition in the form that clients see."""
        ...

    @property
    def changes_arguments(self) -> bool:
        """Return whether the server's arguments differ from the model's."""
        ...

    def restore(self, arguments: Raw | None) -> Raw | None:
        """Return the server's arguments for those of a model. Raises InvalidArguments."""
        ...

    def present(self, sent: Raw) -> Raw:
        """Return the arguments sent to the server as clients may see them."""
        ...


class ToolRules(RuleSet):
    """Rules that change how tools are shown to clients."""

    def show(self, catalog: Catalog) -> Catalog:
        """Return the catalog as clients see it. The other methods refer to the last one."""
        raise NotImplementedError

    def find(self, name: str) -> ShownTool | None:
        """Return the tool with this shown name."""
        raise NotImplementedError

    def shown_name(self, own_name: str) -> str:
        """Return the shown name of a tool of the server; its own name if it is not shown."""
        raise NotImplementedError

    def own_names(self, shown: str) -> Sequence[str]:
        """Return the upstream names of tools that have, or would have, this shown name."""
        raise NotImplementedError


def compile_rules(presentation: Presentation, server: str) -> dict[str, RuleSet]:
    """Return the rules on the calls of a server, by the names of their features."""
    return {
        feature.name: _compile(feature, rules, presentation, server) for feature, rules in _rules_in(presentation)
    }


def compile_tool_rules(presentation: Presentation, server: str) -> ToolRules | None:
    """Return the rules that change how tools of a server are shown, or None."""
    rule_sections = _rules_in(presentation, lambda rules: rules.shows_tools)
    compiled = (_compile(feature, rules, presentation, server) for feature, rules in rule_sections)
    return next((each for each in compiled if isinstance(each, ToolRules)), None)


def compile_message_rules(presentation: Presentation, server: str) -> list[RuleSet]:
    """Return the rules that change a server's answers and its own messages."""
    rule_sections = _rules_in(presentation, lambda rules: rules.changes_messages)
    return [_compile(feature, rules, presentation, server) for feature, rules in rule_sections]


def shows_tools(presentation: Presentation) -> bool:
    """Return whether any tools of a server are shown differently."""
    return any(True for _ in _rules_in(presentation, lambda rules: rules.shows_tools))


def judging_rules(presentation: Presentation) -> list[object]:
    """Return the rules of a server that depend on arguments, as written in the config."""
    return [presentation.rules[rules.key] for _, rules in _rules_in(presentation, lambda rules: rules.judges)]


def message_rules(presentation: Presentation) -> list[object]:
    """Return the rules of a server that change its answers, as written in the config."""
    return [
        presentation.rules[rules.key] for _, rules in _rules_in(presentation, lambda rules: rules.changes_messages)
    ]


def _compile(feature: Feature, rules: Rules, presentation: Presentation, server: str) -> RuleSet:
    compiled: RuleSet = feature.find(rules.compile)(presentation, server)
    return compiled


def _rules_in(
    presentation: Presentation, is_wanted: Callable[[Rules], bool] = lambda rules: True
) -> Iterator[tuple[Feature, Rules]]:
    """Yield the features that have matching rules in the presentation of a server."""
    for feature in FEATURES:
        rules = feature.rules
        if rules is not None and rules.key in presentation.rules and is_wanted(rules):
            yield feature, rules
