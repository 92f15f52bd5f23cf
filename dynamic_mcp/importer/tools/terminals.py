"""Assistants for the terminal."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import (
    Adapter,
    FileLocation,
    Meaning,
    SwitchFile,
    Syntax,
    TimeoutField,
    project,
    user,
)
from dynamic_mcp.importer.model import ToolScope
from dynamic_mcp.importer.tools.reference import GEMINI_FIELDS
from dynamic_mcp.importer.tools.syntaxes import ANY, BRACES, DOLLARS, EDITOR, ENV, GEMINI, MILLISECONDS, SECONDS

GOOSE = Adapter(
    name="goose",
    title="Goose",
    aliases=("codename-goose", "block-goose"),
    places=(
        *project("./.goose/config.yaml"),
        *user("{config}/goose/config.yaml", systems=("linux", "darwin")),
        *user("{appdata}/Block/goose/config/config.yaml", systems=("win32",)),
    ),
    servers=("$.extensions",),
    variables=(Syntax.BRACES, Syntax.DOLLAR),
    inherits="all",
    timeout_unit_s=SECONDS,
    fields={"display_name": Meaning.NOTHING, "bundled": Meaning.NOTHING, "socket": Meaning.NOTHING},
    quirk="goose",
    source="https://block.github.io/goose/docs/guides/config-files",
)

AMAZON_Q = Adapter(
    name="amazon-q",
    title="Amazon Q Developer",
    aliases=("amazonq", "q", "aws-q", "q-cli"),
    places=(
        *project("./.amazonq/mcp.json", "./.amazonq/default.json", "./.amazonq/cli-agents/*.json"),
        *user("~/.aws/amazonq/mcp.json", "~/.aws/amazonq/default.json", "~/.aws/amazonq/agents/default.json"),
        *user("~/.aws/amazonq/cli-agents/*.json"),
    ),
    variables=ENV,
    inherits="all",
    timeout_unit_s=MILLISECONDS,
    source="https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/command-line-mcp-configuration.html",
)

COPILOT_CLI = Adapter(
    name="copilot-cli",
    title="GitHub Copilot CLI",
    aliases=("copilot", "github-copilot", "github-copilot-cli"),
    places=(
        *project("./.mcp.json", "./.github/mcp.json", up=True),
        *user("{COPILOT_HOME|~/.copilot}/mcp-config.json", "{XDG_CONFIG_HOME}/copilot/mcp-config.json"),
        *(
            place
            for depth in ("*", "*/*", "*/*/*")
            for place in user(f"{{COPILOT_HOME|~/.copilot}}/installed-plugins/{depth}/.mcp.json", borrowed=True)
        ),
    ),
    fallback=("$.servers",),
    is_bare=True,
    variables=DOLLARS,
    inherits=(
        "*",
        "!GITHUB_TOKEN",
        "!GITHUB_PERSONAL_ACCESS_TOKEN",
        "!GITHUB_COPILOT_*",
        "!GITHUB_MCP_SERVER_TOKEN",
        "!COPILOT_GITHUB_TOKEN",
        "!COPILOT_PROVIDER_*",
        "!OPENAI_API_KEY",
        "!ANTHROPIC_API_KEY",
        "!AZURE_OPENAI_API_KEY",
    ),
    timeout_unit_s=MILLISECONDS,
    off_elsewhere=(
        SwitchFile("{COPILOT_HOME|~/.copilot}/settings.json", names=("$.disabledMcpServers[*]",)),
        SwitchFile("./.github/copilot/settings.json", names=("$.disabledMcpServers[*]",)),
    ),
    source="https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
)

QWEN_CODE = Adapter(
    name="qwen-code",
    title="Qwen Code",
    aliases=("qwen",),
    places=(
        *project("./.qwen/settings.json"),
        *project("./.mcp.json", borrowed=True),
        *user("{QWEN_HOME|~/.qwen}/settings.json"),
    ),
    variables=(Syntax.BRACES, Syntax.DOLLAR),
    inherits="all",
    timeout_unit_s=MILLISECONDS,
    off=("$.mcp.excluded[*]",),
    off_elsewhere=(
        SwitchFile("{QWEN_HOME|~/.qwen}/settings.json", names=("$.mcp.excluded[*]",)),
        SwitchFile("./.qwen/settings.json", names=("$.mcp.excluded[*]",)),
    ),
    allowed=("$.mcp.allowed[*]",),
    fields=GEMINI_FIELDS,
    source="https://qwenlm.github.io/qwen-code-docs/en/users/features/mcp",
)

IFLOW = Adapter(
    name="iflow",
    title="iFlow CLI",
    aliases=("iflow-cli",),
    places=(*project("./.iflow/settings.json"), *user("~/.iflow/settings.json")),
    variables=GEMINI,
    timeout_unit_s=MILLISECONDS,
    off=("$.mcp.excluded[*]",),
    allowed=("$.mcp.allowed[*]",),
    fields=GEMINI_FIELDS,
    source="https://platform.iflow.cn/en/cli/examples/mcp",
)

CRUSH = Adapter(
    name="crush",
    title="Crush",
    places=(
        *project("./.crushrc", "./crushrc", "./.crush.json", "./crush.json", up=True),
        *user("{CRUSH_GLOBAL_CONFIG}", "{CRUSH_GLOBAL_CONFIG}/crushrc", "{CRUSH_GLOBAL_CONFIG}/crush.json"),
        *user("{config}/crush/crushrc"),
        *user("{config}/crush/crush.json"),
        *user("{localappdata}/crush/crushrc", "{localappdata}/crush/crush.json", systems=("win32",)),
        *user("{CRUSH_GLOBAL_DATA}/crush.json", "{data}/crush/crush.json"),
    ),
    servers=("$.mcp",),
    variables=(*DOLLARS, Syntax.SHELL),
    inherits="all",
    timeout_unit_s=SECONDS,
    source="https://github.com/charmbracelet/crush/blob/main/docs/config/README.md",
    notes="In a crushrc, only lines that start with `mcp add` are read; the script is never run.",
)

AMP = Adapter(
    name="amp",
    title="Amp",
    aliases=("ampcode", "sourcegraph-amp"),
    places=(
        *project("./.amp/settings.json", "./.amp/settings.jsonc"),
        *user("{AMP_SETTINGS_FILE}", "{config}/amp/settings.json", "{config}/amp/settings.jsonc"),
        *user("{appdata}/amp/settings.json", "{appdata}/amp/settings.jsonc", systems=("win32",)),
        *user("{config}/amp/skills/*/mcp.json", borrowed=True),
    ),
    servers=("$.'amp.mcpServers'", "$.amp.mcpServers"),
    is_bare=True,
    variables=(Syntax.BRACES,),
    inherits=("*", "!AMP_API_KEY"),
    timeout_unit_s=MILLISECONDS,
    source="https://ampcode.com/manual#mcp",
)

FACTORY_DROID = Adapter(
    name="factory-droid",
    title="Factory Droid",
    aliases=("factory", "droid"),
    places=(*project("./.factory/mcp.json"), *user("~/.factory/mcp.json")),
    variables=ANY,
    timeout_unit_s=MILLISECONDS,
    source="https://docs.factory.ai/cli/configuration/mcp",
)

WARP = Adapter(
    name="warp",
    title="Warp",
    places=(*project("./.warp/.mcp.json"), *user("~/.warp/.mcp.json")),
    servers=("$.mcpServers", "$.mcp_servers", "$.servers"),
    is_bare=True,
    variables=BRACES,
    fields={"start_on_launch": Meaning.NOTHING},
    source="https://docs.warp.dev/knowledge-and-collaboration/mcp",
)

GROK_BUILD = Adapter(
    name="grok-build",
    title="Grok Build",
    aliases=("grok",),
    places=(*project("./.grok/config.toml", up=True), *user("{GROK_HOME|~/.grok}/config.toml")),
    servers=("$.mcp_servers",),
    variables=ANY,
    timeout_unit_s=SECONDS,
    source="https://docs.x.ai/build/mcp",
)

GROK_CLI = Adapter(
    name="grok-cli",
    title="Grok CLI (Superagent)",
    places=(*project("./.grok/settings.json"), *user("~/.grok/user-settings.json")),
    servers=("$.mcpServers", "$.mcp_servers", "$.mcp.servers"),
    variables=ANY,
    source="https://github.com/superagent-ai/grok-cli",
)

HERMES = Adapter(
    name="hermes",
    title="Hermes Agent",
    aliases=("hermes-agent",),
    places=(*user("{HERMES_HOME|~/.hermes}/config.yaml"),),
    servers=("$.mcp_servers",),
    variables=(*BRACES, *EDITOR),
    inherits="safe",
    timeout_unit_s=SECONDS,
    fields={"client_cert": Meaning.NOTHING, "client_key": Meaning.NOTHING},
    quirk="hermes",
    source="https://hermes-agent.nousresearch.com/docs/user-guide/features/mcp",
)

OPENHANDS = Adapter(
    name="openhands",
    title="OpenHands",
    places=(*project("./config.toml", ambiguous=True), *user("~/.openhands/mcp.json", "~/.openhands/config.toml")),
    servers=("$.mcpServers",),
    timeout_unit_s=SECONDS,
    quirk="openhands",
    source="https://docs.openhands.dev/openhands/usage/cli/mcp-servers",
)

PI = Adapter(
    name="pi",
    title="pi",
    aliases=("pi-mcp-adapter", "pi-coding-agent"),
    places=(
        *project("./.pi/mcp.json"),
        *project("./.mcp.json", borrowed=True),
        *user("{PI_CODING_AGENT_DIR|~/.pi/agent}/mcp.json"),
    ),
    variables=(*BRACES, Syntax.POWERSHELL, Syntax.BANG),
    inherits="all",
    timeout_unit_s=MILLISECONDS,
    fields={
        "lifecycle": Meaning.NOTHING,
        "socket": Meaning.NOTHING,
        "idleTimeout": Meaning.NOTHING,
        "directTools": Meaning.NOTHING,
        "exposeResources": Meaning.NOTHING,
        "debug": Meaning.NOTHING,
    },
    source="https://github.com/nicobailon/pi-mcp-adapter",
)

KIMI_CODE = Adapter(
    name="kimi-code",
    title="Kimi Code",
    aliases=("kimi", "kimi-cli"),
    places=(
        *project("./.kimi-code/mcp.json"),
        *user("{KIMI_CODE_HOME|~/.kimi-code}/mcp.json"),
        *user("~/.kimi/mcp.json", legacy=True),
    ),
    variables=ANY,
    timeout_unit_s=MILLISECONDS,
    source="https://moonshotai.github.io/kimi-cli/en/customization/mcp.html",
)

MISTRAL_VIBE = Adapter(
    name="mistral-vibe",
    title="Mistral Vibe",
    aliases=("vibe", "mistral"),
    places=(*project("./.vibe/config.toml"), *user("{VIBE_HOME|~/.vibe}/config.toml")),
    servers=("$.mcp_servers",),
    named_by="name",
    inherits="safe",
    timeout_unit_s=SECONDS,
    fields={"prompt": Meaning.NOTHING, "sampling_enabled": Meaning.NOTHING},
    quirk="mistral-vibe",
    source="https://docs.mistral.ai/mistral-vibe/introduction/configuration",
)

CODEBUDDY = Adapter(
    name="codebuddy",
    title="CodeBuddy",
    places=(*user("~/.codebuddy/.mcp.json", "~/.codebuddy/mcp.json", "~/.codebuddy.json"), *project("./.mcp.json")),
    variables=ANY,
    timeout_unit_s=MILLISECONDS,
    off=("$.disabledMcpServers[*]",),
    source="https://www.codebuddy.ai/docs/cli/mcp",
)

FX = Adapter(
    name="fx",
    title="fx",
    places=(*user("~/.fx/mcp.json"),),
    servers=("$.mcp",),
    variables=ANY,
    source="https://www.npmjs.com/package/add-mcp",
)

TABNINE = Adapter(
    name="tabnine",
    title="Tabnine",
    places=(*project("./.tabnine/agent/settings.json"), *user("~/.tabnine/agent/settings.json")),
    variables=GEMINI,
    timeout_unit_s=MILLISECONDS,
    off=("$.mcp.excluded[*]",),
    allowed=("$.mcp.allowed[*]",),
    fields=GEMINI_FIELDS,
    source="https://docs.tabnine.com/main/getting-started/tabnine-cli/features/settings",
)

MASTRACODE = Adapter(
    name="mastracode",
    title="Mastra Code",
    places=(*project("./.mastracode/mcp.json"), *user("~/.mastracode/mcp.json")),
    variables=ANY,
    source="https://mastra.ai/docs/mastra-code",
)

EVERY_CODE = Adapter(
    name="every-code",
    title="Every Code",
    places=(*project("./.code/config.toml"), *user("{CODE_HOME|~/.code}/config.toml")),
    servers=("$.mcp_servers",),
    timeout_unit_s=SECONDS,
    fields={"startup_timeout_sec": TimeoutField("connect", SECONDS)},
    source="https://github.com/just-every/code",
)

CORTEX = Adapter(
    name="cortex",
    title="Snowflake Cortex Code",
    places=(FileLocation(ToolScope.USER, "~/.snowflake/cortex/mcp.json"),),
    variables=ANY,
    source="https://docs.snowflake.com/en/user-guide/cortex-code",
)

CODEARTS = Adapter(
    name="codearts",
    title="CodeArts",
    places=(*user("~/.codeartsdoer/codearts_cli.jsonc"),),
    servers=("$.mcp",),
    variables=(Syntax.CURLY, Syntax.CURLY_FILE),
    timeout_unit_s=MILLISECONDS,
    quirk="opencode",
    source="https://support.huaweicloud.com/intl/en-us/codeartside/index.html",
)

TOOLS = (
    GOOSE,
    AMAZON_Q,
    COPILOT_CLI,
    QWEN_CODE,
    IFLOW,
    CRUSH,
    AMP,
    FACTORY_DROID,
    WARP,
    GROK_BUILD,
    GROK_CLI,
    HERMES,
    OPENHANDS,
    PI,
    KIMI_CODE,
    MISTRAL_VIBE,
    CODEBUDDY,
    FX,
    TABNINE,
    MASTRACODE,
    EVERY_CODE,
    CORTEX,
    CODEARTS,
)
