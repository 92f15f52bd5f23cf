"""Reads a config whose fields have names of earlier versions, and gives them their present names in its file.

Imported only for a config that is invalid as it stands, and for `check --fix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from types import NoneType
from typing import Any

from msgspec import Struct

from dynamic_mcp.config import edit, form, jsonc
from dynamic_mcp.config.flaws import Problem
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.section import file_fields

# Fields of a server, and their present places in it. Those whose values change too have methods of their own.
_OF_SERVERS: Mapping[str, Keys] = {
    "trusted": ("trust_annotations",),
    "access": ("effects",),
    "oauth_client_id": ("oauth", "client_id"),
    "oauth_scopes": ("oauth", "scopes"),
}
_DIRECT_OF = {"direct": True, "group": False, "auto": "auto"}
_FIX = "`dynamic-mcp check --fix` rewrites the file"


class Rename(Struct, frozen=True):
    """The old and the present place of a value."""

    old: Keys
    new: Keys

    def __str__(self) -> str:
        return f"`{format_path(self.old)}` is now `{format_path(self.new)}`"


class Put(Struct, frozen=True):
    """Gives a place another value."""

    path: Keys
    value: object


class Drop(Struct, frozen=True):
    """Removes a value."""

    path: Keys


class Renaming:
    """Gives the values in `tree` their present names; `renamed` lists them, `conflicts` what needs a person."""

    def __init__(self, tree: object) -> None:
        self.tree: Any = tree  # Any: JSON
        self.renamed: list[Rename] = []
        self.conflicts: list[Problem] = []
        self._steps: list[Rename | Put | Drop] = []
        self._rename_servers()  # first, as the old names of defaults still count for them
        self._rename_profiles()
        self._rename_settings()

    def describe(self) -> str:
        """Return one warning for all values under old names."""
        first, *others = self.renamed
        more = f", and {len(others)} more names have changed" if others else ""
        return f"{first}{more}; {_FIX}"

    def locate(self, problem: Problem) -> Problem:
        """Return a problem of `tree` with its place in the file as it stands."""
        for move in (step for step in self._steps if isinstance(step, Rename)):
            old, new = format_path(move.old), format_path(move.new)
            if problem.where == new or problem.where.startswith((f"{new}.", f"{new}[")):
                return Problem(old + problem.where.removeprefix(new), problem.message, problem.hint)
        return problem

    def rewrite(self, text: str) -> str:
        """Return the text of the config with the present names. Comments, order and all other bytes stay."""
        for step in self._steps:
            match step:
                case Rename():
                    text = edit.move(text, step.old, step.new)
                case Put():
                    text = edit.put(text, step.path, step.value)
                case Drop():
                    text = edit.drop(text, step.path)
        assert jsonc.loads(text.removeprefix("\ufeff")) == self.tree
        return text

    # --- the parts of a config ----------------------------------------------------------------------------------

    def _rename_servers(self) -> None:
        for at, server in self._objects(("mcpServers",)):
            self._merge_pinned(at, server)
            if "expose" in server:
                self._rename_expose(at, ("direct",))
            for key in [key for key in server if key in _OF_SERVERS]:
                if key == "access" and "cli" in server:
                    self._move_effects_of_commands(at)
                else:
                    self._move((*at, key), (*at, *_OF_SERVERS[key]))
            self._exclude_hidden(at)

    def _rename_profiles(self) -> None:
        for at, profile in self._objects(("profiles",)):
            if "expose" in profile:
                self._rename_expose(at, ("direct",))

    def _rename_settings(self) -> None:
        for at, provider in self._objects(("settings", "http", "auth")):
            if "trusted" in provider:
                self._move((*at, "trusted"), (*at, "trusted_proxies"))
        for role, _ in self._members(("settings", "access", "roles")):
            for at, rule in self._objects(role):
                if "access" in rule and self._move((*at, "access"), (*at, "only")) and rule["only"] == "any":
                    self._drop((*at, "only"))
        settings = self._value(("settings",))
        known, defaults = file_fields(form.Settings), file_fields(form.Defaults)
        for key in [*settings] if isinstance(settings, dict) else ():
            if key == "expose":
                self._rename_expose(("settings",), ("defaults", "direct"))
            elif key in defaults and key not in known:
                self._move(("settings", key), ("settings", "defaults", key))

    # --- fields whose values change ---------------------------------------------------------------------------------

    def _merge_pinned(self, at: Keys, server: Mapping[str, object]) -> None:
        """Make one field of `expose` and `pinned`."""
        if "pinned" not in server:
            return
        expose = server.get("expose") or self._value(("settings", "expose"))
        are_all_direct = expose == "direct" or (expose is None and self._value(_DEFAULT_DIRECT) is True)
        if server["pinned"] is None or (are_all_direct and server.get("direct") is None):
            self.renamed.append(Rename((*at, "pinned"), (*at, "direct")))
            self._drop((*at, "pinned"))
            return
        if server.get("expose") in (None, "group"):
            self._drop((*at, "expose"))
        self._move((*at, "pinned"), (*at, "direct"))

    def _rename_expose(self, at: Keys, place: Keys) -> None:
        new = (*at, *place)
        if self._move((*at, "expose"), new):
            word = self._value(new)
            if isinstance(word, str) and word in _DIRECT_OF:
                self._put(new, _DIRECT_OF[word])

    def _move_effects_of_commands(self, at: Keys) -> None:
        """Move the `access` of a command line program to `cli.effects`, in which the first match counts."""
        old, new = (*at, "access"), (*at, "cli", "effects")
        access = self._value(old)
        if not isinstance(self._value((*at, "cli")), dict):
            return
        if self._value(new):
            self._refuse(old, new)
            return
        effects: dict[str, str] = {}
        for effect in ("write", "read"):
            for glob in _strings(access.get(effect) if isinstance(access, dict) else None):
                command = _command_of(glob, self._value((*at, "cli", "use")))
                if command is None:
                    message, hint = f"is now `{format_path(new)}`, by commands", 'write `{"log": "read"}`'
                    self.conflicts.append(Problem(format_path(old), message, hint))
                    return
                effects.setdefault(command, effect)
        self.renamed.append(Rename(old, new))
        self._drop(old)
        self._put(new, effects)

    def _exclude_hidden(self, at: Keys) -> None:
        """Move the tools that `overrides` hide as a whole to `tools.exclude`."""
        new = (*at, "tools", "exclude")
        if not isinstance(self._value((*at, "tools")), (dict, NoneType)):
            return
        overrides = [(place, each) for place, each in self._objects((*at, "overrides")) if "hide" in each]
        hidden = [str(place[-1]) for place, each in overrides if each["hide"] is True]
        for place, each in overrides:
            shown_again = each["hide"] is False and [tool for tool in hidden if fnmatchcase(str(place[-1]), tool)]
            if shown_again:
                message = f"shows a tool that `{shown_again[0]}` hides, and `tools.exclude` has no exceptions"
                self.conflicts.append(Problem(format_path((*place, "hide")), message, "list the tools to hide there"))
                return
        for place, each in overrides:
            if isinstance(each["hide"], (bool, NoneType)):
                self.renamed.append(Rename((*place, "hide"), new))
                self._drop(place if each.keys() == {"hide"} else (*place, "hide"))
        if hidden:
            own, shared = self._value(new), self._value(("settings", "tools", "exclude"))
            shared = self._value(("settings", "defaults", "tools", "exclude")) if shared is None else shared
            excluded = next((each for each in (own, shared) if isinstance(each, list)), [])
            self._put(new, [*dict.fromkeys((*excluded, *hidden))])

    # --- steps ------------------------------------------------------------------------------------------------------

    def _move(self, old: Keys, new: Keys) -> bool:
        """Move a value, if the places on the way are free."""
        shared = next(depth for depth in range(len(new)) if old[depth] != new[depth])
        for depth in range(shared + 1, len(new) + 1):
            there = self._value(new[:depth])
            if there is None:
                self._drop(new[:depth])
            elif depth == len(new) or not isinstance(there, dict):
                self._refuse(old, new[:depth])
                return False
        rename = Rename(old, new)
        self.renamed.append(rename)
        self._steps.append(rename)
        value = _drop(self.tree, old)
        _put(self.tree, new, value)
        return True

    def _refuse(self, old: Keys, new: Keys) -> None:
        message = f"cannot stand beside `{format_path(new)}`, its new name"
        self.conflicts.append(Problem(format_path(old), message, "keep one of the two"))

    def _drop(self, path: Keys) -> None:
        """Remove a value, if there is one."""
        parent = self._value(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            self._steps.append(Drop(path))
            _drop(self.tree, path)

    def _put(self, path: Keys, value: object) -> None:
        self._steps.append(Put(path, value))
        _put(self.tree, path, value)

    def _value(self, path: Keys) -> Any:  # Any: JSON
        value = self.tree
        for key in path:
            if isinstance(key, int):
                value = value[key]
            elif isinstance(value, dict):
                value = value.get(key)
            else:
                return None
        return value

    def _members(self, path: Keys) -> Iterator[tuple[Keys, Any]]:  # Any: JSON
        """Yield the values in an object or a list, with their paths."""
        parent = self._value(path)
        members = (
            parent.items() if isinstance(parent, dict) else enumerate(parent if isinstance(parent, list) else ())
        )
        for key, each in [*members]:
            yield (*path, key), each

    def _objects(self, path: Keys) -> Iterator[tuple[Keys, dict[str, Any]]]:  # Any: JSON
        """Yield the objects in an object or a list, with their paths."""
        return ((at, each) for at, each in self._members(path) if isinstance(each, dict))


_DEFAULT_DIRECT: Keys = ("settings", "defaults", "direct")


def _strings(value: object) -> Iterator[str]:
    yield from (each for each in (value if isinstance(value, list) else ()) if isinstance(each, str))


def _command_of(tool: str, pack: object) -> str | None:
    """Return the glob of commands for one of tools, such as `git_ls_files`; None if it cannot be known."""
    prefix = re.sub(r"[^a-z0-9]+", "_", f"{pack} ")
    if tool == "*":
        return tool
    return tool.removeprefix(prefix).replace("_", "?") if tool.startswith(prefix) else None


def _put(tree: Any, path: Keys, value: object) -> None:  # Any: JSON
    for key in path[:-1]:
        if isinstance(tree, dict) and tree.get(key) is None:
            tree[key] = {}
        tree = tree[key]
    tree[path[-1]] = value


def _drop(tree: Any, path: Keys) -> object:  # Any: JSON
    for key in path[:-1]:
        tree = tree[key]
    return tree.pop(path[-1])
