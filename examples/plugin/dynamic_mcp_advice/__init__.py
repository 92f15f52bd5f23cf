"""A plug-in for dynamic-mcp that adds advice to errors of tools, and hides tools that are deprecated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamic_mcp.middleware import (
    CallerInfo,
    CallFailed,
    CallRequest,
    CallResult,
    Item,
    ListKind,
    Middleware,
    Next,
    PluginServices,
)


class Advice(Middleware):
    """Options: `advice`, what to say after errors that contain a text; `hide_deprecated`, whether to hide tools."""

    async def open(self, options: Mapping[str, Any], services: PluginServices) -> None:
        """Read the options. Raises ValueError if they are wrong."""
        unknown = options.keys() - {"advice", "hide_deprecated"}
        if unknown:
            raise ValueError(f"unknown options: {', '.join(sorted(unknown))}")
        self._advice = {text.casefold(): words for text, words in options.get("advice", {}).items()}
        self._hides_deprecated = options.get("hide_deprecated", False)
        services.log.info("advice for %d errors", len(self._advice))

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        """Let the call pass, and add advice to its error."""
        try:
            result = await next(request)
        except CallFailed as exc:
            words = self._find(exc.message)
            if request.kind != "tool" or not words:
                raise
            return CallResult.error(f"{exc.message}\n{words}")
        if request.kind != "tool" or not result.is_error:
            return result
        words = self._find(" ".join(str(block.get("text", "")) for block in result.content))
        return result.replace(content=[*result.content, {"type": "text", "text": words}]) if words else result

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        """Leave out tools whose description begins with `Deprecated`."""
        if kind != "tools" or not self._hides_deprecated:
            return items
        return [each for each in items if not str(each.definition.get("description", "")).startswith("Deprecated")]

    def _find(self, error: str) -> str:
        folded = error.casefold()
        return " ".join(words for text, words in self._advice.items() if text in folded)
