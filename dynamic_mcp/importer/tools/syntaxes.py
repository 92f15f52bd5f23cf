"""Data that several tools share: sets of variable syntaxes, fields, and the directories of editors."""

from __future__ import annotations

from dynamic_mcp.config.types import Inherit
from dynamic_mcp.importer.adapter import FileLocation, Syntax, user

BRACES = (Syntax.BRACES, Syntax.DEFAULT)
ENV = (Syntax.ENV, Syntax.LENIENT)
EDITOR = (*ENV, Syntax.EDITOR)
EDITOR_INPUTS = (*EDITOR, Syntax.INPUT)
DOLLARS = (*BRACES, Syntax.DOLLAR)
GEMINI = (*DOLLARS, Syntax.PERCENT)
ANY = (
    Syntax.LENIENT,
    Syntax.DEFAULT,
    Syntax.ENV,
    Syntax.EDITOR,
    Syntax.INPUT,
    Syntax.FILE,
    Syntax.CURLY,
    Syntax.CURLY_FILE,
    Syntax.ACTIONS,
    Syntax.POWERSHELL,
)
"""For files whose tool is not known, and for tools that do not document what they expand."""

GEMINI_IGNORED = ("targetAudience", "targetServiceAccount", "authProviderType")

_EDITORS = (
    "Code",
    "Code - Insiders",
    "VSCodium",
    "Cursor",
    "Windsurf",
    "Kiro",
    "Trae",
    "Antigravity",
    "Antigravity IDE",
)


def in_editors(
    path: str, *, legacy: bool = False, variables: tuple[Syntax, ...] | None = None, inherits: Inherit | None = None
) -> tuple[FileLocation, ...]:
    """Return the locations of an extension's file, in every editor based on VS Code and on remote hosts."""
    directories = [*(f"{{appdata}}/{editor}" for editor in _EDITORS), "~/.vscode-server/data"]
    paths = (f"{directory}/User/{path}" for directory in directories)
    return user(*paths, legacy=legacy, variables=variables, inherits=inherits)
