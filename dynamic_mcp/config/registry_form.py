"""The form of `settings.registries`, as `form` has it for the rest of the file."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from dynamic_mcp.config import values
from dynamic_mcp.config.section import Section, Url

_NAME = Annotated[str, Meta(min_length=1, max_length=values.NAME_LENGTH)]
_Headers = Annotated[dict[str, str], values.check_headers]


class Registry(Section, frozen=True, kw_only=True):
    """A registry of servers with the API v0.1 of the official one."""

    name: Annotated[_NAME, "What `--registry` calls it."]
    url: Annotated[Url, "Its URL, without `/v0.1`."]
    headers: Annotated[
        _Headers | None, "HTTP headers for every request. Write `${VARIABLE}`, not a secret itself."
    ] = None


def check_registries(registries: Sequence[Registry]) -> Sequence[Registry]:
    """Check that no two registries have one name, and that each can be shown."""
    names = [each.name for each in registries]
    if any(not name.isprintable() or not name.strip() for name in names):
        raise values.FlawError("the name of a registry must consist of printable characters")
    if len(set(names)) < len(names):
        raise values.FlawError("two registries have the same name")
    return registries


Registries = Annotated[list[Registry], check_registries]
