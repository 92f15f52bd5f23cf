"""What groups need of whoever shows them to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from dynamic_mcp.client import Client, User
from dynamic_mcp.mcp.wire import Frame

if TYPE_CHECKING:
    from dynamic_mcp.groups.group import Group
    from dynamic_mcp.groups.instance import Instance


class Observer(Protocol):
    """Whoever shows the groups to clients."""

    def shows(self, group: Group, client: Client) -> bool:
        """Tell whether a client sees a group; for those that it does not see, nothing is started."""
        ...

    def group_changed(self, group: Group) -> None:
        """Learn that a group's state or catalog is another one now."""
        ...

    def link_opened(self, group: Group, instance: Instance) -> None:
        """Learn that an instance has a new link, whose upstream knows nothing of what clients have asked for."""
        ...

    def client_moved(self, group: Group, client: Client, before: Instance) -> None:
        """Learn that another instance of a group serves a client from now on."""
        ...

    def client_dismissed(self, group: Group, client: Client, before: Instance) -> None:
        """Learn that another group serves a client from now on, and other clients still use this one."""
        ...

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return who is asked a question of the upstream, where `user` would be by the calls in flight."""
        ...

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        """Return a request of the upstream as its client is asked it."""
        ...

    def receive_notification(
        self, group: Group, instance: Instance, frame: Frame, recipients: Sequence[User]
    ) -> None:
        """Take a notification of an upstream, and those who are to hear of it."""
        ...
