"""Resources and prompts, one at a time."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp import names
from dynamic_mcp.catalog import Kind
from dynamic_mcp.cli import contents
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.running import Client, client, run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Disabled, InvalidArguments, NotFound
from dynamic_mcp.names import closest
from dynamic_mcp.own_command import command


def read(this: Invocation, uri: str, group: str | None, save: str | None) -> int:
    """Print a resource; returns the exit code."""
    config = this.config_of(group)
    result = run(_asked(this, config, "resources/read", {"uri": uri}, group or ""))
    if this.out.asked_for_json:
        this.out.json(bytes(result))
    else:
        with contents.understood(group or uri):
            contents.show_contents(this.out, result, save)
    return 0


def prompt(this: Invocation, group: str, name: str, arguments: tuple[str, ...], save: str | None) -> int:
    """Print the messages of a prompt; returns the exit code."""
    pairs = [word.partition("=") for word in arguments]
    keys = [key for key, _, _ in pairs]
    for key, equals, _ in pairs:
        if not equals:
            raise InvalidArguments(f"`{key}` is not key=value")
        if keys.count(key) > 1:
            raise InvalidArguments(f"`{key}` is given twice")
    result = run(_prompted(this, this.config_of(group), name, {key: value for key, _, value in pairs}))
    if this.out.asked_for_json:
        this.out.json(bytes(result))
    else:
        with contents.understood(group):
            contents.show_messages(this.out, result, save)
    return 0


async def _asked(this: Invocation, config: Config, method: str, params: dict[str, object], group: str) -> Raw:
    async with client(config, this.out) as made:
        with this.out.waiting(group or method):
            return await made.ask(method, params, group=group)


async def _prompted(this: Invocation, config: Config, name: str, arguments: dict[str, str]) -> Raw:
    group = config.groups[0].name
    async with client(config, this.out) as made:
        with this.out.waiting(f"{group}: {name}"):
            own = await _own_name(made, group, name)
            return await made.ask("prompts/get", {"name": own, "arguments": arguments}, group=group)


async def _own_name(made: Client, group: str, name: str) -> str:
    """Return the prompt's name in the group; it may be written as clients see it. Raises NotFound and Disabled."""
    if not made.proxy.groups[group].config.features.prompts:
        raise Disabled("prompts", group)
    prompts = (await made.proxy.groups[group].catalog([Kind.PROMPTS])).entries(Kind.PROMPTS)
    for own in prompts:
        if name in (own, names.listed_name(group, own)):
            return own
    hint = f"`{command('prompts', group)}` lists them"
    raise NotFound(f"prompt of group `{group}`", name, closest(name, list(prompts)), hint=hint)
