"""Which parameters of an upstream's tools are mirrored into headers, as its lists have said."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.mirrored_headers import HeaderParameters, InvalidAnnotation

Headers = tuple[tuple[bytes, bytes], ...]


class ToolHeaders:
    """The tools of one link with parameters that are mirrored."""

    def __init__(self) -> None:
        self._tools: dict[str, HeaderParameters] = {}

    def learn(self, result: Raw) -> None:
        """Take the tools of a result of `tools/list`; one with an invalid annotation mirrors nothing."""
        try:
            tools = wire.elements(wire.member(result, "tools"))
        except wire.Malformed:
            return
        for tool in tools:
            name = wire.text(wire.member(tool, "name"))
            if name is None:
                continue
            try:
                parameters = HeaderParameters.of(wire.member(tool, "inputSchema"))
            except InvalidAnnotation:
                parameters = HeaderParameters()
            if parameters.is_empty:
                self._tools.pop(name, None)
            else:
                self._tools[name] = parameters

    def headers(self, tool: str, arguments: Raw) -> Headers:
        """Return the headers of a call of a tool."""
        parameters = self._tools.get(tool)
        return () if parameters is None else parameters.headers(arguments)
