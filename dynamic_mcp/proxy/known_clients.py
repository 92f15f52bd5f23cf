"""The clients of which is known what they make of listed tools. One that is not here gets the two tools."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from msgspec import Struct

Version = tuple[int, ...]


class KnownClient(Struct, frozen=True):
    """A client, by a glob over its name in `initialize`, from a version on and before another one.

    `tool` is its name for `install`, and `title` its maker's. `searches_tools`: it keeps listed tools out of the
    model's context, and gives the model a search for them. `runs_scripts`: its model calls listed tools from scripts
    that the client runs. `why` says what follows for `direct: "auto"`, `source` where that comes from, and `tried`
    which version it was seen with, if it was.
    """

    name: str
    title: str
    searches_tools: bool
    why: str
    source: str
    tool: str = ""
    runs_scripts: bool = False
    since: Version = ()
    before: Version | None = None
    tried: str = ""

    def is_at(self, version: str) -> bool:
        """Return whether a version is in the range; an unknown one is in no partial range."""
        if not self.since and self.before is None:
            return True
        found = parse_version(version)
        return bool(found) and self.since <= found and (self.before is None or found < self.before)


KNOWN_CLIENTS = (
    KnownClient(
        name="claude-code",
        title="Claude Code",
        tool="claude",
        searches_tools=True,
        since=(2, 1, 7),
        why="it hides listed tools behind its own search",
        source="https://code.claude.com/docs/en/mcp#scale-with-mcp-tool-search",
        tried="2.1.330",
    ),
    KnownClient(
        name="codex-mcp-client",
        title="Codex",
        tool="codex",
        searches_tools=True,
        runs_scripts=True,
        why="its newer models get listed tools only through its own search",
        source="https://github.com/openai/codex/pull/17287",
        tried="0.169.0",
    ),
    KnownClient(
        name="qwen-cli-mcp-client*",
        title="Qwen Code",
        tool="qwen-code",
        searches_tools=True,
        why="it hides listed tools behind its own search",
        source="https://github.com/QwenLM/qwen-code",
        tried="0.24.4",
    ),
    KnownClient(
        name="gemini-cli-mcp-client*",
        title="Gemini CLI",
        tool="gemini",
        searches_tools=False,
        why="it puts all listed tools into each request",
        source="https://geminicli.com/docs/tools/mcp-server",
        tried="0.61.0",
    ),
    KnownClient(
        name="opencode",
        title="opencode",
        tool="opencode",
        searches_tools=False,
        why="it puts all listed tools into each request",
        source="https://opencode.ai/docs/mcp-servers",
        tried="1.18.33",
    ),
    KnownClient(
        name="kilo",
        title="Kilo",
        tool="kilocode",
        searches_tools=False,
        why="it puts all listed tools into each request",
        source="https://kilo.ai/docs/automate/mcp/using-in-kilo-code",
        tried="7.7.7",
    ),
    KnownClient(
        name="copilot-cli",
        title="Copilot CLI",
        tool="copilot-cli",
        searches_tools=False,
        why="it put all listed tools into each request of the model that it was tried with",
        source="https://docs.github.com/copilot/concepts/agents/about-copilot-cli",
        tried="1.0.102",
    ),
    KnownClient(
        name="@cline/core",
        title="Cline",
        tool="cline",
        searches_tools=False,
        why="it puts all listed tools into each request",
        source="https://docs.cline.bot/mcp/mcp-overview",
        tried="3.0.65",
    ),
    KnownClient(
        name="cursor*",
        title="Cursor",
        tool="cursor",
        searches_tools=False,
        why="it tells its model the names of all listed tools, and its version does not say what else",
        source="https://cursor.com/blog/dynamic-context-discovery",
    ),
)


def find_known(name: str, version: str) -> KnownClient | None:
    """Return the first client with this name and version."""
    return next((each for each in KNOWN_CLIENTS if fnmatchcase(name, each.name) and each.is_at(version)), None)


def find_title(name: str) -> str:
    """Return what the maker of a client calls it, whatever its version; empty if that is not known."""
    return next((each.title for each in KNOWN_CLIENTS if fnmatchcase(name, each.name)), "")


def find_known_tool(tool: str) -> KnownClient | None:
    """Return what is known of the newest version of a tool, by its name for `install`."""
    return next((each for each in KNOWN_CLIENTS if each.tool == tool and each.before is None), None)


def parse_version(text: str) -> Version:
    """Return the numbers that a version begins with; empty if it begins with none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return () if found is None else tuple(map(int, found[1].split(".")))
