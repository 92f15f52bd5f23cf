"""The rules of features on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.table import FEATURES, Feature, Rules
from dynamic_mcp.groups.catalog import Catalog


class RuleSet:
    """The rules of one feature on the calls of one server. Tools have the names that the server gives them."""

    def judges(self, tool: str) -> bool:
        """Return whether they decide about the arguments of a tool, so that these must be known to be valid."""
        return False

    def check_arguments(self, tool: str, arguments: Raw) -> None:
        """Raise DynamicMcpError if a tool may not be called with these arguments, also if a person allows it."""

    def present_text(self, tool: str, text: str) -> str:
        """Return a text of our own in an answer of a tool as clients may see it; it may repeat arguments."""
        return text

    def present_message(self, payload: Raw) -> Raw:
        """Return the params of what the server says by itself as clients may see them."""
        return payload


class ShownTool(Protocol):
    """A tool in the way that clients see it."""

    @property
    def own_name(self) -> str:
        """The name that its server gives it."""
        ...

    @property
    def entry(self) -> Raw:
        """Its definition as it is shown."""
        ...

    @property
    def changes_arguments(self) -> bool:
        """Whether the server is sent something else than what a model gives."""
        ...

    def restore(self, given: Raw | None) -> Raw | None:
        """Return the arguments for the server of those that a model gives. Raises InvalidArguments."""
        ...

    def present(self, sent: Raw) -> Raw:
        """Return what a client may see of arguments that are sent."""
        ...


class ToolRules(RuleSet):
    """Rules by which tools are shown in another way than their server has them."""

    def show(self, catalog: Catalog) -> Catalog:
        """Return a catalog with the tools as they are shown; the names are those of the last one."""
        raise NotImplementedError

    def find(self, name: str) -> ShownTool | None:
        """Return the tool that is shown by this name."""
        raise NotImplementedError

    def shown_name(self, own_name: str) -> str:
        """Return by which name a tool of the server is shown; its own if it is not."""
        raise NotImplementedError

    def own_names(self, shown: str) -> Sequence[str]:
        """Return the names by which the server may have a tool that is shown by this one, or would be."""
        raise NotImplementedError


def compile_rules(presentation: Presentation, server: str) -> dict[str, RuleSet]:
    """Return the rules on the calls of a server, by the names of the features that they are of."""
    return {
        feature.name: _compile(feature, rules, presentation, server) for feature, rules in _rules_in(presentation)
    }


def compile_tool_rules(presentation: Presentation, server: str) -> ToolRules | None:
    """Return how tools of a server are shown, if that is another way than it has them."""
    own = _rules_in(presentation, lambda rules: rules.shows_tools)
    compiled = (_compile(feature, rules, presentation, server) for feature, rules in own)
    return next((each for each in compiled if isinstance(each, ToolRules)), None)


def compile_message_rules(presentation: Presentation, server: str) -> list[RuleSet]:
    """Return the rules that change what a server answers, and what it says by itself."""
    own = _rules_in(presentation, lambda rules: rules.changes_messages)
    return [_compile(feature, rules, presentation, server) for feature, rules in own]


def shows_tools(presentation: Presentation) -> bool:
    """Return whether tools of a server are shown in another way than it has them."""
    return any(True for _ in _rules_in(presentation, lambda rules: rules.shows_tools))


def judging_rules(presentation: Presentation) -> list[object]:
    """Return those rules of a server that decide about arguments, as the config has them."""
    return [presentation.rules[rules.key] for _, rules in _rules_in(presentation, lambda rules: rules.judges)]


def message_rules(presentation: Presentation) -> list[object]:
    """Return those rules of a server that change what it answers, as the config has them."""
    return [
        presentation.rules[rules.key] for _, rules in _rules_in(presentation, lambda rules: rules.changes_messages)
    ]


def _compile(feature: Feature, rules: Rules, presentation: Presentation, server: str) -> RuleSet:
    compiled: RuleSet = feature.find(rules.compile)(presentation, server)
    return compiled


def _rules_in(
    presentation: Presentation, is_wanted: Callable[[Rules], bool] = lambda rules: True
) -> Iterator[tuple[Feature, Rules]]:
    """Yield the features that have rules of this sort in what is presented of a server."""
    for feature in FEATURES:
        rules = feature.rules
        if rules is not None and rules.key in presentation.rules and is_wanted(rules):
            yield feature, rules
