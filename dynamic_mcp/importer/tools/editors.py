"""Editors, and assistants inside one."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import (
    MILLISECONDS,
    SECONDS,
    Adapter,
    Meaning,
    Syntax,
    TimeoutField,
    local,
    project,
    user,
)
from dynamic_mcp.importer.tools.syntaxes import ANY, BRACES, EDITOR, EDITOR_INPUTS, ENV, in_editors

_IN_SETTINGS = ("$.mcp.servers", "$.'mcp.servers'")


def _editor(name: str, title: str, directory: str, *, aliases: tuple[str, ...] = ()) -> Adapter:
    base = f"{{appdata}}/{directory}/User"
    return Adapter(
        name=name,
        title=title,
        aliases=aliases,
        places=(
            *project("./.vscode/mcp.json"),
            *project("./.vscode/settings.json", servers=_IN_SETTINGS),
            *project("./*.code-workspace", servers=("$.settings.mcp.servers",)),
            *project(
                "./.devcontainer/devcontainer.json",
                servers=("$.customizations.vscode.mcp.servers",),
            ),
            *project("./.mcp.json", borrowed=True),
            *user(f"{base}/mcp.json", f"{base}/profiles/*/mcp.json"),
            *user(f"{base}/settings.json", servers=_IN_SETTINGS),
            *user(f"{base}/profiles/*/settings.json", servers=_IN_SETTINGS),
            *(user("~/.vscode-server/data/User/mcp.json") if name == "vscode" else ()),
            *user("{COPILOT_HOME|~/.copilot}/mcp-config.json", borrowed=True),
        ),
        servers=("$.servers", "$.mcpServers"),
        fallback=("$.mcp.servers", "$.'mcp.servers'"),
        variables=EDITOR_INPUTS,
        inherits="all",
        timeout_unit_s=MILLISECONDS,
        inputs=("$.inputs", "$.mcp.inputs", "$.'mcp.inputs'", "$.settings.mcp.inputs"),
        ignored=("dev", "sandbox", "sandboxEnabled", "gallery", "version"),
        source="https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        checked="2026-05-20",
        notes="Servers that extensions register have no file and are not read.",
    )


VSCODE = _editor("vscode", "VS Code", "Code", aliases=("vs-code", "visualstudiocode", "visual-studio-code", "code"))

TOOLS = (
    _editor("vscode-insiders", "VS Code Insiders", "Code - Insiders", aliases=("code-insiders",)),
    _editor("vscodium", "VSCodium", "VSCodium", aliases=("codium",)),
    Adapter(
        name="windsurf",
        title="Windsurf",
        aliases=("codeium",),
        places=(
            *project("./.mcp.json", borrowed=True),
            *user(
                "~/.codeium/windsurf/mcp_config.json",
                "~/.codeium/windsurf-next/mcp_config.json",
                "~/.codeium/mcp_config.json",
            ),
        ),
        variables=(*ENV, Syntax.FILE),
        source="https://docs.windsurf.com/windsurf/cascade/mcp",
    ),
    Adapter(
        name="devin",
        title="Devin",
        places=(
            *project("./.devin/mcp_config.json", "./.devin/config.json"),
            *local("./.devin/mcp_config.local.json", "./.devin/config.local.json"),
            *user("{config}/devin/mcp_config.json", "{config}/devin/config.json", systems=("linux", "darwin")),
            *user("{appdata}/devin/mcp_config.json", "{appdata}/devin/config.json", systems=("win32",)),
        ),
        variables=ANY,
        source="https://docs.devin.ai/cli/reference/configuration/config-file",
    ),
    Adapter(
        name="zed",
        title="Zed",
        places=(
            *project("./.zed/settings.json"),
            *user("{config}/zed/settings.json", systems=("linux", "darwin")),
            *user("{appdata}/Zed/settings.json", systems=("darwin", "win32")),
        ),
        servers=("$.context_servers",),
        inherits="all",
        # older versions used milliseconds, later ones seconds, so the size of the number decides
        timeout_unit_s=None,
        ignored=("settings", "remote"),
        fields={"source": Meaning.SILENT},
        quirk="zed",
        source="https://zed.dev/docs/ai/mcp",
    ),
    Adapter(
        name="roo-code",
        title="Roo Code",
        aliases=("roo", "roocode", "roo-cline"),
        places=(
            *project("./.roo/mcp.json"),
            *in_editors("globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        ),
        variables=EDITOR,
        inherits="safe",
        timeout_unit_s=SECONDS,
        untyped="sse",
        ignored=("watchPaths",),
        source="https://docs.roocode.com/features/mcp/using-mcp-in-roo",
        notes="Discontinued on 2026-05-15; the files remain.",
    ),
    Adapter(
        name="continue",
        title="Continue",
        aliases=("continue-dev",),
        places=(
            *project("./.continue/config.yaml", "./.continue/mcpServers/*.yaml", "./.continue/mcpServers/*.yml"),
            *project("./.continue/mcpServers/*.json"),
            *user(
                "{CONTINUE_GLOBAL_DIR|~/.continue}/config.yaml",
                "{CONTINUE_GLOBAL_DIR|~/.continue}/mcpServers/*.yaml",
                "{CONTINUE_GLOBAL_DIR|~/.continue}/mcpServers/*.yml",
                "{CONTINUE_GLOBAL_DIR|~/.continue}/mcpServers/*.json",
            ),
            *user("{CONTINUE_GLOBAL_DIR|~/.continue}/config.json", legacy=True),
        ),
        servers=("$.mcpServers", "$.experimental.modelContextProtocolServers"),
        variables=(Syntax.ACTIONS,),
        named_by="name",
        inherits="safe",
        timeout_unit_s=MILLISECONDS,
        ignored=("faviconUrl",),
        fields={"sourceFile": Meaning.SILENT},
        quirk="continue",
        source="https://docs.continue.dev/customize/deep-dives/mcp",
        checked="2026-06",
    ),
    Adapter(
        name="kiro",
        title="Kiro",
        aliases=("kiro-cli",),
        places=(
            *project("./.kiro/settings/mcp.json", "./.kiro/agents/*.json"),
            *user("~/.kiro/settings/mcp.json", "~/.kiro/agents/*.json", "~/.kiro/powers/installed/*/mcp.json"),
        ),
        servers=("$.mcpServers", "$.powers.mcpServers"),
        variables=(*BRACES, Syntax.ENV),
        timeout_unit_s=MILLISECONDS,
        source="https://kiro.dev/docs/mcp/configuration",
    ),
    Adapter(
        name="copilot-jetbrains",
        title="GitHub Copilot for JetBrains",
        aliases=("jetbrains-copilot", "github-copilot-jetbrains", "copilot-intellij"),
        places=(
            *user("{config}/github-copilot/intellij/mcp.json", systems=("linux", "darwin")),
            *user("{localappdata}/github-copilot/intellij/mcp.json", systems=("win32",)),
        ),
        servers=("$.servers", "$.mcpServers"),
        variables=EDITOR_INPUTS,
        timeout_unit_s=MILLISECONDS,
        inputs=("$.inputs",),
        source="https://docs.github.com/en/copilot/how-tos/provide-context/use-mcp/extend-copilot-chat-with-mcp",
    ),
    Adapter(
        name="junie",
        title="Junie",
        aliases=("jetbrains-junie",),
        places=(*project("./.junie/mcp/mcp.json"), *user("~/.junie/mcp/mcp.json")),
        variables=ANY,
        source="https://junie.jetbrains.com/docs/junie-cli-mcp-configuration.html",
        notes="JetBrains' AI Assistant keeps its servers in its own store; copy them from its dialog.",
    ),
    Adapter(
        name="visual-studio",
        title="Visual Studio",
        aliases=("visualstudio", "vs"),
        places=(
            *project("./.mcp.json", "./.vs/mcp.json"),
            *project("./.vscode/mcp.json", "./.cursor/mcp.json", borrowed=True),
            *user("~/.mcp.json"),
        ),
        servers=("$.servers",),
        fallback=("$.mcpServers",),
        variables=EDITOR_INPUTS,
        timeout_unit_s=MILLISECONDS,
        inputs=("$.inputs",),
        source="https://learn.microsoft.com/en-us/visualstudio/ide/mcp-servers",
    ),
    Adapter(
        name="trae",
        title="Trae",
        aliases=("trae-cn",),
        places=(
            *project("./.trae/mcp.json"),
            *user("{appdata}/Trae/User/mcp.json", "{appdata}/Trae CN/User/mcp.json"),
            *user("{config}/trae/mcp.json", "~/.trae/mcp.json"),
        ),
        variables=ANY,
        source="https://docs.trae.ai/ide/model-context-protocol",
    ),
    Adapter(
        name="augment",
        title="Augment",
        aliases=("auggie", "augment-code"),
        places=(
            *project("./.augment/settings.json"),
            *project("./.mcp.json", borrowed=True),
            *local("./.augment/settings.local.json"),
            *user("~/.augment/settings.json"),
        ),
        variables=ANY,
        source="https://docs.augmentcode.com/cli/integrations",
    ),
    Adapter(
        name="mcphub-nvim",
        title="mcphub.nvim and Avante",
        aliases=("mcphub", "mcp-hub", "avante", "mcphub.nvim"),
        places=(
            *project("./.mcphub/servers.json"),
            *project("./.vscode/mcp.json", "./.cursor/mcp.json", borrowed=True),
            *user("{config}/mcphub/servers.json"),
        ),
        servers=("$.mcpServers", "$.servers"),
        variables=(*BRACES, Syntax.ENV, Syntax.CMD, Syntax.INPUT, Syntax.EDITOR),
        inputs=("$.inputs",),
        passes_empty=True,
        ignored=(
            "custom_instructions",
            "dev",
            "disabled_prompts",
            "disabled_resources",
            "disabled_resourceTemplates",
        ),
        source="https://ravitemer.github.io/mcphub.nvim/mcp/servers_json.html",
    ),
)

AFTERWARDS = (
    Adapter(
        name="qoder",
        title="Qoder",
        places=(
            *user("~/.qoder/settings.json", "~/.qoder/mcp.json"),
            *user("{appdata}/Qoder/SharedClientCache/mcp.json"),
            *project("./.mcp.json"),
        ),
        variables=ANY,
        source="https://docs.qoder.com/user-guide/chat/model-context-protocol",
    ),
    Adapter(
        name="zencoder",
        title="Zencoder",
        places=(
            *user("~/.zencoder/settings.json"),
            *user("{appdata}/Code/User/settings.json", borrowed=True),
        ),
        servers=("$.'zencoder.mcpServers'", "$.zencoder.mcpServers"),
        variables=ANY,
        source="https://docs.zencoder.ai/features/integrations-and-mcp",
    ),
    Adapter(
        name="mcporter",
        title="MCPorter",
        places=(
            *project("./config/mcporter.json", "./config/mcporter.jsonc"),
            *user("{MCPORTER_CONFIG}", "~/.mcporter/mcporter.json", "~/.mcporter/mcporter.jsonc"),
        ),
        variables=(*BRACES, Syntax.POWERSHELL),
        inherits="all",
        ignored=("lifecycle", "tokenCacheDir"),
        fields={"bearerTokenEnv": Meaning.BEARER_FROM_ENV, "requestTimeoutMs": TimeoutField("tools", MILLISECONDS)},
        source="https://github.com/steipete/mcporter/blob/main/docs/config.md",
        checked="2026-01",
        notes="Servers that it imports from other tools are read from those tools.",
    ),
)
"""Tools that share the files of others."""
