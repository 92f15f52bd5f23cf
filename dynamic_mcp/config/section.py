"""An object of the config file, whose fields' annotations say what they may hold."""

from collections.abc import Callable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from dynamic_mcp.config import values

Duration = Annotated[str | float | None, values.parse_duration]
Url = Annotated[str, values.check_literal_url]


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """An object of the file."""

    def __post_init__(self) -> None:
        """Judge what a type alone does not say. Raises FlawError."""
        for name, judge in _judges(type(self)):
            value = getattr(self, name)
            if value is not None:
                judge(value)


@cache
def _judges(section: type[Struct]) -> list[tuple[str, Callable[[Any], object]]]:  # Any: each judges its own type
    """The fields of a section that a function judges."""
    return [(each.name, judge) for each in fields(section) for judge in _in_annotation(each.type)]


def _in_annotation(annotation: object) -> Iterator[Callable[[Any], object]]:
    if get_origin(annotation) is Annotated:
        yield from filter(callable, get_args(annotation)[1:])
        yield from _in_annotation(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _in_annotation(member)
