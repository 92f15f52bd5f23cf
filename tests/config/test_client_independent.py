"""Which servers are known to make no difference between their clients, by how they are started."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.client_independent import is_client_independent
from dynamic_mcp.config.resolved import CommandLine, Program, Remote


def program(command: str, *args: str) -> Program:
    return Program(command=command, args=args, env={}, cwd=None)


@pytest.mark.parametrize(
    "upstream",
    [
        program("uvx", "mcp-server-time", "--local-timezone", "UTC"),
        program("uvx", "mcp-server-time==2026.10.19"),
        program("uv", "tool", "run", "mcp-server-git"),
        program("pipx", "run", "mcp-server-fetch"),
        program("/home/me/.venv/bin/mcp-server-git", "--repository", "."),
        program("python3.12", "-m", "mcp_server_time"),
        program("npx", "-y", "@modelcontextprotocol/server-memory"),
        program("npx", "--yes", "@modelcontextprotocol/server-memory@latest"),
        program("cmd", "/c", "npx", "-y", "@modelcontextprotocol/server-memory"),
        program("C:\\npm\\mcp-server-memory.cmd"),
        program("node", "/srv/node_modules/@modelcontextprotocol/server-memory/dist/index.js"),
        CommandLine(command="git", pack="git", description="", commands=(), env={}),
    ],
    ids=lambda upstream: " ".join([upstream.command, *getattr(upstream, "args", ())]),
)
def test_a_server_that_makes_no_difference_is_known_by_what_runs_it(upstream: Program | CommandLine) -> None:
    assert is_client_independent(upstream)


@pytest.mark.parametrize(
    "upstream",
    [
        program("npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me"),
        program("npx", "-y", "@upstash/context7-mcp"),
        program("npx", "-y", "wrapper", "@modelcontextprotocol/server-memory"),
        program("npx", "--package", "@modelcontextprotocol/server-memory", "other"),
        program("npx"),
        program("python", "wrapper.py", "mcp-server-time"),
        program("python", "-m"),
        program("bash", "-c", "mcp-server-time"),
        program("node", "mcp-server-time"),
        program("node", "/srv/node_modules/other/dist/node_modules.js"),
        program("docker", "run", "-i", "--rm", "mcp/time"),
        program("cmd", "/c"),
        Remote(kind="http", url="https://mcp.example.test/mcp-server-time", headers={}),
    ],
    ids=repr,
)
def test_any_other_server_may_make_one(upstream: Program | Remote) -> None:
    assert not is_client_independent(upstream)
