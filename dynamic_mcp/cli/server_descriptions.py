"""Gets descriptions from the servers themselves by connecting to each of them once."""

from __future__ import annotations

import asyncio
import os
import re

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.own_client import open_own_client
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.importer.convert.plan import Action, Item, Plan
from dynamic_mcp.importer.model import Scope
from dynamic_mcp.importer.planner import build_config
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.text import pluralize

WITHIN_S = 60.0
_MOST_TOOLS = 12


def fetch_descriptions(this: Invocation, plan: Plan, *, may_start_projects: bool) -> dict[str, str]:
    """Return how new servers describe themselves, by the name that they have in their tool."""
    items = {item.server.name: item for item in plan.items if _lacks_description(item)}
    for name, item in list(items.items()):
        if item.server.source.scope is not Scope.USER and not may_start_projects:
            this.out.say(
                f"`{name}` is not started, because {item.server.source.file} belongs to a project; --trust allows it",
                "yellow",
            )
            del items[name]
    if not items:
        return {}
    config = build_config({name: item.server.entry for name, item in items.items()}, plan.output, os.environ)
    with this.out.progress(f"asking {pluralize(len(items), 'server')} for a description"):
        return run(_fetch(this, config))


def _lacks_description(item: Item) -> bool:
    entry = item.server.entry
    return item.action is Action.NEW and not entry.get("description") and entry.get("enabled") is not False


async def _fetch(this: Invocation, config: Config) -> dict[str, str]:
    async with open_own_client(this, config, uses_cache=False) as client:
        texts = await asyncio.gather(*(_describe(group, this.out) for group in client.groups))
        return {group.name: text for group, text in zip(client.groups, texts, strict=True) if text}


async def _describe(group: ClientGroup, out: Output) -> str:
    try:
        async with asyncio.timeout(WITHIN_S):
            return _summarize(await group.catalog())
    except TimeoutError:
        reason = f"no answer within {WITHIN_S:g} s"
    except DynamicMcpError as exc:
        reason = exc.message
    out.say(f"`{group.name}` did not answer: {reason}", "yellow")
    return ""


def _summarize(catalog: Catalog) -> str:
    """Return one line: the first sentence of a server's instructions, else the names of its tools."""
    sentence = re.split(r"(?<=[.!?])\s|\n", catalog.instructions.strip(), maxsplit=1)[0].strip("# ")
    if sentence:
        return sentence
    names = list(catalog.tools)
    more = ", …" if len(names) > _MOST_TOOLS else ""
    about = f"{catalog.title}: " if catalog.title else "Tools: "
    return about + ", ".join(names[:_MOST_TOOLS]) + more if names else catalog.title
