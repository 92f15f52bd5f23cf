"""Servers that are known to keep the state of one conversation: browsers, desktops, terminals, lines of thought.

Two clients of one such process would click in each other's pages, so each session gets its own by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynamic_mcp.config.resolved import Program, Upstream

# Packages and programs by their published names, as they stand in a command or its arguments.
STATEFUL = frozenset(
    (
        "@playwright/mcp",
        "@executeautomation/playwright-mcp-server",
        "playwright-mcp",
        "playwright-mcp-server",
        "mcp-server-playwright",
        "chrome-devtools-mcp",
        "@browsermcp/mcp",
        "@browserbasehq/mcp",
        "@browserbasehq/mcp-server-browserbase",
        "@agent-infra/mcp-server-browser",
        "browser-use",
        "browser-use-mcp-server",
        "mcp-browser-use",
        "mcp-server-browser-use",
        "@modelcontextprotocol/server-puppeteer",
        "puppeteer-mcp-server",
        "mcp-selenium",
        "@angiejones/mcp-selenium",
        "@wonderwhy-er/desktop-commander",
        "desktop-commander",
        "computer-use-mcp",
        "windows-mcp",
        "@mobilenext/mobile-mcp",
        "appium-mcp",
        "iterm-mcp",
        "mcp-terminal",
        "terminal-mcp",
        "tmux-mcp",
        "mcp-interactive-terminal",
        "@modelcontextprotocol/server-sequential-thinking",
        "mcp-server-sequential-thinking",
        "mcp-sequentialthinking-tools",
        "mcp/playwright",
        "mcp/puppeteer",
        "mcp/sequentialthinking",
        "mcr.microsoft.com/playwright/mcp",
    )
)
# A version or tag after a package's name: `@latest`, `==1.2`, `:1.0`; a scope's own `@` comes first and stays.
_VERSION = re.compile(r"(?<=.)(?:@|==|:)[^/\\@]*$")


def is_stateful(upstream: Upstream) -> bool:
    """Tell whether a server is a program that is known to keep one conversation's state."""
    if not isinstance(upstream, Program):
        return False
    return any(name in STATEFUL for name in _names((upstream.command, *upstream.args)))


def _names(words: Iterable[str]) -> Iterable[str]:
    """Yield what each word may name: a package without its version, and the file's name of a path."""
    for word in words:
        package = _VERSION.sub("", word)
        yield package
        yield re.split(r"[\\/]", package)[-1].removesuffix(".exe").removesuffix(".cmd")
