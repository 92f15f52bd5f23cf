"""Runs a server under `strace`, and proposes a sandbox that allows what it has used."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from msgspec.structs import replace

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.own_client import open_own_client
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.tool_call import CallOptions, build_arguments
from dynamic_mcp.config.resolved import Config, GroupConfig, Program
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.sandbox.learned import Learned, learn_from
from dynamic_mcp.features.sandbox.places import find_places
from dynamic_mcp.features.sandbox.words import Restrictions
from dynamic_mcp.mcp import wire
from dynamic_mcp.tools import meta_tools

_TRACED = "file,connect,sendto,sendmsg,sendmmsg"
_STRACE = ("-f", "-qq", "-xx", "-s", "8192", "--signal=none", "-e", f"trace={_TRACED}")


def learn(context: Invocation, server: str, tool: str | None, arguments: tuple[str, ...]) -> int:
    """Print the sandbox that a server needs; return the exit code. Raises DynamicMcpError."""
    config = context.read_config(server)
    (group,) = config.groups
    program = group.upstream
    if not isinstance(program, Program):
        raise DynamicMcpError(f"`{server}` is no server that runs as a program")
    strace = shutil.which("strace")
    if strace is None:
        raise DynamicMcpError("`strace` is not installed", hint="install it, for example by `apt install strace`")
    with tempfile.TemporaryDirectory(prefix="dynamic-mcp-") as folder:
        trace = Path(folder, "trace")
        args = (*_STRACE, "-o", str(trace), "--", program.command, *program.args)
        words = Restrictions(server, home=str(Path.home()), read=())
        own = find_places(words, program).env  # as it has in a sandbox
        watched = replace(program, command=strace, args=args, env={**program.env, **own}, confinement=None)
        run(_use(context, replace(config, groups=(replace(group, upstream=watched),)), tool, arguments))
        with trace.open("rb") as lines:
            learned = learn_from(lines, words, program)
    _show(context, group, learned)
    return 0


async def _use(context: Invocation, config: Config, tool: str | None, arguments: tuple[str, ...]) -> None:
    """Connect to the server, list what it has, and call a tool."""
    name = config.groups[0].name
    async with open_own_client(context, config, may_ask=True, uses_cache=False) as client:
        with context.out.progress(f"watching `{name}`"):
            catalog = await client.group(name).read_catalog()
            if tool is None:
                return
            options = CallOptions(name, tool, arguments, select=None, timeout=None, save=None)
            args = build_arguments(catalog.tools.get(tool, wire.EMPTY_OBJECT), options)
            params = {"name": meta_tools.CALL, "arguments": {"group": name, "name": tool, "args": args}}
            await client.ask("tools/call", params, group=name)


def _show(context: Invocation, group: GroupConfig, learned: Learned) -> None:
    words = {"read": learned.read, "write": learned.write, "hosts": learned.hosts}
    context.out.print_json({"sandbox": words})
    for each in learned.sockets:
        context.out.say(f"{group.name} used the socket `{each}`: add it to `write` if it needs it")
    for each in learned.addresses:
        context.out.say(f"{group.name} connected to {each}, an address without a name")
