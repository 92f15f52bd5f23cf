"""Holds back definitions between a group and its clients, where the config asks for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog

if TYPE_CHECKING:
    from dynamic_mcp.groups.live_catalog import LiveCatalog


class Gate(Protocol):
    """Holds back definitions of one group that are not approved."""

    def holds_none(self, catalog: Catalog | None) -> bool:
        """Return whether no definition of the known catalog is held back, so that `check` lets every request pass."""
        ...

    @property
    def is_behind(self) -> bool:
        """True if a known definition of the group is not judged yet."""
        ...

    async def catch_up(self) -> None:
        """Judge the known definitions, unless they change faster than they can be judged."""
        ...

    def admit(self, whole: Catalog) -> Catalog | None:
        """Return a catalog without what is held back; the same object while nothing changes.

        One that takes long is judged meanwhile, and what was admitted before stays: None if nothing was.
        """
        ...

    async def admit_hello(self, hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return an upstream's answer to `initialize`, without instructions that are held back."""
        ...

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Check a request that is sent now. Raises DefinitionHeld if it is about a definition that is held back.

        `shown` is the name that its client knows that by, if it is not the server's.
        """
        ...


class DeferredGate:
    """Makes its gate when there is something to judge. If the gate cannot be made, nothing passes."""

    def __init__(self, make: Callable[[], Gate]) -> None:
        self._make = make
        self._cached_gate: Gate | None = None

    def holds_none(self, catalog: Catalog | None) -> bool:
        return self._gate.holds_none(catalog)

    @property
    def is_behind(self) -> bool:
        return self._gate.is_behind

    async def catch_up(self) -> None:
        await self._gate.catch_up()

    def admit(self, whole: Catalog) -> Catalog | None:
        return self._gate.admit(whole)

    async def admit_hello(self, hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
        return await self._gate.admit_hello(hello)

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        self._gate.check(method, params, shown=shown)

    @property
    def _gate(self) -> Gate:
        if self._cached_gate is None:
            self._cached_gate = self._make()
        return self._cached_gate


class GatedCatalog:
    """The part of one group's catalog that clients may see: all of it, or what a gate admits."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self.gate: Gate | None = None  # None admits everything
        self._admitted: tuple[Catalog | None, Catalog | None] | None = None

    def catalog(self) -> Catalog | None:
        """Return the admitted part of the known catalog, before it is presented."""
        known = self._catalog.current
        if self._admitted is None or self._admitted[0] is not known:
            admitted = known if known is None or self.gate is None else self.gate.admit(known)
            self._admitted = known, admitted
        return self._admitted[1]

    def set_gate(self, gate: Gate | None) -> None:
        self.gate, self._admitted = gate, None

    async def admit(self, whole: Catalog) -> Catalog:
        """Return the admitted part of a catalog that was just read, once it is judged."""
        if self.gate is None:
            return whole
        if self.gate.is_behind:
            await self.gate.catch_up()
        return self.gate.admit(self._catalog.current or whole) or Catalog()

    def renew(self) -> None:
        """Ask the gate again, after its decisions have changed."""
        self._admitted = None
