"""Where AI tools with a shell read instructions: skills, or one file that has those of others too."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from dynamic_mcp.importer.adapter import SYSTEMS, System
from dynamic_mcp.importer.model import ToolScope

SKILL = "dynamic-mcp"

# The installer of skills by Vercel, whose table has the folders of all agents.
_SKILLS = "https://github.com/vercel-labs/skills/blob/main/src/agents.ts"
_COPILOT = "https://docs.github.com/en/copilot/how-tos/configure-custom-instructions"


class InstructionKind(Enum):
    """The form of the instructions, which decides what becomes of a file that is there."""

    SKILL = "a skill, in a file of its own"
    FILE = "a file of its own"
    SECTION = "a section of a file that has other instructions too"


class InstructionPlace(NamedTuple):
    """One file that a tool reads instructions from; `path` is written as in a `FileLocation`."""

    kind: InstructionKind
    scope: ToolScope
    path: str
    source: str
    systems: tuple[System, ...] = SYSTEMS


def _skills(user: str, project: str = "", source: str = _SKILLS) -> tuple[InstructionPlace, ...]:
    """Return the places of a tool that reads skills in these folders."""
    folders = ((ToolScope.USER, user), (ToolScope.PROJECT, project))
    return tuple(
        InstructionPlace(InstructionKind.SKILL, scope, f"{folder}/{SKILL}/SKILL.md", source)
        for scope, folder in folders
        if folder
    )


def _section(scope: ToolScope, path: str, source: str, systems: tuple[System, ...] = SYSTEMS) -> InstructionPlace:
    return InstructionPlace(InstructionKind.SECTION, scope, path, source, systems)


_USER, _PROJECT = ToolScope.USER, ToolScope.PROJECT
_OF_COPILOT = _section(_PROJECT, "./.github/copilot-instructions.md", _COPILOT)
_VS_CODE = _skills(
    "~/.copilot/skills", "./.github/skills", "https://code.visualstudio.com/docs/copilot/customization/agent-skills"
)

PLACES: Mapping[str, tuple[InstructionPlace, ...]] = MappingProxyType(
    {
        "claude": _skills(
            "{CLAUDE_CONFIG_DIR|~/.claude}/skills", "./.claude/skills", "https://code.claude.com/docs/en/skills"
        ),
        "codex": _skills(
            "{CODEX_HOME|~/.codex}/skills", "./.agents/skills", "https://developers.openai.com/codex/skills"
        ),
        "gemini": _skills("~/.gemini/skills", "./.gemini/skills", "https://geminicli.com/docs/cli/skills"),
        "cursor": _skills("~/.cursor/skills", "./.cursor/skills", "https://cursor.com/docs/context/skills"),
        "vscode": _VS_CODE,
        "vscode-insiders": _VS_CODE,
        "copilot-cli": _skills(
            "{COPILOT_HOME|~/.copilot}/skills",
            "./.github/skills",
            "https://docs.github.com/en/copilot/concepts/agents/about-agent-skills",
        ),
        "opencode": _skills("{config}/opencode/skills", "./.opencode/skills", "https://opencode.ai/docs/skills"),
        "kilocode": _skills("~/.kilo/skills", "./.kilo/skills"),
        "cline": _skills("~/.cline/skills", "./.cline/skills", "https://docs.cline.bot/customization/skills"),
        "qwen-code": _skills("{QWEN_HOME|~/.qwen}/skills", "./.qwen/skills"),
        "amp": _skills("{config}/agents/skills", "./.agents/skills"),
        "antigravity": _skills("~/.gemini/antigravity/skills", "./.agents/skills"),
        "windsurf": _skills("~/.codeium/windsurf/skills", "./.windsurf/skills"),
        "devin": _skills("{config}/devin/skills", "./.devin/skills"),
        "zed": _skills("~/.agents/skills", "./.agents/skills"),
        "roo-code": _skills("~/.roo/skills", "./.roo/skills"),
        "continue": _skills("~/.continue/skills", "./.continue/skills"),
        "kiro": _skills("~/.kiro/skills", "./.kiro/skills"),
        "junie": _skills("~/.junie/skills", "./.junie/skills"),
        "trae": _skills("~/.trae/skills", "./.trae/skills"),
        "augment": _skills("~/.augment/skills", "./.augment/skills"),
        "goose": _skills("{config}/goose/skills", "./.goose/skills"),
        "iflow": _skills("~/.iflow/skills", "./.iflow/skills"),
        "crush": _skills("{config}/crush/skills", "./.crush/skills"),
        "factory-droid": _skills("~/.factory/skills", "./.agents/skills"),
        "warp": _skills("~/.agents/skills", "./.agents/skills"),
        "grok-build": _skills("{GROK_HOME|~/.grok}/skills", "./.grok/skills"),
        "hermes": _skills("{HERMES_HOME|~/.hermes}/skills"),
        "openhands": _skills("~/.openhands/skills", "./.openhands/skills"),
        "pi": _skills("{PI_CODING_AGENT_DIR|~/.pi/agent}/skills", "./.pi/skills"),
        "kimi-code": _skills("~/.agents/skills", "./.agents/skills"),
        "mistral-vibe": _skills("{VIBE_HOME|~/.vibe}/skills", "./.vibe/skills"),
        "codebuddy": _skills("~/.codebuddy/skills", "./.codebuddy/skills"),
        "fx": _skills("~/.fx/skills", "./.fx/skills"),
        "tabnine": _skills("~/.tabnine/agent/skills", "./.tabnine/agent/skills"),
        "cortex": _skills("~/.snowflake/cortex/skills", "./.cortex/skills"),
        "codearts": _skills("~/.codeartsdoer/skills", "./.codeartsdoer/skills"),
        "firebender": _skills("~/.firebender/skills", "./.agents/skills"),
        "qoder": _skills("~/.qoder/skills", "./.qoder/skills"),
        "zencoder": _skills("~/.zencoder/skills", "./.zencoder/skills"),
        "amazon-q": (
            InstructionPlace(
                InstructionKind.FILE,
                _PROJECT,
                f"./.amazonq/rules/{SKILL}.md",
                "https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/context-project-rules.html",
            ),
        ),
        "every-code": (
            _section(
                _USER, "{CODE_HOME|~/.code}/AGENTS.md", "https://github.com/just-every/code#memory--project-docs"
            ),
            _section(_PROJECT, "./AGENTS.md", "https://github.com/just-every/code#memory--project-docs"),
        ),
        "copilot-jetbrains": (
            _section(
                _USER,
                "~/.config/github-copilot/intellij/global-copilot-instructions.md",
                _COPILOT,
                ("linux", "darwin"),
            ),
            _section(
                _USER, "{localappdata}/github-copilot/intellij/global-copilot-instructions.md", _COPILOT, ("win32",)
            ),
            _OF_COPILOT,
        ),
        "visual-studio": (_OF_COPILOT,),
        "firebase-studio": (
            _section(_PROJECT, "./.idx/airules.md", "https://firebase.google.com/docs/studio/set-up-gemini"),
        ),
        "shared": (_section(_PROJECT, "./AGENTS.md", "https://agents.md"),),
    }
)
"""The places of each tool that is known to read instructions and to have a shell, by its name."""
