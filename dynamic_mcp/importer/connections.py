"""How a person connects an AI tool to this program by hand: what its settings get, where, and shorter ways.

No file is read. The shorter ways, a link that opens the tool or a command of it, are those that the tools document.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import quote, urlencode

from msgspec import Struct

from dynamic_mcp.importer.adapter import SYSTEMS, Adapter, FileLocation, System
from dynamic_mcp.importer.formats.shapes import DESCRIPTION, NAME, header_fields
from dynamic_mcp.importer.installer import Entry, is_writable, write_entry
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.tools import locations
from dynamic_mcp.system.shell import quote as quote_words

SYSTEM_TITLES: Mapping[System, str] = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
# What stands for a token in a tool that has no variables in its settings.
TOKEN_PLACEHOLDER = "PUT-YOUR-TOKEN-HERE"  # noqa: S105 - which is none
_HOMES: Mapping[System, str] = {"linux": "~", "darwin": "~", "win32": "%USERPROFILE%"}
_FOLDERS = {"APPDATA": "%APPDATA%", "LOCALAPPDATA": "%LOCALAPPDATA%", "PROGRAMDATA": "%PROGRAMDATA%"}
_DOCUMENT = "settings"
_LANGUAGES = {".json": "JSON", ".jsonc": "JSON", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}


class SettingsPlace(Struct, frozen=True):
    """A file of a tool, as a person writes its path, and the systems where that is it."""

    path: str
    systems: tuple[str, ...]
    is_of_project: bool = False


class ToolConnection(Struct, frozen=True):
    """How one tool is connected.

    `text` is what a new file would be, and what goes into one that is there. If it `is_remote`, the tool connects to
    a URL by itself. It `has_placeholder` where a token has to be put into the text; else `variable` is the one that
    the tool takes it from, empty if there is none. `link` opens the tool, and `commands` are of the tool's own.
    """

    tool: str
    title: str
    places: tuple[SettingsPlace, ...]
    language: str
    text: str
    is_remote: bool
    has_placeholder: bool
    variable: str
    link: str
    commands: tuple[str, ...]
    remark: str
    source: str


class ConnectionTarget(Struct, frozen=True):
    """What a tool is to be connected to: `start` is a command line, `url` an address.

    A tool that is not known to support URLs gets `start`. `variable` names the variable with the token that the URL
    needs; empty if it needs none. `requested` are variables that the command needs.
    """

    start: tuple[str, ...]
    url: str = ""
    variable: str = ""
    requested: tuple[str, ...] = ()


def list_places(adapter: Adapter) -> list[tuple[SettingsPlace, FileLocation]]:
    """Return the file in which a tool is told of servers: the user's on each system, else that of a project."""
    for scope in (ToolScope.USER, ToolScope.PROJECT):
        found: dict[str, tuple[FileLocation, list[str]]] = {}
        for system in SYSTEMS:
            chosen = _find_place(adapter, scope, system)
            if chosen is not None:
                found.setdefault(chosen[0], (chosen[1], []))[1].append(SYSTEM_TITLES[system])
        if found:
            return [
                (SettingsPlace(path, tuple(systems), is_of_project=scope is ToolScope.PROJECT), place)
                for path, (place, systems) in found.items()
            ]
    return []


def describe_connection(adapter: Adapter, target: ConnectionTarget) -> ToolConnection | None:
    """Return how a tool is connected; None if it has no file that a person could edit."""
    places = list_places(adapter)
    if not places:
        return None
    shown, location = places[0]
    headers, has_placeholder = _choose_headers(adapter, target)
    suffix = Path(shown.path.replace("\\", "/")).suffix
    file = Path(f"{_DOCUMENT}{suffix}")
    text, entry = write_entry(
        adapter, location, file, target.start, url=target.url or None, headers=headers, variables=target.requested
    )
    needs_token = bool(headers) and entry.is_remote
    return ToolConnection(
        adapter.name,
        adapter.title,
        tuple(place for place, _ in places),
        _LANGUAGES.get(suffix, "text"),
        text,
        entry.is_remote,
        has_placeholder and entry.is_remote,
        target.variable if target.variable and not (has_placeholder and needs_token) else "",
        make_link(adapter, entry, target, headers),
        make_commands(adapter, entry, target, headers),
        entry.remark,
        adapter.source,
    )


def bearer_headers(variable: str) -> Mapping[str, str]:
    """Return the header with a token from a variable, in our own spelling."""
    return {"Authorization": f"Bearer ${{{variable}}}"} if variable else {}


def make_link(adapter: Adapter, entry: Entry, target: ConnectionTarget, headers: Mapping[str, str]) -> str:
    """Return a link that opens the tool and asks its user whether to add the entry; empty if the tool has none.

    Sources: https://cursor.com/docs/context/mcp/install-links, https://code.visualstudio.com/api/extension-guides/ai/mcp,
    https://lmstudio.ai/docs/app/mcp/deeplink, https://block.github.io/goose/docs/getting-started/using-extensions.
    """
    fields = {key: value for key, value in entry.fields.items() if value not in ({}, [])}
    encoded = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    base64 = b64encode(encoded.encode()).decode()
    match adapter.name:
        case "cursor":
            return f"cursor://anysphere.cursor-deeplink/mcp/install?{_encode({'name': NAME, 'config': base64})}"
        case "vscode" | "vscode-insiders":
            whole = json.dumps({"name": NAME, **fields}, separators=(",", ":"), ensure_ascii=False)
            return f"{adapter.name}:mcp/install?{quote(whole, safe='')}"
        case "lm-studio":
            return f"lmstudio://add_mcp?{_encode({'name': NAME, 'config': base64})}"
        case "goose" if not headers:
            about = [("id", NAME), ("name", NAME), ("description", DESCRIPTION)]
            if entry.is_remote:
                how = [("url", target.url), ("type", "streamable_http"), ("transport", "streamable_http")]
            else:
                how = [("cmd", target.start[0]), *(("arg", each) for each in target.start[1:])]
            return f"goose://extension?{_encode([*how, *about])}"
    return ""


def make_commands(
    adapter: Adapter, entry: Entry, target: ConnectionTarget, headers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the commands of the tool itself that add the entry.

    Sources: https://code.claude.com/docs/en/mcp, https://developers.openai.com/codex/mcp,
    https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md,
    https://qwenlm.github.io/qwen-code-docs/en/users/features/mcp, https://code.visualstudio.com/docs/copilot/customization/mcp-servers.
    """
    header_words = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
    words: Sequence[str] = ()
    match adapter.name:
        case "claude" if entry.is_remote:
            words = (
                "claude",
                "mcp",
                "add",
                "--transport",
                "http",
                "--scope",
                "user",
                NAME,
                target.url,
                *header_words,
            )
        case "claude":
            words = ("claude", "mcp", "add", "--scope", "user", NAME, "--", *target.start)
        case "codex" if entry.is_remote:
            token = ("--bearer-token-env-var", target.variable) if target.variable else ()
            words = ("codex", "mcp", "add", NAME, "--url", target.url, *token)
        case "codex":
            words = ("codex", "mcp", "add", NAME, "--", *target.start)
        case ("gemini" | "qwen-code") as tool if entry.is_remote:
            program = {"gemini": "gemini", "qwen-code": "qwen"}[tool]
            words = (program, "mcp", "add", "--scope", "user", "--transport", "http", NAME, target.url, *header_words)
        case "vscode" | "vscode-insiders":
            program = {"vscode": "code", "vscode-insiders": "code-insiders"}[adapter.name]
            words = (program, "--add-mcp", json.dumps({"name": NAME, **entry.fields}, ensure_ascii=False))
    return (quote_words(*words),) if words else ()


def _encode(values: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    return urlencode(values, quote_via=quote, safe="")


def _choose_headers(adapter: Adapter, target: ConnectionTarget) -> tuple[Mapping[str, str], bool]:
    """Return the header with the token, and whether it has a placeholder, for a tool without variables."""
    headers = bearer_headers(target.variable)
    if not headers or header_fields(adapter, headers) is not None:
        return headers, False
    placeholder = {"Authorization": f"Bearer {TOKEN_PLACEHOLDER}"}
    return (placeholder, True) if header_fields(adapter, placeholder) is not None else (headers, False)


def _find_place(adapter: Adapter, scope: ToolScope, system: System) -> tuple[str, FileLocation] | None:
    """Return the path of the file that a tool would get on a system, without anything of this machine in it."""
    home = _HOMES[system]
    machine = Machine(Path(home), Path(), _FOLDERS if system == "win32" else {}, system)
    for place, file in locations.list_candidates(adapter, machine, (scope,)):
        if is_writable(place, file) and not (place.legacy or place.servers or place.packaged):
            path = file.as_posix()
            return (str(PureWindowsPath(path)) if system == "win32" else str(PurePosixPath(path))), place
    return None
