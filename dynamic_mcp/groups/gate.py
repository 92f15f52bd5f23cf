"""What stands between a group and its clients, where the config has definitions held back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog

if TYPE_CHECKING:
    from dynamic_mcp.groups.live_catalog import LiveCatalog


class Gate(Protocol):
    """Holds back what nobody has approved of one group."""

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

    async def admit_hello(self, said: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return what an upstream says of itself, without instructions that are held back."""
        ...

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld if it is about something that is held back.

        `shown` is the name that its client knows that by, if it is not the server's.
        """
        ...


class Admission:
    """What of one group's catalog clients may be shown: all that is known, or what a gate admits of it."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self._gate: Gate | None = None
        self._set_gate: Callable[[], None] | None = None
        self._admitted: tuple[Catalog | None, Catalog | None] | None = None

    @property
    def known(self) -> Catalog | None:
        """What is admitted of what is known, before it is presented."""
        known = self._catalog.known
        if self._admitted is None or self._admitted[0] is not known:
            admitted = known if known is None or self.gate is None else self.gate.admit(known)
            self._admitted = known, admitted
        return self._admitted[1]

    @property
    def gate(self) -> Gate | None:
        """What holds back what nobody has approved; None admits everything."""
        if self._set_gate is not None:
            self._set_gate()
        return self._gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._gate, self._set_gate, self._admitted = gate, None, None

    def defer_gate(self, set_gate: Callable[[], None]) -> None:
        """Have the gate set by this once it is asked for. Until it has set one, it is called again."""
        self._gate, self._set_gate, self._admitted = None, set_gate, None

    async def admit(self, whole: Catalog) -> Catalog:
        """Return a catalog that was just learnt without what is held back, once it is judged."""
        gate = self.gate
        if gate is None:
            return whole
        if gate.is_behind:
            await gate.catch_up()
        return gate.admit(self._catalog.known or whole) or Catalog()

    def renew(self) -> None:
        """Ask the gate once more, which has changed its mind."""
        self._admitted = None
