"""Resources and prompts, one at a time."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from dynamic_mcp.cli import content_view, file_values
from dynamic_mcp.cli.client import Client, client, with_timeout
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Disabled, InvalidArguments, NotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names
from dynamic_mcp.mcp.names import closest
from dynamic_mcp.system.own_command import command


def read(this: Invocation, uri: str, group: str | None, *, timeout: str | None, save: str | None) -> int:
    """Print a resource; returns the exit code."""
    config = with_timeout(this.config_of(group), timeout, "resources_s")
    result = run(_asked(this, config, "resources/read", {"uri": uri}, group or ""))
    if this.out.asked_for_json:
        this.out.json(bytes(result))
    else:
        with content_view.understood(group or uri):
            content_view.show_contents(this.out, result, save)
    return 0


def prompt(
    this: Invocation,
    group: str,
    name: str,
    arguments: tuple[str, ...],
    *,
    timeout: str | None,
    save: str | None,
) -> int:
    """Print the messages of a prompt; returns the exit code."""
    config = with_timeout(this.config_of(group), timeout, "prompts_s")
    result = run(_prompted(this, config, name, _pairs(arguments)))
    if this.out.asked_for_json:
        this.out.json(bytes(result))
    else:
        with content_view.understood(group):
            content_view.show_messages(this.out, result, save)
    return 0


def _pairs(words: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE words as a mapping. Raises InvalidArguments."""
    found: dict[str, str] = {}
    for key, value in map(_pair, words):
        if key in found:
            raise InvalidArguments(f"`{key}` is given twice")
        found[key] = value
    return found


def _pair(word: str) -> tuple[str, str]:
    key, equals, text = word.partition("=")
    if not equals:
        raise InvalidArguments(f"`{key}` is not key=value")
    return key, file_values.content(text, word) if file_values.is_file(text) else file_values.literal(text)


async def _asked(this: Invocation, config: Config, method: str, params: dict[str, object], group: str) -> Raw:
    async with client(config, this.out) as made:
        with this.out.waiting(f"waiting for {params['uri']}"):
            return await made.ask(method, params, group=group)


async def _prompted(this: Invocation, config: Config, name: str, arguments: dict[str, str]) -> Raw:
    group = config.groups[0].name
    async with client(config, this.out) as made:
        with this.out.waiting(f"waiting for `{name}` of {group}"):
            own = await _own_name(made, group, name)
            return await made.ask("prompts/get", {"name": own, "arguments": arguments}, group=group)


async def _own_name(made: Client, group: str, name: str) -> str:
    """Return the prompt's name in the group; it may be written as clients see it. Raises NotFound and Disabled."""
    if not made.proxy.groups[group].config.features.prompts:
        raise Disabled("prompts", group)
    prompts = (await made.proxy.groups[group].catalog([ListKind.PROMPTS])).entries(ListKind.PROMPTS)
    for own in prompts:
        if name in (own, names.listed_name(group, own)):
            return own
    hint = f"`{command('prompts', group)}` lists them"
    raise NotFound(f"prompt of group `{group}`", name, closest(name, list(prompts)), hint=hint)
