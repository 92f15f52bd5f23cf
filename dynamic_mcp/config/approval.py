"""How a person is asked before a call, as the program uses it: `settings.approval` with every default filled in."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from dynamic_mcp.config import approval_form
from dynamic_mcp.config.values import parse_duration

Channel = Literal["client", "queue"]
Remember = Literal["hour", "session"]


class Approval(Struct, frozen=True):
    """Where to ask, in this order; how long a call and an approval wait, in seconds; and what may be remembered.

    `command` is started for each call that waits in the queue; none if it is empty.
    """

    channels: tuple[Channel, ...] = ("client", "queue")
    hold_s: float = 50.0
    hold_with_progress_s: float = 210.0
    valid_for_s: float = 600.0
    remember: tuple[Remember, ...] = ("hour", "session")
    notifies_desktop: bool = True
    command: tuple[str, ...] = ()


def resolve_approval(own: approval_form.Approval | None) -> Approval:
    """Return how a person is asked."""
    given, default = own or approval_form.Approval(), Approval()
    notify = given.notify or approval_form.Notify()
    return Approval(
        channels=default.channels if given.channels is None else tuple(dict.fromkeys(given.channels)),
        hold_s=_seconds(given.hold, default.hold_s),
        hold_with_progress_s=_seconds(given.hold_with_progress, default.hold_with_progress_s),
        valid_for_s=_seconds(given.valid_for, default.valid_for_s),
        remember=default.remember if given.remember is None else tuple(dict.fromkeys(given.remember)),
        notifies_desktop=default.notifies_desktop if notify.desktop is None else notify.desktop,
        command=tuple(notify.command or ()),
    )


def _seconds(value: str | float | None, default: float) -> float:
    found = parse_duration(value)
    return default if found is None else found
