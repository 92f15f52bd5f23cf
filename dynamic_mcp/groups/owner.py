"""What an instance needs of the group that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from dynamic_mcp.client import Client, ClientHello, User
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.gate import Admission
from dynamic_mcp.mcp.wire import Frame

if TYPE_CHECKING:
    from dynamic_mcp.groups.instance import Instance


class Owner(Protocol):
    """The group that an instance belongs to."""

    @property
    def admission(self) -> Admission:
        """What requests of clients have to pass before they are sent."""
        ...

    def successor_for(self, client: Client) -> Owner | None:
        """Return the group that serves a client instead, after the config has changed."""
        ...

    def instance_changed(self, instance: Instance) -> None:
        """Learn that an instance's state or the catalog has changed."""
        ...

    def link_opened(self, instance: Instance) -> None:
        """Learn that an instance has a new link, whose upstream knows nothing of what clients have asked for."""
        ...

    async def compare_offer(self, instance: Instance, hello: ClientHello, offer: Catalog) -> None:
        """Learn what the upstream offers over an instance's new link, on which it was told this `hello`."""
        ...

    def learn_asking(self, asked: Client | None) -> None:
        """Learn that the upstream has `asked` a client, so that an instance must be one client's only."""
        ...

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return who is asked a question of the upstream, where `user` would be by the calls in flight."""
        ...

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        """Return a request of the upstream as its client is asked it."""
        ...

    def receive_notification(self, instance: Instance, frame: Frame, recipients: Sequence[User]) -> None:
        """Take a notification of the upstream, and those who are to hear of it."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        *,
        timeout_s: float,
        caller: User,
        label: str = "",
    ) -> Frame:
        """Send a request over the instance of the caller's client."""
        ...

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind]) -> Catalog:
        """Return what the group offers, once these lists are known."""
        ...
