"""The ten most widely used tools."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import (
    MILLISECONDS,
    SECONDS,
    Adapter,
    Meaning,
    SwitchFile,
    Syntax,
    TimeoutField,
    local,
    project,
    user,
)
from dynamic_mcp.importer.tools.editors import VSCODE
from dynamic_mcp.importer.tools.syntaxes import BRACES, DOLLARS, EDITOR, GEMINI_IGNORED, in_editors

# variables that it withholds: names that look like secrets, and a few others
_GEMINI_INHERITS = (
    "*",
    *(f"!*{word}*" for word in "TOKEN SECRET PASSW KEY AUTH CREDENTIAL CREDS PRIVATE CERT".split()),  # noqa: SIM905
    "!DATABASE_URL",
    "!DB_URI",
    "!CONNECTION_STRING",
    "!SLACK_WEBHOOK_URL",
)

TOOLS = (
    Adapter(
        name="cursor",
        title="Cursor",
        places=(
            *project("./.cursor/mcp.json"),
            *project("./.mcp.json", borrowed=True),
            *user("~/.cursor/mcp.json", "{appdata}/Cursor/User/mcp.json"),
            *user("~/.cursor/plugins/*/mcp.json", "~/.cursor/plugins/*/.mcp.json", borrowed=True),
            *user("~/.cursor/plugins/*/*/mcp.json", "~/.cursor/plugins/*/*/.mcp.json", borrowed=True),
        ),
        is_bare=True,
        variables=EDITOR,
        timeout_unit_s=MILLISECONDS,
        source="https://cursor.com/docs/context/mcp",
        notes="The file does not tell which servers are disabled in the program.",
    ),
    Adapter(
        name="opencode",
        title="OpenCode",
        aliases=("open-code",),
        places=(
            *project(
                "./opencode.json",
                "./opencode.jsonc",
                "./.opencode/opencode.jsonc",
                "./.opencode/opencode.json",
                up=True,
            ),
            *user("{OPENCODE_CONFIG}", "{OPENCODE_CONFIG_DIR}/opencode.json", "{OPENCODE_CONFIG_DIR}/opencode.jsonc"),
            *user(
                "{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc", "{config}/opencode/config.json"
            ),
            *user("~/.opencode/opencode.json", "~/.opencode/opencode.jsonc"),
            *user("{appdata}/opencode/opencode.json", "{appdata}/opencode/opencode.jsonc", systems=("win32",)),
            *user("/etc/opencode/opencode.json", "/etc/opencode/opencode.jsonc", systems=("linux",)),
            *user("/Library/Application Support/opencode/opencode.json", systems=("darwin",)),
            *user("{programdata}/opencode/opencode.json", systems=("win32",)),
        ),
        servers=("$.mcp",),
        variables=(Syntax.CURLY, Syntax.CURLY_FILE),
        empties="everywhere",
        inherits="all",
        off_elsewhere=(
            SwitchFile("./opencode.json", flags=("$.mcp",)),
            SwitchFile("./opencode.jsonc", flags=("$.mcp",)),
        ),
        timeout_unit_s=MILLISECONDS,
        quirk="opencode",
        source="https://opencode.ai/docs/mcp-servers",
    ),
    Adapter(
        name="claude-desktop",
        title="Claude Desktop",
        aliases=("claudedesktop",),
        places=(
            *user("~/.config/Claude/claude_desktop_config.json", systems=("linux",)),
            *user(
                "{localappdata}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                systems=("win32",),
                packaged=True,
            ),
            *user("{appdata}/Claude/claude_desktop_config.json"),
        ),
        inherits="safe",
        quirk="claude-desktop",
        source="https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        notes="Extensions (.mcpb) and connectors are not in this file and are not read.",
    ),
    Adapter(
        name="claude",
        title="Claude Code",
        aliases=("claude-code", "claude-cli", "claudecode"),
        places=(
            *project("./.mcp.json", up=True),
            *local("{CLAUDE_CONFIG_DIR|~}/.claude.json"),
            *local("~/.claude.json", legacy=True),
            *user("{CLAUDE_CONFIG_DIR|~}/.claude.json"),
            *user("~/.claude.json", legacy=True),
            *user("/etc/claude-code/managed-mcp.json", systems=("linux",)),
            *user("/Library/Application Support/ClaudeCode/managed-mcp.json", systems=("darwin",)),
            *user("C:/Program Files/ClaudeCode/managed-mcp.json", systems=("win32",)),
            *user(
                *(
                    f"{{CLAUDE_CONFIG_DIR|~/.claude}}/plugins/{kind}/{depth}/{name}"
                    for kind in ("cache", "repos", "synced")
                    for depth in ("*", "*/*", "*/*/*", "*/*/*/*")
                    for name in (".mcp.json", ".claude-plugin/plugin.json")
                ),
                borrowed=True,
            ),
        ),
        variables=BRACES,
        inherits="all",
        timeout_unit_s=MILLISECONDS,
        ignored=("alwaysLoad",),
        fields={"oauth": Meaning.OAUTH},
        quirk="claude",
        source="https://code.claude.com/docs/en/mcp",
    ),
    VSCODE,
    Adapter(
        name="cline",
        title="Cline",
        places=(
            *project("./.cline/mcp.json", variables=(Syntax.ENV,)),
            *user("{CLINE_MCP_SETTINGS_PATH}"),
            *user(
                "{CLINE_DATA_DIR}/settings/cline_mcp_settings.json",
                "{CLINE_DIR|~/.cline}/data/settings/cline_mcp_settings.json",
            ),
            *in_editors(
                "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                variables=(Syntax.ENV,),
                inherits="safe",
            ),
            *user("~/.cline/mcp.json", legacy=True, variables=(Syntax.ENV,)),
        ),
        inherits="all",
        timeout_unit_s=SECONDS,
        untyped="sse",
        ignored=("metadata",),
        fields={"oauth": Meaning.TOKENS, "oauthClient": Meaning.OAUTH},
        source="https://docs.cline.bot/mcp/configuring-mcp-servers",
    ),
    Adapter(
        name="kilocode",
        title="Kilo Code",
        aliases=("kilo-code", "kilo"),
        places=(
            *project("./kilo.json", "./kilo.jsonc", up=True),
            *project("./opencode.json", "./opencode.jsonc", up=True, borrowed=True),
            *project(
                "./.kilo/kilo.json", "./.kilo/kilo.jsonc", "./.kilocode/kilo.json", "./.kilocode/kilo.jsonc", up=True
            ),
            *project("./.kilocode/mcp.json", legacy=True, variables=EDITOR, inherits="safe"),
            *user("{config}/kilo/kilo.json", "{config}/kilo/kilo.jsonc"),
            *user("{config}/kilo/opencode.json", "{config}/kilo/opencode.jsonc", "{config}/kilo/config.json"),
            *in_editors(
                "globalStorage/kilocode.kilo-code/settings/mcp_settings.json",
                legacy=True,
                variables=EDITOR,
                inherits="safe",
            ),
            *user(
                "~/.kilocode/cli/global/settings/mcp_settings.json",
                legacy=True,
                variables=EDITOR,
                inherits="safe",
            ),
        ),
        servers=("$.mcp", "$.mcpServers"),
        variables=(Syntax.CURLY, Syntax.CURLY_FILE),
        empties="everywhere",
        inherits="all",
        off_elsewhere=(SwitchFile("./kilo.json", flags=("$.mcp",)), SwitchFile("./kilo.jsonc", flags=("$.mcp",))),
        timeout_unit_s=MILLISECONDS,
        quirk="kilocode",
        source="https://kilo.ai/docs/automate/mcp/using-in-kilo-code",
    ),
    Adapter(
        name="codex",
        title="Codex",
        aliases=("codex-cli", "openai-codex"),
        places=(
            *project("./.codex/config.toml", up=True),
            *user("{CODEX_HOME|~/.codex}/config.toml", "{CODEX_HOME|~/.codex}/*.config.toml"),
            *user("/etc/codex/config.toml", systems=("linux", "darwin")),
            *user("{programdata}/OpenAI/Codex/config.toml", systems=("win32",)),
            *user("{CODEX_HOME|~/.codex}/plugins/*/.mcp.json", borrowed=True, servers=("$.mcpServers",)),
        ),
        servers=("$.mcp_servers",),
        fallback=("$.mcp.servers", "$.mcp"),
        is_bare=True,
        ignored=("required", "supports_parallel_tool_calls", "experimental_environment", "oauth_resource"),
        fields={"tools": Meaning.TOOLS, "startup_timeout_sec": TimeoutField("connect", SECONDS)},
        inherits="safe",
        off_elsewhere=(SwitchFile("./.codex/config.toml", flags=("$.mcp_servers",)),),
        timeout_unit_s=SECONDS,
        source="https://developers.openai.com/codex/mcp",
    ),
    Adapter(
        name="gemini",
        title="Gemini CLI",
        aliases=("gemini-cli",),
        places=(
            *project("./.gemini/settings.json"),
            *user("{GEMINI_CLI_HOME|~}/.gemini/settings.json"),
            *user("{GEMINI_CLI_SYSTEM_SETTINGS_PATH|/etc/gemini-cli/settings.json}", systems=("linux",)),
            *user(
                "{GEMINI_CLI_SYSTEM_SETTINGS_PATH|/Library/Application Support/GeminiCli/settings.json}",
                systems=("darwin",),
            ),
            *user("{GEMINI_CLI_SYSTEM_SETTINGS_PATH|C:/ProgramData/gemini-cli/settings.json}", systems=("win32",)),
            *user("{GEMINI_CLI_HOME|~}/.gemini/extensions/*/gemini-extension.json", borrowed=True),
        ),
        variables=DOLLARS,
        env_variables=(Syntax.DASH, Syntax.PERCENT),
        empties="env",
        inherits=_GEMINI_INHERITS,
        timeout_unit_s=MILLISECONDS,
        off=("$.mcp.excluded[*]",),
        is_off_in_any_case=True,
        off_elsewhere=(
            SwitchFile("{GEMINI_CLI_HOME|~}/.gemini/mcp-server-enablement.json", flags=("$",)),
            SwitchFile("{GEMINI_CLI_HOME|~}/.gemini/settings.json", names=("$.mcp.excluded[*]",)),
            SwitchFile("./.gemini/settings.json", names=("$.mcp.excluded[*]",)),
        ),
        allowed=("$.mcp.allowed[*]",),
        ignored=GEMINI_IGNORED,
        quirk="gemini",
        source="https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md",
    ),
    Adapter(
        name="antigravity",
        title="Antigravity",
        aliases=("antigravity-cli", "agy", "google-antigravity"),
        places=(
            *project("./.agents/mcp_config.json"),
            *user("~/.gemini/config/mcp_config.json"),
            *user("~/.gemini/antigravity/mcp_config.json", "~/.gemini/antigravity-cli/mcp_config.json"),
            *user("{appdata}/Antigravity/User/settings.json", servers=("$.mcpServers", "$.mcp.servers")),
            *user(
                "{appdata}/Antigravity IDE/User/settings.json",
                servers=("$.mcpServers", "$.mcp.servers"),
            ),
        ),
        ignored=("authProviderType",),
        timeout_unit_s=None,
        source="https://antigravity.google/docs/mcp",
    ),
)
