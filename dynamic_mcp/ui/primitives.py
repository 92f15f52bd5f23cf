"""What a person can use of a group: a tool, a resource, a template of resources, or a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import quote

from msgspec import Raw, Struct

from dynamic_mcp.errors import NotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import names, uri_template, wire
from dynamic_mcp.proxy.calls import find_verb
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.tools.meta_tools import CALL
from dynamic_mcp.ui.argument_form import ArgumentForm, build_form, build_text_form
from dynamic_mcp.ui.byte_budget import ByteBudget

PrimitiveKind = Literal["tool", "resource", "template", "prompt"]

KINDS: Mapping[PrimitiveKind, ListKind] = {
    "tool": ListKind.TOOLS,
    "resource": ListKind.RESOURCES,
    "template": ListKind.TEMPLATES,
    "prompt": ListKind.PROMPTS,
}
_LONGEST_TITLE = 200
_LONGEST_DESCRIPTION = 4000
_LONGEST_COMMAND = 4000


class Primitive(Struct, frozen=True):
    """A tool, resource, template or prompt of a group, with the form of its arguments.

    `path` is its page, below that of the section; `is_listed` is whether the server lists it.
    """

    kind: PrimitiveKind
    group: str
    name: str
    path: str
    form: ArgumentForm
    entry: Raw
    title: str
    description: str
    is_listed: bool = True

    def make_request(self, arguments: Raw, *, splits_calls: bool) -> tuple[str, dict[str, object]]:
        """Return the method and the params that use it, as a client would."""
        match self.kind:
            case "tool":
                verb = find_verb(self.entry) if splits_calls else CALL
                call = {"group": self.group, "name": self.name, "args": arguments}
                return "tools/call", {"name": verb, "arguments": call}
            case "prompt":
                texts = _read_texts(arguments)
                return "prompts/get", {"name": names.qualified_name(self.group, self.name), "arguments": texts}
            case _:
                return "resources/read", {"uri": _address(self.group, self._own_uri(arguments))}

    def format_command(self, arguments: Raw) -> str:
        """Return the command that does the same at a terminal; empty if it would be very long."""
        match self.kind:
            case "tool":
                words = ["call", self.group, self.name, *_unless_empty(arguments)]
            case "prompt":
                texts = _read_texts(arguments).items()
                pairs = [f"{name}={_escape_at(value)}" for name, value in texts]
                words = ["prompt", self.group, self.name, *pairs]
            case _:
                words = ["read", self._own_uri(arguments), "--group", self.group]
        line = format_command(*words)
        return line if len(line) <= _LONGEST_COMMAND else ""

    def _own_uri(self, arguments: Raw) -> str:
        return uri_template.expand(self.name, _read_texts(arguments)) if self.kind == "template" else self.name


def find_primitive(group: ViewedGroup, kind: PrimitiveKind, name: str, space: ByteBudget) -> Primitive:
    """Return what a group has by this name. Raises NotFound, but for resources, which need not be listed."""
    catalog = group.catalog or Catalog()
    entries = catalog.model_tools if kind == "tool" else catalog.entries(KINDS[kind])
    entry = entries.get(name)
    if entry is None and (kind != "resource" or not name):
        raise NotFound(f"{kind} of `{group.name}`", name, entries)
    shown = entry or wire.EMPTY_OBJECT
    title, _ = space.take(_title(shown, kind), _LONGEST_TITLE)
    description, _ = space.take(wire.text(wire.member(shown, "description")) or "", _LONGEST_DESCRIPTION)
    form = _build_form(kind, name, shown, space)
    path = path_of(group.name, kind, name)
    return Primitive(kind, group.name, name, path, form, shown, title, description, entry is not None)


def path_of(group: str, kind: PrimitiveKind, name: str) -> str:
    """Return the path of a page below that of the section: resources and prompts may have any name."""
    below = quote(group, safe="")
    match kind:
        case "tool":
            return f"{below}/{quote(name, safe='')}"
        case "prompt":
            return f"{below}/prompt?name={quote(name, safe='')}"
        case _:
            return f"{below}/{kind}?uri={quote(name, safe='')}"


def _title(entry: Raw, kind: PrimitiveKind) -> str:
    paths = [("title",), ("annotations", "title"), *([("name",)] if kind in ("resource", "template") else [])]
    return next(filter(None, (wire.text(wire.member(entry, *path)) for path in paths)), "")


def _build_form(kind: PrimitiveKind, name: str, entry: Raw, space: ByteBudget) -> ArgumentForm:
    match kind:
        case "tool":
            return build_form(wire.value(wire.member(entry, "inputSchema")), space)
        case "template":
            return build_text_form(((each, "", False) for each in uri_template.variables(name)), space)
        case "prompt":
            return build_text_form(_read_prompt_arguments(entry), space)
        case _:
            return ArgumentForm(is_open=False)


def _read_prompt_arguments(entry: Raw) -> Iterator[tuple[str, str, bool]]:
    listed = wire.value(wire.member(entry, "arguments"))
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            description = each.get("description")
            is_required = each.get("required") is True
            yield each["name"], description if isinstance(description, str) else "", is_required


def _read_texts(arguments: Raw) -> dict[str, str]:
    found = wire.value(arguments)
    members = found if isinstance(found, dict) else {}
    return {name: value for name, value in members.items() if isinstance(value, str)}


def _address(group: str, uri: str) -> str:
    """Return the URI by which a client reads a resource of this group and of no other."""
    return uri if names.is_ours(uri) else names.group_uri(group, uri)


def _unless_empty(arguments: Raw) -> list[str]:
    text = bytes(arguments).decode("utf-8", "replace")
    return [] if text.strip() == "{}" else [text]


def _escape_at(value: str) -> str:
    return f"\\{value}" if value.startswith(("@", "\\@")) else value
