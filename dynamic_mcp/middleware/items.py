"""One entry of a server's list, as shown to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from dynamic_mcp.middleware.json_bytes import decode_object, encode_object

ListKind = Literal["tools", "prompts", "resources", "templates"]

# The member with the name of a definition.
_KEYS: Mapping[ListKind, str] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}


@dataclass(frozen=True)
class Item:
    """A tool, a prompt, a resource or a template. `name` is the server's name for it, or its URI.

    `raw` is its definition, as shown to clients, as JSON.
    """

    kind: ListKind
    server: str
    name: str
    raw: bytes

    @cached_property
    def definition(self) -> Mapping[str, Any]:  # Any: JSON
        """The definition, decoded on access. Raises ValueError if it is not a JSON object."""
        return decode_object(self.raw)

    def replace(self, **members: Any) -> Item:  # Any: JSON
        """Return the item with other members of its definition, named as in MCP.

        None removes a member. Raises ValueError for the name or URI, which cannot be changed.
        """
        if _KEYS[self.kind] in members:
            raise ValueError(f"`{_KEYS[self.kind]}` cannot be replaced")
        changed = {key: value for key, value in {**self.definition, **members}.items() if value is not None}
        return replace(self, raw=encode_object(changed))
