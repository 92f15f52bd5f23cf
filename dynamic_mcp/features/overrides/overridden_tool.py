"""One overridden tool, and the mapping from a model's arguments to the server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Raw

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.features.overrides.config import ArgumentOverride, Override
from dynamic_mcp.features.overrides.schema import CannotShow, ShownArgument, ToolSchema, split
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.globs import fold
from dynamic_mcp.system.text import one_line

_LONGEST_NAME = 100


class OverriddenTool:
    """A tool by the name that clients see, and by the server's own; `entry` is the definition that clients see."""

    def __init__(
        self,
        name: str,
        own_name: str,
        entry: Raw,
        arguments: Sequence[ShownArgument] = (),
        declared: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.own_name = own_name
        self.entry = entry
        self._arguments = tuple(each for each in arguments if not each.is_plain)
        self._declared = declared

    def __repr__(self) -> str:
        return f"<OverriddenTool {self.name} of {self.own_name}>"

    @property
    def changes_arguments(self) -> bool:
        """True if the server's arguments differ from the model's."""
        return bool(self._arguments)

    def restore(self, arguments: Raw | None) -> Raw | None:
        """Return the server's arguments for those of a model.

        Unchanged arguments are the same object. Raises InvalidArguments for arguments that are not shown.
        """
        return arguments if not self._arguments else self._restore(arguments)

    def present(self, sent: Raw) -> Raw:
        """Return the sent arguments as a client may see them, with the shown names."""
        if not self._arguments:
            return sent
        unshown = {each.name for each in self._arguments if not each.is_given}
        names = {own_name: shown for shown, own_name in self._own_names.items()}
        members = _members(sent)
        return Raw(
            wire.encode({names.get(name, name): each for name, each in members.items() if name not in unshown})
        )

    def _restore(self, arguments: Raw | None) -> Raw | None:
        try:
            members = {} if arguments is None or bytes(arguments) == b"null" else wire.members(arguments)
        except wire.Malformed:
            raise InvalidArguments(f"the arguments of `{self.name}` are not an object") from None
        restored: dict[str, Raw] = {}
        fixed, taken, own_names = self._fixed, self._taken, self._own_names
        for name, value in members.items():
            if name in fixed:
                continue
            if name not in taken and fold(name) in self._refused:
                shown = one_line(name, _LONGEST_NAME)
                raise InvalidArguments(f"`{shown}` is not a parameter of `{self.name}`; nothing was sent")
            restored[own_names.get(name, name)] = value
        restored = {**self._defaults, **restored, **fixed}
        # a fixed argument may occur twice, and only the last value was checked
        return arguments if not fixed and restored == members else Raw(wire.encode(restored))

    @cached_property
    def _fixed(self) -> Mapping[str, Raw]:
        """The values that are always sent, by the server's names."""
        return {each.name: each.value for each in self._arguments if not each.is_given and each.value is not None}

    @cached_property
    def _defaults(self) -> Mapping[str, Raw]:
        return {each.name: each.value for each in self._arguments if each.is_given and each.value is not None}

    @cached_property
    def _own_names(self) -> Mapping[str, str]:
        return {each.shown: each.name for each in self._arguments if each.is_given}

    @cached_property
    def _taken(self) -> frozenset[str]:
        overridden = {each.name for each in self._arguments}
        return frozenset({*(self._declared - overridden), *self._own_names})

    @cached_property
    def _refused(self) -> frozenset[str]:
        """The hidden names of the server, case-folded, since servers may ignore case."""
        unshown = (each.name for each in self._arguments if not each.is_given or each.shown != each.name)
        return frozenset(map(fold, unshown))


def show_tool(
    own_name: str, entry: Raw, override: Override, *, exact: Mapping[str, ArgumentOverride]
) -> OverriddenTool:
    """Return a tool with an override applied. Raises CannotShow.

    `exact` are the argument overrides for this very tool; the others apply only to arguments that it describes.
    """
    members = split(entry)
    changes: dict[str, object] = {}
    if override.rename is not None:
        changes["name"] = override.rename
    if override.title is not None:
        changes["title"] = override.title
    if override.description is not None:
        changes["description"] = override.description
    if override.annotations:
        changes["annotations"] = {**_members(members.get("annotations")), **override.annotations}
    arguments: tuple[ShownArgument, ...] = ()
    declared = frozenset[str]()
    if override.arguments:
        schema = ToolSchema(members.get("inputSchema", wire.EMPTY_OBJECT))
        arguments, declared = _arguments(override, exact, schema.declared), schema.declared
        if arguments:
            changes["inputSchema"] = schema.show(arguments)
    shown = Raw(wire.encode({**members, **changes})) if changes else entry
    return OverriddenTool(override.rename or own_name, own_name, shown, arguments, declared)


def _arguments(
    override: Override, exact: Mapping[str, ArgumentOverride], declared: frozenset[str]
) -> tuple[ShownArgument, ...]:
    arguments = tuple(
        _argument(name, each)
        for name, each in override.arguments.items()
        if name in declared or _is_sent(exact.get(name))
    )
    _check_names(arguments, declared)
    return arguments


def _members(value: Raw | None) -> Mapping[str, object]:
    try:
        return {} if value is None else wire.members(value)
    except wire.Malformed:
        return {}


def _argument(name: str, override: ArgumentOverride) -> ShownArgument:
    is_given = override.fixed is None and not override.is_hidden
    return ShownArgument(
        name,
        (override.rename or name) if is_given else name,
        override.description,
        override.default if override.fixed is None else override.fixed,
        is_given,
    )


def _is_sent(override: ArgumentOverride | None) -> bool:
    """Return whether an override sends an argument even if the tool does not describe it."""
    return override is not None and (
        override.fixed is not None or override.default is not None or bool(override.is_hidden)
    )


def _check_names(arguments: Sequence[ShownArgument], declared: frozenset[str]) -> None:
    """Check that no two arguments get the same shown name."""
    kept = declared - {each.name for each in arguments}
    taken = set(kept)
    for each in arguments:
        if not each.is_given:
            continue
        if each.shown in taken:
            raise CannotShow(f"it has two arguments that would be `{each.shown}`")
        taken.add(each.shown)
