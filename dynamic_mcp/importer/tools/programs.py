"""Chat programs, servers, and the files that several tools share."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import MILLISECONDS, Adapter, Meaning, Syntax, project, user
from dynamic_mcp.importer.tools.syntaxes import ANY

SHARED = Adapter(
    name="shared",
    title="files that several tools share",
    places=(
        *project("./.mcp.json", "./.agents/mcp.json", up=True),
        *user("{config}/mcp/mcp.json", "~/.agents/mcp.json", "~/.agents/mcp/mcp.json"),
    ),
    fallback=("$.servers",),
    is_bare=True,
    variables=ANY,
    inputs=("$.inputs",),
    source="https://github.com/nicobailon/pi-mcp-adapter",
)

TOOLS = (
    Adapter(
        name="lm-studio",
        title="LM Studio",
        aliases=("lmstudio",),
        places=(*user("~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"),),
        timeout_unit_s=MILLISECONDS,
        source="https://lmstudio.ai/docs/app/mcp",
    ),
    Adapter(
        name="librechat",
        title="LibreChat",
        places=(*project("./librechat.yaml"), *user("{CONFIG_PATH}")),
        variables=(Syntax.BRACES, Syntax.MUSTACHE),
        inherits="safe",
        timeout_unit_s=MILLISECONDS,
        ignored=(
            "title",
            "iconPath",
            "chatMenu",
            "serverInstructions",
            "customUserVars",
            "startup",
            "requiresOAuth",
            "stderr",
        ),
        quirk="librechat",
        source="https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
    ),
    Adapter(
        name="5ire",
        title="5ire",
        aliases=("fiveire",),
        places=(*user("{appdata}/5ire/mcp.json"),),
        fields={"key": Meaning.SILENT},
        variables=ANY,
        source="https://github.com/nanbingxyz/5ire",
    ),
    Adapter(
        name="cherry-studio",
        title="Cherry Studio",
        places=(),
        named_by="name",
        ignored=("registryUrl", "tags", "logoUrl"),
        fields={"id": Meaning.SILENT},
        variables=ANY,
        source="https://docs.cherry-ai.com/advanced-basic/mcp",
        notes="Keeps its servers in a database: export them, and import the file with `--file`.",
    ),
    Adapter(
        name="boltai",
        title="BoltAI",
        aliases=("bolt-ai",),
        places=(*user("~/.boltai/mcp.json"),),
        variables=ANY,
        source="https://docs.boltai.com/docs/plugins/mcp-servers",
    ),
    Adapter(
        name="witsy",
        title="Witsy",
        places=(*user("{appdata}/Witsy/settings.json"),),
        variables=ANY,
        off=("$.mcp.disabledMcpServers[*]",),
        source="https://github.com/nbonamy/witsy",
    ),
    Adapter(
        name="raycast",
        title="Raycast",
        places=(*user("{config}/raycast/mcp-config.json"),),
        variables=ANY,
        source="https://manual.raycast.com/model-context-protocol",
    ),
    Adapter(
        name="enconvo",
        title="Enconvo",
        places=(*user("{config}/enconvo/mcp_config.json"),),
        variables=ANY,
        source="https://docs.enconvo.ai/docs/mcp",
    ),
    Adapter(
        name="tome",
        title="Tome",
        places=(*user("~/.tome/mcp_config.json"),),
        variables=ANY,
        source="https://github.com/runebookai/tome",
    ),
    Adapter(
        name="anythingllm",
        title="AnythingLLM",
        places=(
            *user("{STORAGE_DIR}/plugins/anythingllm_mcp_servers.json"),
            *user("{appdata}/anythingllm-desktop/storage/plugins/anythingllm_mcp_servers.json"),
        ),
        variables=ANY,
        ignored=("anythingllm",),
        source="https://docs.anythingllm.com/mcp-compatibility/overview",
    ),
    Adapter(
        name="firebase-studio",
        title="Firebase Studio",
        aliases=("firebase", "idx"),
        places=(*project("./.idx/mcp.json"),),
        variables=ANY,
        source="https://firebase.google.com/docs/studio/customize-workspace",
    ),
    Adapter(
        name="firebender",
        title="Firebender",
        places=(*project("./firebender.json"), *user("~/.firebender/firebender.json")),
        variables=ANY,
        source="https://docs.firebender.com/context/mcp",
    ),
)
