from __future__ import annotations

import pytest

from dynamic_mcp.config.resolve import is_stateful
from dynamic_mcp.config.resolved import Program, Remote, Share
from tests.config.fixtures import ReadConfig


def program(command: str, *args: str) -> Program:
    return Program(command=command, args=args, env={}, cwd=None)


@pytest.mark.parametrize(
    "upstream",
    [
        program("npx", "-y", "@playwright/mcp@latest"),
        program("npx", "@playwright/mcp", "--headless"),
        program("cmd", "/c", "npx", "-y", "chrome-devtools-mcp@0.6.0"),
        program("uvx", "browser-use-mcp-server==1.2"),
        program("/usr/local/bin/mcp-server-playwright"),
        program("C:\\Tools\\windows-mcp.exe"),
        program("docker", "run", "-i", "--rm", "mcp/playwright:latest"),
        program("docker", "run", "-i", "mcr.microsoft.com/playwright/mcp"),
        program("npx", "-y", "@modelcontextprotocol/server-sequential-thinking"),
        program("npx", "-y", "@wonderwhy-er/desktop-commander@latest"),
    ],
    ids=lambda upstream: " ".join([upstream.command, *upstream.args]),
)
def test_a_server_that_keeps_one_conversations_state_is_known(upstream: Program) -> None:
    assert is_stateful(upstream)


@pytest.mark.parametrize(
    "upstream",
    [
        program("npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/playwright"),
        program("uvx", "mcp-server-time"),
        program("python", "my_playwright_report.py"),
        Remote(kind="http", url="https://mcp.example.test/playwright-mcp", headers={}),
    ],
    ids=repr,
)
def test_any_other_server_is_not(upstream: Program | Remote) -> None:
    assert not is_stateful(upstream)


def test_a_stateful_server_is_each_sessions_own_unless_the_config_says_otherwise(read_config: ReadConfig) -> None:
    browser = {"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}
    config = read_config(
        {
            "mcpServers": {
                "browser": browser,
                "one": {**browser, "share": "all"},
                "auto": {**browser, "share": "auto"},
                "time": {"command": "uvx", "args": ["mcp-server-time"]},
                "memory": {"command": "memory", "share": "session"},
            }
        }
    )

    assert {group.name: group.share for group in config.groups} == {
        "browser": Share.SESSION,
        "one": Share.ALL,
        "auto": Share.SESSION,
        "time": Share.AUTO,
        "memory": Share.SESSION,
    }


def test_the_defaults_say_who_shares_all_servers(read_config: ReadConfig) -> None:
    servers = {"a": {"command": "a"}, "b": {"command": "b", "share": "user"}}
    config = read_config({"mcpServers": servers, "settings": {"defaults": {"share": "all"}}})

    assert [group.share for group in config.groups] == [Share.ALL, Share.USER]
