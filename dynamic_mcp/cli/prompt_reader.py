"""Gets one prompt and prints its messages."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from dynamic_mcp.cli import content_view
from dynamic_mcp.cli.client import CommandClient, with_timeout
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.tool_arguments import is_file_value, read_file_value, unescape
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Disabled, DynamicMcpError, InvalidArguments, NotFound, closest
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names
from dynamic_mcp.system.shell import format_command


def get_prompt(
    context: Invocation,
    group: str,
    name: str,
    arguments: tuple[str, ...],
    *,
    timeout: str | None,
    save: str | None,
) -> int:
    """Get a prompt and print its messages; return the exit code."""
    config = with_timeout(context.read_config(group), timeout, "prompts_s")
    result = run(_get(context, config, name, _parse_pairs(arguments)))
    if context.out.is_json_requested:
        context.out.print_json(bytes(result))
    else:
        with content_view.reject_malformed(group):
            content_view.show_messages(context.out, result, save)
    return 0


def _parse_pairs(words: Iterable[str]) -> dict[str, str]:
    """Parse key=value arguments. Raises InvalidArguments."""
    pairs: dict[str, str] = {}
    for key, value in map(_parse_pair, words):
        if key in pairs:
            raise InvalidArguments(f"`{key}` is given twice")
        pairs[key] = value
    return pairs


def _parse_pair(word: str) -> tuple[str, str]:
    key, equals, text = word.partition("=")
    if not equals:
        raise InvalidArguments(f"`{key}` is not key=value")
    return key, read_file_value(text, word) if is_file_value(text) else unescape(text)


async def _get(context: Invocation, config: Config, name: str, arguments: dict[str, str]) -> Raw:
    group = config.groups[0].name
    async with open_client(context, config, may_ask=True) as client:
        with context.out.progress(f"waiting for `{name}` of {group}"):
            prompt_name = name
            failure: DynamicMcpError | None = None
            try:
                prompt_name = await _find_prompt(client, group, name)
            except DynamicMcpError as exc:
                failure = exc
            try:
                return await client.ask("prompts/get", {"name": prompt_name, "arguments": arguments}, group=group)
            except DynamicMcpError:
                if failure is not None:  # the more precise error, and the proxy has recorded the request
                    raise failure from None
                raise


async def _find_prompt(client: CommandClient, group: str, name: str) -> str:
    """Return a prompt's name in its group; `name` may be the one that clients see. Raises NotFound and Disabled."""
    if not client.group(group).offers("prompts"):
        raise Disabled("prompts", group)
    prompts = (await client.group(group).read_catalog([ListKind.PROMPTS])).entries(ListKind.PROMPTS)
    for prompt_name in prompts:
        if name in (prompt_name, names.qualified_name(group, prompt_name)):
            return prompt_name
    hint = f"`{format_command('prompts', group)}` lists them"
    raise NotFound(f"prompt of group `{group}`", name, closest(name, list(prompts)), hint=hint)
