"""One entry of a server's list, as clients are shown it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from dynamic_mcp.middleware.json_bytes import decode_object, encode_object

ListKind = Literal["tools", "prompts", "resources", "templates"]

# The member of a definition that names it.
_KEYS: Mapping[ListKind, str] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}


@dataclass(frozen=True)
class Item:
    """A tool, a prompt, a resource or a template. `name` is the server's own name of it, or its URI.

    `raw` is its definition as it is shown, as JSON.
    """

    kind: ListKind
    server: str
    name: str
    raw: bytes

    @cached_property
    def definition(self) -> Mapping[str, Any]:  # Any: JSON
        """The definition, decoded when it is asked for. Raises ValueError if it is no JSON object."""
        return decode_object(self.raw)

    def replace(self, **members: Any) -> Item:  # Any: JSON
        """Return the item with other members of its definition, named as MCP names them.

        None takes a member away. Raises ValueError for the name or URI, which cannot be changed.
        """
        if _KEYS[self.kind] in members:
            raise ValueError(f"`{_KEYS[self.kind]}` cannot be replaced")
        changed = {key: value for key, value in {**self.definition, **members}.items() if value is not None}
        return replace(self, raw=encode_object(changed))
