"""All tools that are known, as data. The order decides whose a file is that several tools read."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.containers import GENERIC as _PATHS
from dynamic_mcp.importer.known import editors, programs, reference, terminals, vscode
from dynamic_mcp.importer.known.syntaxes import ANY

TOOLS: tuple[Adapter, ...] = (
    *reference.TOOLS,
    vscode.VSCODE_INSIDERS,
    vscode.VSCODIUM,
    *editors.TOOLS,
    *terminals.TOOLS,
    *programs.TOOLS,
    *editors.AFTERWARDS,
    programs.SHARED,
)

GENERIC = Adapter(
    name="file",
    title="any file",
    places=(),
    source="",
    servers=(),
    fallback=_PATHS,
    is_bare=True,
    variables=ANY,
    inputs=("$.inputs", "$.mcp.inputs"),
    off=("$.disabledMcpServers[*]", "$.mcp.excluded[*]", "$.mcp.disabledMcpServers[*]"),
)
