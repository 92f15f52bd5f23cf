"""All known tools, as data. The order decides which tool owns a file that several tools read."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.tools import editors, programs, reference, terminals
from dynamic_mcp.importer.tools.syntaxes import ANY

TOOLS: tuple[Adapter, ...] = (
    *reference.TOOLS,
    *editors.TOOLS,
    *terminals.TOOLS,
    *programs.TOOLS,
    *editors.AFTERWARDS,
    programs.SHARED,
)

ELSEWHERE = (
    "$.servers",
    "$.mcp.servers",
    "$.'mcp.servers'",
    "$.mcp.mcpServers",
    "$.mcp",
    "$.'amp.mcpServers'",
    "$.'zencoder.mcpServers'",
    "$.context_servers",
    "$.mcp_servers",
    "$.extensions",
    "$.settings.mcp.servers",
    "$.customizations.vscode.mcp.servers",
)
"""The places of servers in tools' files besides `mcpServers`, the most usual first."""

GENERIC = Adapter(
    name="file",
    title="any file",
    places=(),
    source="",
    servers=("$.mcpServers",),
    fallback=ELSEWHERE,
    is_bare=True,
    variables=ANY,
    inputs=("$.inputs", "$.mcp.inputs"),
    off=("$.disabledMcpServers[*]", "$.mcp.excluded[*]", "$.mcp.disabledMcpServers[*]"),
)
