"""Implements `registry link`: finds the servers of the config in registries, and records them in their entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.entry_plan import start_plan, write_plan
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import InvalidArguments, NotFound
from dynamic_mcp.features.registry.commands.inquiry import Inquiry, split_version
from dynamic_mcp.features.registry.identity import EntryTarget, find_image, find_option, has_version
from dynamic_mcp.features.registry.lookup import Hit, Lookup
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.origin import KEY, ServerOrigin, origin_of, read_origin
from dynamic_mcp.importer.convert.identity import identify, pinned_version
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, pluralize


@dataclass(frozen=True)
class RegistryMatch:
    """A server of a registry that matches a server of the config."""

    hit: Hit
    option: Option
    target: EntryTarget


def link(context: Invocation, server: str | None, reference: str | None, *, yes: bool) -> int:
    """Link one server, or all that are not linked yet; return the exit code. Raises NotFound and RegistryError."""
    plan = start_plan(context.config_path())
    if server is not None and server not in plan.servers:
        raise NotFound("server", server, plan.servers)
    inquiry = Inquiry(context, plan.output)
    lookup = inquiry.lookup()
    found: dict[str, ServerOrigin] = {}
    for name, entry in _unlinked(plan, server):
        matches = inquiry.ask(lookup, _find_matches(lookup, name, entry, reference))
        if len(matches) == 1:
            (match,) = matches
            found[name] = inquiry.ask(lookup, _origin_of(lookup, match))
        _say_match(context, name, matches, found.get(name), is_named=server is not None)
    if context.out.is_json_requested:
        context.out.print_json({name: origin.to_json() for name, origin in found.items()})
    if not found:
        return 0
    plan = plan.with_servers({name: {**plan.servers[name], KEY: origin.to_json()} for name, origin in found.items()})
    if not agree(context, f"Note that in {plan.output}?", done="written", yes=yes):
        return 1
    write_plan(context, plan, f"link {' '.join(found)}")
    context.out.say(f"linked {pluralize(len(found), 'server')} in `{plan.output}`")
    return 0


def _unlinked(plan: Plan, server: str | None) -> Iterator[tuple[str, Entry]]:
    for name, entry in plan.servers.items():
        if isinstance(entry, Mapping) and server in (None, name) and (server or read_origin(entry) is None):
            yield name, entry


def _targets_of(entry: Entry) -> list[EntryTarget]:
    kind, name, *_ = (*identify(entry, str(Path.home())).key, "")
    if kind == "url":
        return [EntryTarget("url", name)]
    if kind in ("npm", "pypi"):
        return [EntryTarget(kind, name, pinned_version(entry, name))]
    return list(find_image(entry))


async def _find_matches(lookup: Lookup, server: str, entry: Entry, reference: str | None) -> list[RegistryMatch]:
    """Return the servers of the registries that match. Raises NotFound, InvalidArguments and RegistryError."""
    targets = _targets_of(entry)
    if reference is not None:
        hit = await lookup.find(*split_version(reference))
        matches = list(_matches(targets, [hit]))
        if not matches:
            raise InvalidArguments(f"`{reference}` has neither the package nor the URL of this server")
        return matches[:1]
    for target in targets:
        hits = await lookup.search(target.words(server), most_pages=1)
        if matches := list(_matches([target], hits)):
            return matches
    return []


def _matches(targets: list[EntryTarget], hits: list[Hit]) -> Iterator[RegistryMatch]:
    for hit in hits:
        for target in targets:
            option = find_option(target, hit.document)
            if option is not None:
                yield RegistryMatch(hit, option, target)
                break


async def _origin_of(lookup: Lookup, match: RegistryMatch) -> ServerOrigin:
    """Return the origin of a server: its pinned version, else the newest."""
    chosen, option = match.hit.document, match.option
    if match.target.version and not has_version(match.target, option):
        for document in await lookup.versions(chosen.name):
            other = find_option(match.target, document)
            if other is not None and has_version(match.target, other):
                chosen, option = document, other
                break
    return origin_of(match.hit.registry, chosen, option, {}, is_linked=True)


def _say_match(
    context: Invocation, name: str, matches: list[RegistryMatch], origin: ServerOrigin | None, *, is_named: bool
) -> None:
    if origin is not None:
        label = one_line(origin.option, 100)
        context.out.say(f"{name}: {origin.name} {one_line(origin.version)} of `{origin.registry}` ({label})")
    elif matches:
        names = ", ".join(f"`{each.hit.document.name}`" for each in matches[:5])
        context.out.say(f"{name}: may be {names}; `{format_command('registry', 'link', name, 'NAME')}` takes one")
    elif is_named:
        context.out.say(f"{name}: no registry has it")
