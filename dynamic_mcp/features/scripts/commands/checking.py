"""Checks stored scripts from the command line: front matter, syntax, and the tools that they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.cli.client import CommandClient
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.features.scripts.commands.stored_folder import GROUP, find_settings, list_scripts
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.names import read_names
from dynamic_mcp.features.scripts.sandbox import Sandbox, ScriptFailed
from dynamic_mcp.features.scripts.stored import BadScript, read_script
from dynamic_mcp.features.scripts.type_check import check_types
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.own_tools import FoundTool
from dynamic_mcp.system.clock import LoopClock


class _Verdict(Struct, frozen=True, omit_defaults=True):
    """What was found about a script; nothing wrong if `error` is empty."""

    script: str
    error: str = ""
    line: int = 0


def check(context: Invocation, names: tuple[str, ...]) -> int:
    """Check stored scripts, and print what is wrong; return the exit code. Raises ConfigError and NotFound."""
    config = context.read_config()
    files = {file.stem: file for file in list_scripts(config)}
    for name in names:
        if name not in files:
            raise NotFound("script", name, files)
    return run(_check(context, config, [files[name] for name in names or files]))


async def _check(context: Invocation, config: Config, files: Iterable[Path]) -> int:
    async with open_client(context, config) as client:
        verdicts = [each async for each in _judge_all(client, find_settings(config), files)]
    if context.out.is_json:
        context.out.print_json(verdicts)
    else:
        for verdict in verdicts:
            where = f"{verdict.script}, line {verdict.line}" if verdict.line else verdict.script
            context.out.print_text(f"{where}: {verdict.error or 'ok'}")
    return DynamicMcpError.exit_code if any(each.error for each in verdicts) else 0


async def _judge_all(client: CommandClient, settings: Scripts, files: Iterable[Path]) -> AsyncIterator[_Verdict]:
    sandbox = Sandbox(LoopClock())
    try:
        for file in files:
            yield await _judge(client, settings, sandbox, file)
    finally:
        await sandbox.close()


async def _judge(client: CommandClient, settings: Scripts, sandbox: Sandbox, file: Path) -> _Verdict:
    try:
        code = (await asyncio.to_thread(read_script, file)).code
        if (size := len(code.encode())) > settings.source:
            return _Verdict(
                file.stem, f"it has {size} bytes, and {settings.source} are the most (the bound `source`)"
            )
        await sandbox.check_syntax(code, settings)
        names = read_names(code)
        for call in names.calls if not names.redefines else ():
            if call.group == GROUP:
                return _Verdict(file.stem, "a script cannot run scripts", call.line)
        await check_types(code, names, _Finder(client), LoopClock())
    except BadScript as exc:
        return _Verdict(file.stem, str(exc))
    except ScriptFailed as exc:
        return _Verdict(file.stem, exc.message, exc.line)
    return _Verdict(file.stem)


class _Finder:
    """Finds tools in the catalogs that a command reads."""

    def __init__(self, client: CommandClient) -> None:
        self._client = client

    async def __call__(self, group: str, name: str, *, fresh: bool = False) -> FoundTool:
        found = self._client.group(group)
        catalog = await (found.reread() if fresh else found.read_catalog())
        if name not in catalog.tools and not fresh:
            catalog = await found.reread()
        if name not in catalog.tools:
            if catalog.may_have_more(ListKind.TOOLS):
                raise DynamicMcpError(found.complaint([ListKind.TOOLS]))
            raise NotFound(f"tool of group `{group}`", name, catalog.tools)
        definition = catalog.tools.get(name, wire.EMPTY_OBJECT)
        return FoundTool(group, name, definition, catalog.input_schema(name), is_certain=fresh)
