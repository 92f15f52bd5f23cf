"""What a shell offers when Tab is pressed: groups of the config, and tools that are known from before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.config.resolved import Config


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the groups, each with its description."""
    from click.shell_completion import CompletionItem

    config = _config(ctx)
    groups = config.groups if config else ()
    return [
        CompletionItem(group.name, help=group.description) for group in groups if group.name.startswith(incomplete)
    ]


def complete_any(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer every server of the file, those too that are switched off."""
    from click.shell_completion import CompletionItem

    from dynamic_mcp.config.read import disabled

    config = _config(ctx)
    names = [*(group.name for group in config.groups), *disabled(config.file)] if config else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the tools of the group that is named before, as far as they are known; nothing is connected to."""
    from click.shell_completion import CompletionItem

    from dynamic_mcp import paths
    from dynamic_mcp.shelf import Shelf

    config = _config(ctx)
    shelf = Shelf(paths.cache_dir() / "catalogs")
    kept = [shelf.load(group) for group in (config.groups if config else ()) if group.name == ctx.params.get("group")]
    names = [name for each in kept if each for name in each.catalog.tools]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _config(ctx: click.Context) -> Config | None:
    from dynamic_mcp.cli.invocation import config_file
    from dynamic_mcp.config.read import read
    from dynamic_mcp.errors import ConfigError

    try:
        return read(config_file(ctx.params.get("config_file")), os.environ)
    except ConfigError:  # a shell's prompt is no place for it
        return None
