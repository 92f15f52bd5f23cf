"""An MCP server that computes with dates: working days, the days between two dates, times in other zones.

    python dates.py

Models guess such answers; this server computes them. It needs no network and stores nothing.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

OUT_OF_YEARS = "the year must be between 1 and 9999"
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

server = MCPServer(
    "dates",
    title="Dates",
    version="1.0.0",
    instructions="Call `now` for today's date. Dates look like 2026-03-31, times like 2026-03-31T14:30.",
    log_level="WARNING",
)

Day = Annotated[date, Field(description="A date, such as 2026-03-31")]
Zone = Annotated[str, Field(description="A time zone, such as Europe/Paris or UTC")]
Holidays = Annotated[list[date], Field(description="Days off besides Saturdays and Sundays")]


class DayInfo(BaseModel):
    """A date and its place in the calendar."""

    date: date
    weekday: str
    iso_week: int = Field(description="The week of the year by ISO 8601, 1 to 53")


class Span(BaseModel):
    """The days between two dates; negative if the second is earlier."""

    days: int
    working_days: int = Field(description="The working days among them, including the last date but not the first")


class Moment(BaseModel):
    """A moment in one time zone."""

    zone: str
    time: datetime = Field(description="With the offset from UTC")
    weekday: str


@server.tool(title="The time now", annotations=READS)
def now(zone: Zone = "UTC") -> Moment:
    """Give today's date and the time in a zone."""
    return moment(datetime.now(UTC), zone)


@server.tool(title="Days between two dates", annotations=READS)
def days_between(start: Day, end: Day, holidays: Holidays = []) -> Span:  # noqa: B006 - never changed
    """Count the days and the working days from one date to another."""
    sign = 1 if start <= end else -1
    off = set(holidays)
    days = abs((end - start).days)
    working = sum(is_working(start + sign * timedelta(number), off) for number in range(1, days + 1))
    return Span(days=sign * days, working_days=sign * working)


@server.tool(title="Add working days", annotations=READS)
def add_working_days(
    start: Day,
    days: Annotated[
        int, Field(description="The number of working days; negative counts back", ge=-10_000, le=10_000)
    ],
    holidays: Holidays = [],  # noqa: B006 - never changed
) -> DayInfo:
    """Find the date a number of working days after (or before) another one."""
    off = set(holidays)
    day, left = start, abs(days)
    try:
        while left:
            day += timedelta(1 if days > 0 else -1)
            left -= is_working(day, off)
    except OverflowError:
        raise ToolError(OUT_OF_YEARS) from None
    return DayInfo(date=day, weekday=f"{day:%A}", iso_week=day.isocalendar().week)


@server.tool(title="Convert a time", annotations=READS)
def convert_time(
    time: Annotated[datetime, Field(description="A date and time, such as 2026-03-31T14:30")],
    zone: Annotated[str, Field(description="The zone of that time, if the time has no offset")],
    to: Annotated[list[Zone], Field(description="The target zones", min_length=1)],
) -> list[Moment]:
    """Convert a time from one zone to others, including daylight saving time."""
    start = time if time.tzinfo else time.replace(tzinfo=known_zone(zone))
    return [moment(start, name) for name in to]


@server.resource("dates://zones", title="Time zones", mime_type="text/plain")
def zones() -> str:
    """List the names of all zones, one a line."""
    return "\n".join(zone_names())


@server.prompt(title="Find a time to meet")
def plan_meeting(
    places: Annotated[str, Field(description="Where the people are, such as `Paris, Tokyo and Lima`")],
    day: Annotated[str, Field(description="The earliest date")],
) -> str:
    """Find an hour that suits people in several places."""
    return (
        f"Find an hour for a meeting of people in {places}, on {day} or the next working day. Convert the "
        "candidates with `convert_time`, prefer hours between 8 and 18 for all, and show the best three."
    )


def is_working(day: date, off: set[date]) -> bool:
    """Return whether this is a working day."""
    return day.weekday() < 5 and day not in off


def moment(time: datetime, zone: str) -> Moment:
    """Return a time as it is in a zone."""
    try:
        there = time.replace(microsecond=0).astimezone(known_zone(zone))
    except OverflowError:
        raise ToolError(OUT_OF_YEARS) from None
    return Moment(zone=zone, time=there, weekday=f"{there:%A}")


def known_zone(name: str) -> tzinfo:
    """Return the zone of this name; the error for an unknown one suggests similar names."""
    if name in zone_names():
        return UTC if name == "UTC" else ZoneInfo(name)
    near = [known for known in zone_names() if name.lower().replace(" ", "_") in known.lower()][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`dates://zones` lists them"
    raise ToolError(f"there is no time zone `{name}`; {hint}")


@cache
def zone_names() -> list[str]:
    """Return all names, sorted; Windows only has UTC until `pip install tzdata`."""
    return sorted(available_timezones() | {"UTC"})


if __name__ == "__main__":
    server.run()
