"""Describes the changes between two versions of the config by name. Values are never shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from dynamic_mcp.config import form
from dynamic_mcp.config.access import Access, ToolEffects
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.section import file_fields, value_at

# Fields of a server that are part of the access rules, with their defaults.
_RULES_OF_A_SERVER = {"effects": ToolEffects(), "approve": None}
# The server's launch has changed, but not its entry: variables, env files, defaults of `settings`.
_ELSEWHERE = "values from elsewhere"


class ConfigChanges(Struct, frozen=True):
    """The names of changed servers, of changed fields of servers, and of changed sections of `settings`.

    `access` describes the changes of the access rules, wherever they are in the file.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, tuple[str, ...]] = {}
    settings: tuple[str, ...] = ()
    access: tuple[str, ...] = ()


def find_changes(before: ConfigState, after: ConfigState) -> ConfigChanges:
    """Return the changes from `before` to `after`."""
    old, new = before.parsed.root, after.parsed.root
    settings, new_settings = old.settings, new.settings
    return ConfigChanges(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        changed=dict(_find_changed_servers(before, after)),
        settings=_changed_fields(settings, new_settings),
        access=(
            *_describe_access(settings.access, new_settings.access),
            *_describe_by_name("profile", old.profiles, new.profiles),
            *_describe_servers(old.servers, new.servers),
        ),
    )


def _find_changed_servers(before: ConfigState, after: ConfigState) -> Iterator[tuple[str, tuple[str, ...]]]:
    old, new = before.parsed.root.servers, after.parsed.root.servers
    for name in new:
        if name in old:
            fields = _changed_fields(old[name], new[name])
            if fields or _effective(before.base, name) != _effective(after.base, name):
                yield name, fields or (_ELSEWHERE,)


def _effective(config: Config, name: str) -> tuple[object, object]:
    """Return the launch config of a server and its presentation."""
    return next((group for group in config.groups if group.name == name), None), config.presentations.get(name)


def _changed_fields(old: Struct, new: Struct) -> tuple[str, ...]:
    """Return the names, as in the file, of the fields in which two sections differ."""
    if type(old) is not type(new):
        return ("type",)
    return tuple(key for key in file_fields(type(old)) if value_at(old, key) != value_at(new, key))


# --- access rules ----------------------------------------------------------------------------------------


def _describe_access(old: Access | None, new: Access | None) -> Iterator[str]:
    if (old is None) != (new is None):
        yield "access rules removed" if new is None else "access rules added"
    old, new = old or Access(), new or Access()
    for field in _changed_fields(old, new):
        if field == "roles":
            yield from _describe_by_name("role", old.roles, new.roles)
        elif field == "people":
            yield from _describe_by_name("person", old.people, new.people)
        else:
            yield f"`{field}` changed"


def _describe_by_name(what: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for name in _names(old, new):
        if name not in new or name not in old:
            yield f"{what} `{name}` {'removed' if name not in new else 'added'}"
        elif old[name] != new[name]:
            yield f"{what} `{name}` changed"


def _describe_servers(old: Mapping[str, form.Server], new: Mapping[str, form.Server]) -> Iterator[str]:
    for name in _names(old, new):
        for field, default in _RULES_OF_A_SERVER.items():
            if getattr(old.get(name), field, default) != getattr(new.get(name), field, default):
                yield f"`{field}` of server `{name}` changed"


def _names(old: Iterable[str], new: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys((*old, *new))
