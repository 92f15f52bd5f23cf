"""Configures how a user is asked before a call: `settings.approval`."""

from typing import Annotated, Literal

from msgspec import Meta, field

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.section import Section, Value
from dynamic_mcp.config.types import Command, Duration, unique

Channel = Literal["client", "queue"]
Remember = Literal["hour", "session"]
_Channels = Annotated[tuple[Channel, ...], Value(unique, written=Annotated[list[Channel], Meta(min_length=1)])]
_Remembered = Annotated[tuple[Remember, ...], Value(unique, written=list[Remember])]


class Notify(Section, frozen=True):
    """How a user learns that something waits in the queue."""

    desktop: Annotated[bool, "Show a notification on the desktop, where there is one. Default: true."] = True
    command: Annotated[
        Command,
        "A program that is started for each call that waits. It reads the call as JSON on stdin. Default: none.",
    ] = ()


class Approval(Section, frozen=True):
    """How a user is asked before a call whose rule says `ask`."""

    channels: Annotated[
        _Channels,
        "Where to ask, in this order: `client` shows a form in the AI tool, `queue` waits for `dynamic-mcp approve`."
        " Default: both.",
    ] = ("client", "queue")
    hold_s: Annotated[Duration, "How long a call waits for a decision. Default: 50s."] = field(
        default=50.0, name="hold"
    )
    hold_with_progress_s: Annotated[
        Duration, "How long it waits if its client receives progress notifications meanwhile. Default: 210s."
    ] = field(default=210.0, name="hold_with_progress")
    valid_for_s: Annotated[
        Duration,
        "How long an undecided call stays in the queue, and how long an approval waits for the repeated call."
        " Default: 10min.",
    ] = field(default=600.0, name="valid_for")
    remember: Annotated[
        _Remembered, "For how long a user may approve all calls of a tool, besides this one. Default: both."
    ] = ("hour", "session")
    notify: Annotated[Notify, "How a user learns that a call waits in the queue."] = Notify()


def settings_of(config: Config) -> Approval:
    """Return the approval settings of a config, or the defaults."""
    return config.settings_of("approval", Approval) or Approval()
