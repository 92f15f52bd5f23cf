"""The rules on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.groups.catalog import Catalog


class RuleSet:
    """The rules of one feature on the calls of one server. Tools have the names that the server gives them."""

    def judges(self, tool: str) -> bool:
        """Return whether they decide about the arguments of a tool, so that these must be known to be valid."""
        return False

    def check_arguments(self, tool: str, arguments: Raw) -> None:
        """Raise DynamicMcpError if a tool may not be called with these arguments, whoever allows it."""

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


class CallRules:
    """What a config says of the calls of one server; what it does not say is None, or empty."""

    def __init__(self, presentation: Presentation, server: str) -> None:
        self.sets: dict[str, RuleSet] = dict(_compile(presentation, server))

    @property
    def tools(self) -> ToolRules | None:
        """How tools are shown, if that is another way than their server has them."""
        return next((each for each in self.sets.values() if isinstance(each, ToolRules)), None)


def _compile(presentation: Presentation, server: str) -> Iterator[tuple[str, RuleSet]]:
    for feature in FEATURES:
        if feature.rules is not None and getattr(presentation.rules, feature.rules.key):
            yield feature.name, feature.find(feature.rules.compile)(presentation, server)
