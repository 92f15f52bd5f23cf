"""VS Code and its two siblings, which differ in one directory only."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import Adapter, Field, Place, project, user
from dynamic_mcp.importer.model import Scope
from dynamic_mcp.importer.tools.syntaxes import EDITOR_INPUTS, MILLISECONDS

_IN_SETTINGS = ("$.mcp.servers", "$.'mcp.servers'")


def _editor(name: str, title: str, directory: str, *, aliases: tuple[str, ...] = ()) -> Adapter:
    base = f"{{appdata}}/{directory}/User"
    return Adapter(
        name=name,
        title=title,
        aliases=aliases,
        places=(
            *project("./.vscode/mcp.json"),
            Place(Scope.PROJECT, "./.vscode/settings.json", servers=_IN_SETTINGS),
            Place(Scope.PROJECT, "./*.code-workspace", servers=("$.settings.mcp.servers",)),
            Place(
                Scope.PROJECT,
                "./.devcontainer/devcontainer.json",
                servers=("$.customizations.vscode.mcp.servers",),
            ),
            *project("./.mcp.json", borrowed=True),
            *user(f"{base}/mcp.json", f"{base}/profiles/*/mcp.json"),
            Place(Scope.USER, f"{base}/settings.json", servers=_IN_SETTINGS),
            Place(Scope.USER, f"{base}/profiles/*/settings.json", servers=_IN_SETTINGS),
            *(user("~/.vscode-server/data/User/mcp.json") if name == "vscode" else ()),
            *user("{COPILOT_HOME|~/.copilot}/mcp-config.json", borrowed=True),
        ),
        servers=("$.servers", "$.mcpServers"),
        fallback=("$.mcp.servers", "$.'mcp.servers'"),
        variables=EDITOR_INPUTS,
        inherits="all",
        timeout_unit_s=MILLISECONDS,
        inputs=("$.inputs", "$.mcp.inputs", "$.'mcp.inputs'", "$.settings.mcp.inputs"),
        fields={
            "dev": Field.NOTHING,
            "sandbox": Field.NOTHING,
            "sandboxEnabled": Field.NOTHING,
            "gallery": Field.NOTHING,
            "version": Field.NOTHING,
        },
        source="https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        checked="2026-05-20",
        notes="Servers that extensions register have no file and are not read.",
    )


VSCODE = _editor("vscode", "VS Code", "Code", aliases=("vs-code", "visualstudiocode", "visual-studio-code", "code"))
VSCODE_INSIDERS = _editor("vscode-insiders", "VS Code Insiders", "Code - Insiders", aliases=("code-insiders",))
VSCODIUM = _editor("vscodium", "VSCodium", "VSCodium", aliases=("codium",))
