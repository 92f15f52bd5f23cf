"""Shell completion, from the config, the cached catalogs and a table. No server is started."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.groups.catalog import Catalog


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a group, with its description."""
    config = read_config(ctx)
    return completion_items(
        ((name, shown.description or "") for name, shown in (config.presentations.items() if config else ())),
        incomplete,
    )


def complete_server(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a server of the config, disabled ones included."""
    from dynamic_mcp.config.read import list_disabled

    config = read_config(ctx)
    names = [*(group.name for group in config.groups), *list_disabled(config.file)] if config else []
    return completion_items(((name, "") for name in names), incomplete)


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a profile, with its servers."""
    config = read_config(ctx)
    profiles = config.profiles.values() if config else ()
    return completion_items(((each.name, " ".join(each.servers)) for each in profiles), incomplete)


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a cached tool of the group on the command line."""
    tools = (name for catalog in _catalogs(ctx) for name in catalog.tools)
    return completion_items(((name, "") for name in tools), incomplete)


def complete_argument(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `key=` for the arguments of the tool on the command line, and the values of enumerations."""
    from dynamic_mcp.cli.tool_arguments import argument_keys
    from dynamic_mcp.mcp import wire

    for catalog in _catalogs(ctx):
        tool = catalog.tools.get(ctx.params.get("tool") or "")
        schema = _json(wire.member(tool, "inputSchema")) if tool is not None else None
        if isinstance(schema, dict):
            return _arguments(
                [(k.name, k.values, k.is_list, k.description) for k in argument_keys(schema)], ctx, incomplete
            )
    return []


def complete_prompt(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a cached prompt of the group on the command line."""
    from dynamic_mcp.groups.catalog import ListKind

    prompts = (name for catalog in _catalogs(ctx) for name in catalog.entries(ListKind.PROMPTS))
    return completion_items(((name, "") for name in prompts), incomplete)


def complete_prompt_argument(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `key=` for the arguments of the prompt on the command line."""
    from dynamic_mcp.groups.catalog import ListKind
    from dynamic_mcp.mcp import wire

    for catalog in _catalogs(ctx):
        prompt = catalog.entries(ListKind.PROMPTS).get(ctx.params.get("name") or "")
        members = wire.members(prompt).get("arguments") if prompt is not None else None
        found = [wire.members(each) for each in wire.elements(members or wire.EMPTY_ARRAY)]
        named = [(wire.text(each.get("name")) or "", wire.text(each.get("description")) or "") for each in found]
        return _arguments([(name, (), False, description) for name, description in named if name], ctx, incomplete)
    return []


def complete_ai_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the AI tools that settings are imported from and installed into."""
    from dynamic_mcp.importer.tools.catalog import TOOLS

    return completion_items(((tool.name, tool.title) for tool in TOOLS), incomplete)


def completion_items(offered: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """Return the matches for the typed prefix, with descriptions.

    A value with a line break or a control character cannot be typed.
    """
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(value, help=one_line(description, None) or None)
        for value, description in offered
        if value.startswith(incomplete) and value.isprintable()
    ]


def own_catalogs(ctx: click.Context) -> Iterable[tuple[Config, Catalog]]:
    """Yield the config and the unfiltered cached catalog of the group on the command line."""
    from dynamic_mcp.groups.catalog_store import CatalogStore
    from dynamic_mcp.system import paths

    config, name = read_config(ctx), ctx.params.get("group")
    catalog_store = CatalogStore(paths.cache_dir() / "catalogs")
    if config is None:
        return
    for group in config.groups:
        if group.name == name and (stored_catalog := catalog_store.load(group)) is not None:
            yield config, stored_catalog.catalog


def _arguments(
    keys: Iterable[tuple[str, tuple[str, ...], bool, str]], ctx: click.Context, incomplete: str
) -> list[CompletionItem]:
    """Complete keys without a value, or the values of the typed key."""
    name, equals, _ = incomplete.partition("=")
    typed_keys = {word.partition("=")[0].removesuffix(":") for word in ctx.params.get("arguments") or ()}
    if equals:
        return completion_items(
            ((f"{key}={value}", "") for key, values, *_ in keys if key == name for value in values), incomplete
        )
    return completion_items(
        ((f"{key}=", description) for key, _, is_list, description in keys if is_list or key not in typed_keys),
        incomplete,
    )


def _catalogs(ctx: click.Context) -> Iterable[Catalog]:
    """Yield the cached catalog of the group on the command line, filtered by the config."""
    for config, catalog in own_catalogs(ctx):
        yield _show(catalog, config, ctx.params["group"])


def _show(catalog: Catalog, config: Config, group: str) -> Catalog:
    presentation = config.presentations[group]
    if not presentation.rules:
        return catalog
    from dynamic_mcp.policy.call_rules import compile_tool_rules

    tools = compile_tool_rules(presentation, group)
    return catalog if tools is None else tools.show(catalog)


def _json(data: bytes) -> object:
    import json

    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None


def read_config(ctx: click.Context) -> Config | None:
    """Return the config on the command line; None if it cannot be read."""
    from dynamic_mcp.cli.invocation import find_config
    from dynamic_mcp.config.read import read
    from dynamic_mcp.errors import ConfigError

    try:
        return read(find_config(ctx.params.get("config_file") or ctx.params.get("config")), os.environ)
    except ConfigError:  # completion must not print errors
        return None
