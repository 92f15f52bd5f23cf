"""Servers that are known to treat all clients alike: same catalog, no requests to clients, no state per client.

One process of such a server can serve all AI tools from its first start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynamic_mcp.config.resolved import (
    ApiDocument,
    CommandLine,
    FeatureServer,
    Program,
    Remote,
    SkillFolders,
    Upstream,
)

# Published packages, and the sources that show it. All were read at the commit of 2026-07-29. Memory 2026.8.31,
# time 2026.10.19 and git 2026.10.19 were also run with several clients.
CLIENT_INDEPENDENT = {
    "@modelcontextprotocol/server-memory": "https://github.com/modelcontextprotocol/servers/tree/main/src/memory",
    "mcp-server-fetch": "https://github.com/modelcontextprotocol/servers/tree/main/src/fetch",
    "mcp-server-git": "https://github.com/modelcontextprotocol/servers/tree/main/src/git",
    "mcp-server-time": "https://github.com/modelcontextprotocol/servers/tree/main/src/time",
}
# The executables of these packages, where they are named differently.
_EXECUTABLES = {"mcp-server-memory": "@modelcontextprotocol/server-memory"}
# Commands that run the package named next, and the flags that may stand between them.
_RUNNERS = (
    *(("npx",), ("npm", "exec"), ("pnpx",), ("pnpm", "dlx"), ("yarn", "dlx"), ("bunx",), ("bun", "x")),
    *(("uvx",), ("uv", "tool", "run"), ("pipx", "run")),
)
_FLAGS = frozenset(("-y", "--yes", "-q", "--quiet", "--offline", "--prefer-offline", "--"))
_PYTHON = re.compile(r"pythonw?[\d.]*")
_VERSION = re.compile(r"(?<=.)(?:@|==)[^/\\@]*$")
_IN_NODE_MODULES = re.compile(
    r"(?:^|[\\/])node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/@]+)[\\/](?:dist|build)[\\/][^\\/]+\.js$"
)


def is_client_independent(upstream: Upstream) -> bool:
    """Return whether a server is known to treat all its clients alike.

    A command line program, a service with an OpenAPI document, folders of skills and servers of features always do:
    only dynamic-mcp presents them as servers.
    """
    match upstream:
        case CommandLine() | SkillFolders() | FeatureServer() | Remote(api=ApiDocument()):
            return True
        case Program(command=command, args=args):
            return _package_of((command, *args)) in CLIENT_INDEPENDENT
        case _:
            return False


def _package_of(words: tuple[str, ...]) -> str:
    """Return the package that a command runs, without its version; empty if it is uncertain."""
    program = _program_name(words[0])
    if program == "cmd" and len(words) > 2 and words[1].lower() == "/c":
        return _package_of(words[2:])
    command = (program, *words[1:])
    for runner in _RUNNERS:
        if command[: len(runner)] == runner:
            return _VERSION.sub("", _first_name(command[len(runner) :]))
    if program == "python" and command[1:2] == ("-m",):
        return "".join(command[2:3]).replace("_", "-")
    if program == "node" and len(command) > 1:
        found = _IN_NODE_MODULES.search(command[1])
        return found[1].replace("\\", "/") if found else ""
    return _EXECUTABLES.get(program, program)


def _first_name(words: Iterable[str]) -> str:
    name = next((word for word in words if word not in _FLAGS), "")
    return "" if name.startswith("-") else name


def _program_name(command: str) -> str:
    name = re.split(r"[\\/]", command)[-1].removesuffix(".exe").removesuffix(".cmd")
    return "python" if _PYTHON.fullmatch(name) else name
