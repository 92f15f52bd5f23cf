"""Which groups have a gate, which holds back definitions of their servers. A feature makes the gates.

It is loaded with the first catalog that it has to judge, and not where the config trusts all servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from dynamic_mcp.config.resolved import Config, Pinning, Presentation
from dynamic_mcp.features.table import feature_with_gates
from dynamic_mcp.groups.assignment import Place
from dynamic_mcp.groups.gate import DeferredGate, Gate
from dynamic_mcp.groups.group import Group
from dynamic_mcp.proxy.request import Event

if TYPE_CHECKING:
    from dynamic_mcp.system.shared_store import SharedStore


class GateContext(Struct, frozen=True):
    """The services of a proxy that gates use.

    `note` takes events, and `announce` tells clients of a group whose lists are others now.
    """

    note: Callable[[Event], None]
    announce: Callable[[Group], None]


class GateService(Protocol):
    """Makes the gates of one proxy. `make_service` of a module makes it of a config and a `GateContext`."""

    def make_gate(self, group: Group, pinning: Pinning) -> Gate:
        """Return what holds back definitions of a group as this says."""
        ...

    def apply(self, config: Config) -> None:
        """Judge as another config says from now on."""
        ...

    def share(self, store: SharedStore | None) -> None:
        """Judge by what this store has of other replicas, too, from now on."""
        ...

    async def wait_for_shared(self, within_s: float) -> None:
        """Wait until that is known, for so long at most."""
        ...

    async def close(self) -> None:
        """Write pending changes."""
        ...


MakeService = Callable[[Config, GateContext], GateService]


def load_gates(config: Config) -> None:
    """Load what makes gates, if this config wants some, before there is a catalog to judge."""
    if any(each.pinning.policy != "trust" for each in config.presentations.values()):
        _find_maker()


class Gates:
    """Gives groups of one proxy their gates, over all versions of a config."""

    def __init__(self, context: GateContext) -> None:
        self._context = context
        self._config: Config | None = None
        self._service: GateService | None = None
        self._store: SharedStore | None = None
        self._pinnings: WeakKeyDictionary[Group, Pinning] = WeakKeyDictionary()

    def apply(self, configs: Mapping[Place, Config], groups: Iterable[Group]) -> None:
        """Have definitions held back as these configs say from now on."""
        self._config = configs[None]
        presentations: dict[str, Presentation] = {}
        for config in configs.values():
            presentations |= config.presentations  # that of a server is the same in all places
        self.add(presentations, groups)
        if self._service is not None:
            self._service.apply(self._config)

    def add(self, presentations: Mapping[str, Presentation], groups: Iterable[Group]) -> None:
        """Give these groups the gates that the config wants for their servers."""
        for group in groups:
            self._attach(group, presentations[group.name].pinning)

    def share(self, store: SharedStore | None) -> None:
        """Judge by what this store has of other replicas, too, from now on."""
        self._store = store
        if store is not None and self._service is None and self._config is not None and self._pinnings:
            self._make_service(self._config)
        elif self._service is not None:
            self._service.share(store)

    async def wait_for_shared(self, within_s: float) -> None:
        """Wait until it is known what other replicas have judged, for so long at most."""
        if self._store is not None and self._service is not None:
            await self._service.wait_for_shared(within_s)

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    def _attach(self, group: Group, pinning: Pinning) -> None:
        if pinning.policy == "trust":
            if self._pinnings.pop(group, None) is not None:
                group.admission.set_gate(None)
        elif pinning != self._pinnings.get(group):
            self._pinnings[group] = pinning
            if self._service is None:
                gate: Gate = DeferredGate(partial(self._make_gate, group, pinning))
            else:
                gate = self._service.make_gate(group, pinning)
            group.admission.set_gate(gate)

    def _make_gate(self, group: Group, pinning: Pinning) -> Gate:
        """Return the gate of a group, and give all others theirs: what is approved for one is taken up by all."""
        if self._service is None:
            assert self._config is not None
            self._service = self._make_service(self._config)
        gate = group.admission.gate
        if gate is None or self._pinnings.get(group) != pinning:  # the config has changed since it was asked for
            return self._service.make_gate(group, pinning)
        return gate

    def _make_service(self, config: Config) -> GateService:
        """Make the service, and the gates of all groups that want one."""
        service = self._service = _find_maker()(config, self._context)
        if self._store is not None:
            service.share(self._store)
        for group, pinning in self._pinnings.items():
            group.admission.set_gate(service.make_gate(group, pinning))
        return service


def _find_maker() -> MakeService:
    feature = feature_with_gates()
    if feature is None:
        raise LookupError("no feature of this program holds back definitions")
    make: MakeService = feature.load(feature.gates).make_service
    return make
