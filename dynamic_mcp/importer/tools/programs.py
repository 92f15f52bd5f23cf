"""Chat programs, servers, and the files that several tools share."""

from __future__ import annotations

from dynamic_mcp.importer.adapter import Adapter, Meaning, Syntax, project, user
from dynamic_mcp.importer.tools.syntaxes import ANY, MILLISECONDS

LM_STUDIO = Adapter(
    name="lm-studio",
    title="LM Studio",
    aliases=("lmstudio",),
    places=(*user("~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"),),
    timeout_unit_s=MILLISECONDS,
    source="https://lmstudio.ai/docs/app/mcp",
)

LIBRECHAT = Adapter(
    name="librechat",
    title="LibreChat",
    places=(*project("./librechat.yaml"), *user("{CONFIG_PATH}")),
    variables=(Syntax.BRACES, Syntax.MUSTACHE),
    inherits="safe",
    timeout_unit_s=MILLISECONDS,
    fields={
        "title": Meaning.NOTHING,
        "iconPath": Meaning.NOTHING,
        "chatMenu": Meaning.NOTHING,
        "serverInstructions": Meaning.NOTHING,
        "customUserVars": Meaning.NOTHING,
        "startup": Meaning.NOTHING,
        "requiresOAuth": Meaning.NOTHING,
        "stderr": Meaning.NOTHING,
    },
    quirk="librechat",
    source="https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
)

FIVE_IRE = Adapter(
    name="5ire",
    title="5ire",
    aliases=("fiveire",),
    places=(*user("{appdata}/5ire/mcp.json"),),
    fields={"key": Meaning.SILENT},
    variables=ANY,
    source="https://github.com/nanbingxyz/5ire",
)

CHERRY_STUDIO = Adapter(
    name="cherry-studio",
    title="Cherry Studio",
    places=(),
    named_by="name",
    fields={
        "registryUrl": Meaning.NOTHING,
        "tags": Meaning.NOTHING,
        "logoUrl": Meaning.NOTHING,
        "id": Meaning.SILENT,
    },
    variables=ANY,
    source="https://docs.cherry-ai.com/advanced-basic/mcp",
    notes="Keeps its servers in a database: export them, and import the file with `--file`.",
)

BOLTAI = Adapter(
    name="boltai",
    title="BoltAI",
    aliases=("bolt-ai",),
    places=(*user("~/.boltai/mcp.json"),),
    variables=ANY,
    source="https://docs.boltai.com/docs/plugins/mcp-servers",
)

WITSY = Adapter(
    name="witsy",
    title="Witsy",
    places=(*user("{appdata}/Witsy/settings.json"),),
    variables=ANY,
    off=("$.mcp.disabledMcpServers[*]",),
    source="https://github.com/nbonamy/witsy",
)

RAYCAST = Adapter(
    name="raycast",
    title="Raycast",
    places=(*user("{config}/raycast/mcp-config.json"),),
    variables=ANY,
    source="https://manual.raycast.com/model-context-protocol",
)

ENCONVO = Adapter(
    name="enconvo",
    title="Enconvo",
    places=(*user("{config}/enconvo/mcp_config.json"),),
    variables=ANY,
    source="https://docs.enconvo.ai/docs/mcp",
)

TOME = Adapter(
    name="tome",
    title="Tome",
    places=(*user("~/.tome/mcp_config.json"),),
    variables=ANY,
    source="https://github.com/runebookai/tome",
)

ANYTHINGLLM = Adapter(
    name="anythingllm",
    title="AnythingLLM",
    places=(
        *user("{STORAGE_DIR}/plugins/anythingllm_mcp_servers.json"),
        *user("{appdata}/anythingllm-desktop/storage/plugins/anythingllm_mcp_servers.json"),
    ),
    variables=ANY,
    fields={"anythingllm": Meaning.NOTHING},
    source="https://docs.anythingllm.com/mcp-compatibility/overview",
)

FIREBASE_STUDIO = Adapter(
    name="firebase-studio",
    title="Firebase Studio",
    aliases=("firebase", "idx"),
    places=(*project("./.idx/mcp.json"),),
    variables=ANY,
    source="https://firebase.google.com/docs/studio/customize-workspace",
)

FIREBENDER = Adapter(
    name="firebender",
    title="Firebender",
    places=(*project("./firebender.json"), *user("~/.firebender/firebender.json")),
    variables=ANY,
    source="https://docs.firebender.com/context/mcp",
)

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
    LM_STUDIO,
    LIBRECHAT,
    FIVE_IRE,
    CHERRY_STUDIO,
    BOLTAI,
    WITSY,
    RAYCAST,
    ENCONVO,
    TOME,
    ANYTHINGLLM,
    FIREBASE_STUDIO,
    FIREBENDER,
)
