"""Stands between a group and its clients, where the config has definitions held back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog

if TYPE_CHECKING:
    from dynamic_mcp.groups.live_catalog import LiveCatalog


class Gate(Protocol):
    """Holds back definitions of one group that are not approved."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back of what the group is known to offer: `check` lets every request pass."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether the group is known to offer something that is not judged yet."""
        ...

    async def catch_up(self) -> None:
        """Judge what the group is known to offer now, unless it changes faster than that goes."""
        ...

    def admit(self, whole: Catalog) -> Catalog | None:
        """Return a catalog without what is held back; as long as nothing changes, the same object.

        One that takes long is judged meanwhile, and what was admitted before stays: None if nothing was.
        """
        ...

    async def admit_hello(self, hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return an upstream's answer to `initialize`, without instructions that are held back."""
        ...

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld if it is about something that is held back.

        `shown` is the name that its client knows that by, if it is not the server's.
        """
        ...


class DeferredGate:
    """A gate that is made once it has to judge something. If it cannot be made, nothing passes."""

    def __init__(self, make: Callable[[], Gate]) -> None:
        self._make = make
        self._made: Gate | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back."""
        return self._gate.is_open

    @property
    def is_behind(self) -> bool:
        """Whether something is not judged yet."""
        return self._gate.is_behind

    async def catch_up(self) -> None:
        """Judge what the group is known to offer now."""
        await self._gate.catch_up()

    def admit(self, whole: Catalog) -> Catalog | None:
        """Return a catalog without what is held back."""
        return self._gate.admit(whole)

    async def admit_hello(self, hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return an upstream's answer to `initialize`, without instructions that are held back."""
        return await self._gate.admit_hello(hello)

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld."""
        self._gate.check(method, params, shown=shown)

    @property
    def _gate(self) -> Gate:
        if self._made is None:
            self._made = self._make()
        return self._made


class Admission:
    """What of one group's catalog clients may be shown: all that is known, or what a gate admits of it."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self.gate: Gate | None = None  # None admits everything
        self._admitted: tuple[Catalog | None, Catalog | None] | None = None

    @property
    def known(self) -> Catalog | None:
        """What is admitted of what is known, before it is presented."""
        known = self._catalog.known
        if self._admitted is None or self._admitted[0] is not known:
            admitted = known if known is None or self.gate is None else self.gate.admit(known)
            self._admitted = known, admitted
        return self._admitted[1]

    def set_gate(self, gate: Gate | None) -> None:
        """Admit what another gate admits from now on."""
        self.gate, self._admitted = gate, None

    async def admit(self, whole: Catalog) -> Catalog:
        """Return a catalog that was just learnt without what is held back, once it is judged."""
        if self.gate is None:
            return whole
        if self.gate.is_behind:
            await self.gate.catch_up()
        return self.gate.admit(self._catalog.known or whole) or Catalog()

    def renew(self) -> None:
        """Ask the gate again, which now decides otherwise."""
        self._admitted = None
