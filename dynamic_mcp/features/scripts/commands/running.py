"""Runs scripts from the command line: stored ones as tools, and files as a model would."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Raw

from dynamic_mcp.cli import content_view
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.tool_call import CallOptions, build_arguments, call_tool, show_answer
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError, InvalidArguments
from dynamic_mcp.features.scripts.commands.stored_folder import GROUP, find_settings, list_scripts
from dynamic_mcp.features.scripts.stored import LARGEST_BYTES, BadScript, define, read_script
from dynamic_mcp.features.scripts.tool import NAME
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import os_reason


def run_stored(context: Invocation, name: str, arguments: tuple[str, ...], save: str | None) -> int:
    """Run a stored script and print its result; return the exit code. Raises ConfigError and NotFound."""
    for file in list_scripts(context.read_config()):
        if file.stem != name:
            continue
        try:  # one that is left out of the list says why
            read_script(file)
        except BadScript as exc:
            raise ConfigError(str(file), "", str(exc)) from exc
    return call_tool(context, CallOptions(GROUP, name, arguments, select=None, timeout=None, save=save))


def try_file(context: Invocation, file: str, arguments: tuple[str, ...], save: str | None) -> int:
    """Run the script in a file, and print its result; return the exit code.

    Raises ConfigError and InvalidArguments.
    """
    config = context.read_config()
    find_settings(config)
    code = _read(file)
    options = CallOptions("", NAME, arguments, select=None, timeout=None, save=save)
    params = {"code": code, "input": build_arguments(_find_definition(code), options)}
    return run(_try(context, config, params, options))


async def _try(context: Invocation, config: Config, arguments: Mapping[str, object], options: CallOptions) -> int:
    async with open_client(context, config, may_ask=True) as client:
        params = {"name": NAME, "arguments": arguments, "_meta": {"progressToken": 1}}  # which shows the calls
        result = await client.ask("tools/call", params)
        with content_view.reject_malformed(NAME):
            return show_answer(context, result, options)


def _read(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(LARGEST_BYTES + 1)
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as exc:
        raise InvalidArguments(f"`{file}` cannot be read: {os_reason(exc)}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidArguments(f"`{file}` is not UTF-8") from exc


def _find_definition(code: str) -> Raw:
    """Return the definition of a script that has front matter; an empty one for any other."""
    try:
        return define("script", code, "")
    except BadScript:
        return wire.EMPTY_OBJECT
