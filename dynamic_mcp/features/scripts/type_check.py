"""Checks the calls of a script before it runs: that their tools exist, and that their arguments fit the schemas.

It knows the calls whose names are written in the script, and of their arguments what is written there, too. A script
that it cannot judge, or not in time, runs unchecked.
"""

from __future__ import annotations

import asyncio
import logging
import time

from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.features.scripts.names import NamedCall, ScriptNames
from dynamic_mcp.features.scripts.sandbox import ScriptFailed
from dynamic_mcp.features.scripts.signature import sign
from dynamic_mcp.features.scripts.written_arguments import WrittenArguments, find_certain_flaws, read_arguments
from dynamic_mcp.proxy.own_tools import FindTool, FoundTool
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.text import one_line, pluralize
from dynamic_mcp.tools.arguments import describe_flaws

log = logging.getLogger("dynamic_mcp")

# How long a script waits for servers that are asked for their tools, and how long it is computed for.
_WITHIN_S = 10.0
_COMPUTING_S = 1.0
_MOST_SHOWN = 5
_MOST_SIGNATURES = 3
_LONGEST_LINE = 160


class _TypeError(Exception):
    """A call that cannot be right, and how the tool is called."""

    def __init__(self, call: NamedCall, message: str, signature: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.message = message
        self.signature = signature


async def check_types(code: str, names: ScriptNames, find: FindTool, clock: Clock) -> None:
    """Check the calls of a script, whose tools `find` finds. Raises ScriptFailed for those that cannot be right."""
    if not names.calls or names.redefines:
        return
    errors: list[_TypeError] = []
    check = asyncio.create_task(_Checker(find).check(names, errors))
    bound = asyncio.create_task(clock.sleep(_WITHIN_S))
    try:
        await asyncio.wait([check, bound], return_when=asyncio.FIRST_COMPLETED)
        if check.done() and (failure := check.exception()) is not None:
            log.error("a bug: the types of a script cannot be checked", exc_info=failure)
    finally:
        check.cancel()
        bound.cancel()
        await asyncio.wait([check, bound])
    if errors:
        raise _describe(errors, code)


class _Checker:
    """Checks the calls of one script; servers that are not known yet are asked at once."""

    def __init__(self, find: FindTool) -> None:
        self._find_tool = find
        self._left_s = _COMPUTING_S

    async def check(self, names: ScriptNames, errors: list[_TypeError]) -> None:
        """Add the errors of the calls, in their order as far as the servers answer."""
        pairs = list(dict.fromkeys((call.group, call.name) for call in names.calls))
        found = await asyncio.gather(*(self._find(*pair) for pair in pairs))
        tools = dict(zip(pairs, found, strict=True))
        for call in names.calls:
            if self._left_s <= 0:
                return
            began = time.thread_time()
            try:
                await self._check_call(call, tools[call.group, call.name])
            except _TypeError as exc:
                errors.append(exc)
            self._left_s -= time.thread_time() - began
            await asyncio.sleep(0)  # others have their turn

    async def _find(self, group: str, name: str, *, fresh: bool = False) -> FoundTool | NotFound | None:
        """Return a tool, or that there is none; None if that is not certain, so that only the call can tell."""
        if not group or not name:
            return None
        try:
            return await self._find_tool(group, name, fresh=fresh)
        except NotFound as exc:
            return exc
        except DynamicMcpError:
            return None

    async def _check_call(self, call: NamedCall, tool: FoundTool | NotFound | None) -> None:
        """Raise _TypeError if a call cannot be right."""
        if isinstance(tool, NotFound):
            raise _TypeError(call, str(tool))
        if tool is None:
            return
        written = read_arguments(call.arguments)
        problems = _find_problems(tool, written)
        if problems and not tool.is_certain:  # its schema may be of yesterday, from disk
            found = await self._find(tool.group, tool.name, fresh=True)
            if not isinstance(found, FoundTool):
                return
            tool, problems = found, _find_problems(found, written)
        if problems:
            raise _TypeError(call, "; ".join(problems), sign(tool.group, tool.name, tool.definition))


def _find_problems(tool: FoundTool, written: WrittenArguments) -> list[str]:
    try:
        args, flaws = find_certain_flaws(tool.schema, written)
    except InvalidArguments:
        return []  # the call says it better
    if not flaws:
        return []
    return describe_flaws(tool.schema, args, flaws)


def _describe(errors: list[_TypeError], code: str) -> ScriptFailed:
    """Return all that is wrong, beginning with the first line."""
    lines = code.splitlines()
    texts = []
    for number, error in enumerate(errors[:_MOST_SHOWN]):
        line = error.call.line
        source = one_line(lines[line - 1], _LONGEST_LINE) if line <= len(lines) else ""
        texts.append(f"line {line}: `{source}`\n{error.message}" if number else error.message)
    if len(errors) > _MOST_SHOWN:
        texts.append(f"and {pluralize(len(errors) - _MOST_SHOWN, 'more error')}")
    signatures = list(dict.fromkeys(error.signature for error in errors if error.signature))[:_MOST_SIGNATURES]
    if signatures:
        texts.append("\n".join(["it is called like this:", *signatures]))
    return ScriptFailed("\n".join(texts), errors[0].call.line)
