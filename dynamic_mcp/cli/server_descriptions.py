"""Descriptions from the servers themselves: each is started or reached once, as serving would."""

from __future__ import annotations

import asyncio
import os
import re

from dynamic_mcp.cli.client import client
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.importer.found import Scope
from dynamic_mcp.importer.importing import config_of
from dynamic_mcp.importer.plan import Action, Item, Plan
from dynamic_mcp.system.text import counted

WITHIN_S = 60.0
_MOST_TOOLS = 12


def descriptions(out: Output, plan: Plan, *, may_start_projects: bool) -> dict[str, str]:
    """Return what the new servers say of themselves, by the name that they were found under."""
    asked = {item.found.name: item for item in plan.items if _is_asked(item)}
    for name, item in list(asked.items()):
        if item.found.source.scope is not Scope.USER and not may_start_projects:
            out.words(
                f"`{name}` is not started: {item.found.source.file} is a project's; --trust allows it", "yellow"
            )
            del asked[name]
    if not asked:
        return {}
    config = config_of({name: item.found.entry for name, item in asked.items()}, plan.output, os.environ)
    with out.waiting(f"asking {counted(len(asked), 'server')} for a description"):
        return run(_asked(config, out))


def _is_asked(item: Item) -> bool:
    entry = item.found.entry
    return item.action is Action.NEW and not entry.get("description") and entry.get("enabled") is not False


async def _asked(config: Config, out: Output) -> dict[str, str]:
    async with client(config, out, learns_anew=True) as made:
        texts = await asyncio.gather(*(_text(group, out) for group in made.proxy.groups))
        return {group.name: text for group, text in zip(made.proxy.groups, texts, strict=True) if text}


async def _text(group: Group, out: Output) -> str:
    try:
        async with asyncio.timeout(WITHIN_S):
            return _of(await group.catalog())
    except TimeoutError:
        reason = f"no answer within {WITHIN_S:g} s"
    except DynamicMcpError as exc:
        reason = exc.message
    out.words(f"`{group.name}` did not answer: {reason}", "yellow")
    return ""


def _of(catalog: Catalog) -> str:
    """Make one line of a server's instructions, or of its tools."""
    sentence = re.split(r"(?<=[.!?])\s|\n", catalog.instructions.strip(), maxsplit=1)[0].strip("# ")
    if sentence:
        return sentence
    names = list(catalog.tools)
    more = ", …" if len(names) > _MOST_TOOLS else ""
    about = f"{catalog.title}: " if catalog.title else "Tools: "
    return about + ", ".join(names[:_MOST_TOOLS]) + more if names else catalog.title
