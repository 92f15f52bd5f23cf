"""What stands between a group and its clients, where definitions are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog


class Gate(Protocol):
    """Holds back what nobody has approved of one group."""

    def admit(self, whole: Catalog) -> Catalog:
        """Return a catalog without what is held back; as long as nothing changes, the same object."""
        ...

    def admit_hello(self, said: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return what an upstream says of itself, without instructions that are held back."""
        ...

    def check(self, method: str, params: Mapping[str, Raw] | None) -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld if it is about something that is held back."""
        ...
