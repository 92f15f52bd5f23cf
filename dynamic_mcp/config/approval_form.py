"""The form of `settings.approval`, as `form` has it for the rest of the file."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config import observe_values
from dynamic_mcp.config.section import Duration, Section

Channels = Annotated[list[Literal["client", "queue"]], Meta(min_length=1)]


class Notify(Section, frozen=True):
    """How a person learns that something waits in the queue."""

    desktop: Annotated[bool | None, "Show a notification on the desktop, where there is one. Default: true."] = None
    command: Annotated[
        Annotated[list[str], observe_values.check_command] | None,
        "A program that is started for each call that waits, and reads it as JSON on stdin. Default: none.",
    ] = None


class Approval(Section, frozen=True):
    """How a person is asked before a call whose rule says `ask`."""

    channels: Annotated[
        Channels | None,
        "Where to ask, in this order: `client` shows a form in the AI tool, `queue` waits for `dynamic-mcp approve`."
        " Default: both.",
    ] = None
    hold: Annotated[Duration, "How long a call waits for a decision. Default: 50s."] = None
    hold_with_progress: Annotated[
        Duration, "How long it waits if its client is told of progress meanwhile. Default: 210s."
    ] = None
    valid_for: Annotated[
        Duration,
        "How long a call without a decision stays in the queue, and how long an approval waits for the repeated call."
        " Default: 10min.",
    ] = None
    remember: Annotated[
        list[Literal["hour", "session"]] | None,
        "For how long a person may approve a tool with any arguments, besides once. Default: both.",
    ] = None
    notify: Annotated[Notify | None, "How a person learns that something waits in the queue."] = None
