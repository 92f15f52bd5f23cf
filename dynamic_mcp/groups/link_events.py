"""What the link of an instance says by itself: whom it is for is known here and in the group, and not to the link."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from dynamic_mcp.client import Caller, User
from dynamic_mcp.errors import LinkLost, LoginNeeded
from dynamic_mcp.groups.catalog import CHANGED_BY, ListKind
from dynamic_mcp.groups.owner import Owner
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.any_link import AnyLink

if TYPE_CHECKING:
    from dynamic_mcp.groups.instance import Instance


class LinkEvents:
    """Listens to the links of an instance. `wake` has its supervisor look at what there is to do."""

    def __init__(
        self,
        instance: Instance,
        owner: Owner,
        *,
        mark_stale: Callable[[Iterable[ListKind]], None],
        wake: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._owner = owner
        self._mark_stale = mark_stale
        self._wake = wake

    def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
        """Return a request of the upstream as its client is asked it."""
        return self._owner.prepare_question(self._instance, frame, cast(User, caller))

    def choose_caller(self, frame: Frame, callers: Sequence[Caller]) -> Caller | None:
        """Return who answers a request of the upstream; nobody where it could be meant for several clients."""
        user = self._owner.choose_user(self._instance, frame, self._instance.users.choose(callers))
        self._owner.learn_asking(None if user is None else user.client)
        self._wake()  # there may be something to store
        return user

    def receive_notification(self, frame: Frame, callers: Sequence[Caller] | None) -> None:
        """Take a notification that names no call."""
        if frame.method in CHANGED_BY:
            self._mark_stale(CHANGED_BY[frame.method])
        else:
            recipients = () if callers is None else self._instance.users.recipients(callers)
            self._owner.receive_notification(self._instance, frame, recipients)

    def link_lost(self, link: AnyLink, error: LinkLost | LoginNeeded) -> None:
        """Learn that a link is over."""
        self._instance.link_lost(link, error)
