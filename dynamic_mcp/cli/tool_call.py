"""Calls one tool: builds its arguments from the command line and prints its result."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.cli import content_view
from dynamic_mcp.cli.client import CommandClient, with_timeout
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.tool_arguments import parse_arguments
from dynamic_mcp.config.resolved import CommandLine, Config, FeatureServer
from dynamic_mcp.config.types import NO_LIMIT
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound, UpstreamError, closest
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.file_reader import LARGEST_BYTES
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.tools import meta_tools, typed_json

_ERROR_CODE = UpstreamError.exit_code


@dataclass(frozen=True)
class CallOptions:
    """The options of `call`."""

    group: str
    tool: str
    arguments: tuple[str, ...]
    select: str | None
    timeout: str | None
    save: str | None


def call_tool(context: Invocation, options: CallOptions) -> int:
    """Call a tool and print its result; return the exit code. Raises InvalidArguments before anything runs."""
    if options.select is not None:
        _check_jsonpath(options.select)
    config = context.read_config(options.group)
    if isinstance(config.groups[0].upstream, FeatureServer):
        config = context.read_config()  # its tools may call those of other groups
    config = with_timeout(_without_limits(config), options.timeout, "tools_s")
    return run(_call(context, config, options))


async def _call(context: Invocation, config: Config, options: CallOptions) -> int:
    async with open_client(context, config, may_ask=True) as client:
        with context.out.progress(f"waiting for `{options.tool}` of {options.group}"):
            if context.verbose:
                await client.ask("logging/setLevel", {"level": "debug"})
            result = await _ask(client, options)
        with content_view.reject_malformed(options.group):
            upstreams = (group.upstream for group in config.groups if group.name == options.group)
            is_text = isinstance(next(upstreams, None), CommandLine)  # the output of a program is its result
            return show_answer(context, result, options, is_text=is_text)


async def _ask(client: CommandClient, options: CallOptions) -> Raw:
    failure: DynamicMcpError | None = None
    tool = wire.EMPTY_OBJECT
    try:
        tool = (await _find_tools(client, options)).get(options.tool, tool)
    except DynamicMcpError as exc:
        failure = exc
    arguments = {"group": options.group, "name": options.tool, "args": build_arguments(tool, options)}
    params = {"name": meta_tools.CALL, "arguments": arguments, "_meta": {"progressToken": 1}}
    try:
        return await client.ask("tools/call", params, group=options.group)
    except DynamicMcpError:
        if failure is not None:  # the more precise error, and the proxy has recorded the request
            raise failure from None
        raise


def build_arguments(tool: Raw, options: CallOptions) -> object:
    """Return the arguments: JSON unchanged, or key=value typed by the tool's schema. Raises InvalidArguments."""
    match options.arguments:
        case ():
            return {}
        case ("-",):
            return _parse_object(_read_stdin(), "stdin")
        case (text,) if text.lstrip().startswith("{"):
            return _parse_object(text.encode("utf-8", "surrogateescape"), "the argument")
    schema = wire.value(wire.members(tool).get("inputSchema", wire.EMPTY_OBJECT))
    return Raw(typed_json.dumps(parse_arguments(options.arguments, schema if isinstance(schema, dict) else {})))


def _read_stdin() -> bytes:
    data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise InvalidArguments(f"stdin is larger than {LARGEST_BYTES >> 20} MiB")
    return data.removeprefix(codecs.BOM_UTF8)  # PowerShell may write one


async def _find_tools(client: CommandClient, options: CallOptions) -> Mapping[str, Raw]:
    """Return the group's tools, which include the called one unless the server cannot list tools.

    Raises NotFound and UpstreamError.
    """
    group = client.group(options.group)
    catalog = await group.read_catalog()
    if options.tool not in catalog.tools and not catalog.may_have_more(ListKind.TOOLS):
        catalog = await group.reread()
    tools = catalog.tools
    if options.tool not in tools and not catalog.may_have_more(ListKind.TOOLS):
        hint = f"`{format_command('tools', group.name)}` lists them"
        raise NotFound(f"tool of group `{group.name}`", options.tool, closest(options.tool, list(tools)), hint=hint)
    return tools


def _parse_object(data: bytes, where: str) -> Raw:
    """Return the bytes unchanged, so that numbers keep their digits. Raises InvalidArguments."""
    try:
        found = typed_json.loads(data)
    except ValueError as exc:
        raise InvalidArguments(f"{where} is not JSON: {exc}", hint='quote it: \'{"key": "value"}\'') from exc
    if not isinstance(found, dict):
        raise InvalidArguments(f"{where} is not a JSON object", hint='write {"key": "value"}, or key=value')
    return Raw(data.strip())


def _without_limits(config: Config) -> Config:
    """Return a config without limits on results and with one tool for all calls, since no context is at stake."""
    presentations = {
        name: replace(each, answers=replace(each.answers, limit=NO_LIMIT))
        for name, each in config.presentations.items()
    }
    return replace(config, presentations=presentations, split_calls=False)


def show_answer(context: Invocation, result: Raw, options: CallOptions, *, is_text: bool = False) -> int:
    """Print the result of a call; return the exit code."""
    is_error = bytes(wire.member(result, "isError")) == b"true"
    if options.select is not None and not is_error:
        return _show_selected(context, result, options)
    if context.out.is_json_requested:
        context.out.print_json(bytes(result))
    elif is_error:
        context.out.print_error(
            "\n".join(content_view.texts(result)) or "the tool reported an error without a message"
        )
    else:
        content_view.show_result(context.out, result, options.save, is_text=is_text)
    return _ERROR_CODE if is_error else 0


def _check_jsonpath(path: str) -> None:
    from dynamic_mcp.mcp import selection

    try:
        selection.is_definite(path)
    except selection.BadPath as exc:
        raise InvalidArguments(
            f"--select `{path[:100]}` is not a JSONPath: {exc}", hint="write it like `$.items[*].id`"
        ) from exc


def _show_selected(context: Invocation, result: Raw, options: CallOptions) -> int:
    """Print the matches of `--select` as JSON; without a match, save the whole result, because the tool ran."""
    from dynamic_mcp.mcp import selection
    from dynamic_mcp.tools import results

    assert options.select is not None
    structured = wire.members(result).get("structuredContent")
    try:
        data = results.parse_data(structured, filter(None, content_view.texts(result)))
        context.out.print_json(selection.write_json(selection.select_value(options.select, data)).encode())
        return 0
    except selection.BadPath as exc:
        why = f"`{options.select}` cannot be applied to its result: {exc}"
    except LookupError:
        why = f"nothing matches `{options.select}` in {selection.describe_shape(data)}"
    except ValueError:
        why = "its result is not JSON"
    file = content_view.save_file(bytes(result), ".json", options.save)
    context.out.print_error(f"the tool ran, but {why}\nhint: the whole result is saved as {file}")
    return DynamicMcpError.exit_code
