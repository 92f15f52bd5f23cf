"""One call of one tool: its arguments from the command line, its result for whoever looks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.cli import content_view, strict_json
from dynamic_mcp.cli.client import Client, client, with_timeout
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.tool_arguments import parse_arguments
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.values import NO_LIMIT
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound, UpstreamError
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.names import closest
from dynamic_mcp.system.own_command import command
from dynamic_mcp.system.whole_files import LARGEST_BYTES
from dynamic_mcp.tools import meta_tools

_ERROR_CODE = UpstreamError.exit_code


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    group: str
    tool: str
    arguments: tuple[str, ...]
    select: str | None
    timeout: str | None
    save: str | None


def call(this: Invocation, wanted: Wanted) -> int:
    """Call a tool and print its result; returns the exit code. Raises InvalidArguments before anything runs."""
    if wanted.select is not None:
        _check_path(wanted.select)
    config = with_timeout(_unabridged(this.config_of(wanted.group)), wanted.timeout, "tools_s")
    return run(_called(this, config, wanted))


async def _called(this: Invocation, config: Config, wanted: Wanted) -> int:
    async with client(config, this.out) as made:
        with this.out.waiting(f"waiting for `{wanted.tool}` of {wanted.group}"):
            if this.verbose:
                await made.ask("logging/setLevel", {"level": "debug"})
            result = await made.ask("tools/call", await _params(made, wanted), group=wanted.group)
        with content_view.understood(wanted.group):
            return _shown(this, result, wanted)


async def _params(made: Client, wanted: Wanted) -> dict[str, object]:
    arguments = {"group": wanted.group, "name": wanted.tool, "args": await _args(made, wanted)}
    return {"name": meta_tools.CALL, "arguments": arguments, "_meta": {"progressToken": 1}}


async def _args(made: Client, wanted: Wanted) -> object:
    """Return the arguments: JSON as it is, or typed by the tool's schema. Raises InvalidArguments."""
    tools = await _tools(made, wanted)
    match wanted.arguments:
        case ():
            return {}
        case ("-",):
            return _json_object(_stdin(), "stdin")
        case (text,) if text.lstrip().startswith("{"):
            return _json_object(text.encode("utf-8", "surrogateescape"), "the argument")
    schema = wire.value(wire.members(tools[wanted.tool]).get("inputSchema", wire.EMPTY_OBJECT))
    return Raw(strict_json.dumps(parse_arguments(wanted.arguments, schema if isinstance(schema, dict) else {})))


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise InvalidArguments(f"stdin is larger than {LARGEST_BYTES >> 20} MiB")
    return data


async def _tools(made: Client, wanted: Wanted) -> Mapping[str, Raw]:
    """Return the group's tools, the wanted one among them. Raises NotFound and UpstreamError."""
    group = made.proxy.groups[wanted.group]
    tools = (await group.catalog()).tools
    if wanted.tool not in tools:
        tools = (await group.reread()).tools
    if wanted.tool not in tools:
        hint = f"`{command('tools', group.name)}` lists them"
        raise NotFound(f"tool of group `{group.name}`", wanted.tool, closest(wanted.tool, list(tools)), hint=hint)
    return tools


def _json_object(data: bytes, where: str) -> Raw:
    """Return the bytes as they are, so that numbers keep their digits. Raises InvalidArguments."""
    try:
        found = strict_json.loads(data)
    except ValueError as exc:
        raise InvalidArguments(f"{where} is not JSON: {exc}", hint='quote it, as \'{"key": "value"}\'') from exc
    if not isinstance(found, dict):
        raise InvalidArguments(f"{where} is not a JSON object", hint='write {"key": "value"}, or key=value')
    return Raw(data.strip())


def _unabridged(config: Config) -> Config:
    """Show results whole, and call by the one verb that fits every tool: nobody's context is to be spared here."""
    groups = (replace(group, answers=replace(group.answers, limit=NO_LIMIT)) for group in config.groups)
    return replace(config, groups=tuple(groups), split_calls=False)


def _shown(this: Invocation, result: Raw, wanted: Wanted) -> int:
    is_error = bytes(wire.member(result, "isError")) == b"true"
    if wanted.select is not None and not is_error:
        return _show_selected(this, result, wanted)
    if this.out.asked_for_json:
        this.out.json(bytes(result))
    elif is_error:
        this.out.error("\n".join(content_view.texts(result)) or "the tool reported an error without a message")
    else:
        content_view.show_result(this.out, result, wanted.save)
    return _ERROR_CODE if is_error else 0


def _check_path(path: str) -> None:
    from dynamic_mcp.tools import selection

    try:
        selection.is_definite(path)
    except selection.BadPath as exc:
        raise InvalidArguments(
            f"--select `{path[:100]}` is not a JSONPath: {exc}", hint="as `$.items[*].id`"
        ) from exc


def _show_selected(this: Invocation, result: Raw, wanted: Wanted) -> int:
    """Print what `--select` matches as JSON; where it matches nothing, save the whole, because the tool ran."""
    from dynamic_mcp.tools import results, selection

    assert wanted.select is not None
    structured = wire.members(result).get("structuredContent")
    try:
        data = results.data_of(structured, filter(None, content_view.texts(result)))
        this.out.json(selection.written(selection.value(wanted.select, data)).encode())
        return 0
    except selection.BadPath as exc:
        why = f"`{wanted.select}` cannot be applied to its result: {exc}"
    except LookupError:
        why = f"nothing matches `{wanted.select}` in {selection.shape(data)}"
    except ValueError:
        why = "its result is not JSON"
    saved = content_view.saved(bytes(result), ".json", wanted.save)
    this.out.error(f"the tool ran, but {why}\nhint: the whole result is saved as {saved}")
    return DynamicMcpError.exit_code
