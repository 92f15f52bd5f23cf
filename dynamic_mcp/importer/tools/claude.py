"""Claude Code: the user's file has a part for each project, and other files disable servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynamic_mcp.importer.formats import parser
from dynamic_mcp.importer.model import Machine, SettingsSource, ToolScope
from dynamic_mcp.importer.tools.document import Object, ToolDocument, fill_in

_OFF_IN_PROJECT = "is disabled for this project in Claude Code; it stays enabled here"


def normalize(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Reduce the document to the part of the scope, and apply what other files disable."""
    plugins = Path(machine.environment.get("CLAUDE_CONFIG_DIR") or machine.home / ".claude") / "plugins"
    if source.file.is_relative_to(plugins):
        _normalize_plugin(document, source, machine, plugins)
    elif source.scope is ToolScope.LOCAL:
        part = _project_part(document.settings, machine)
        document.settings = {"mcpServers": part.get("mcpServers")}
        _switch_off(document, _to_strings(part.get("disabledMcpServers")))
    elif source.scope is ToolScope.PROJECT:
        document.refused_servers = _refused_servers(machine)
        _switch_off(document, document.refused_servers)
    else:
        here = _to_strings(_project_part(document.settings, machine).get("disabledMcpServers"))
        for name in here & document.servers().keys():
            document.add_remark(name, "", _OFF_IN_PROJECT)


def project_key(document: object, machine: Machine) -> str:
    """Return the key of the project in the user's file: the existing one, else the one to write."""
    projects = document.get("projects") if isinstance(document, Mapping) else None
    path_of_project = _normalize_path(str(machine.project), machine)
    projects_by_path = projects if isinstance(projects, Mapping) else {}
    return next(
        (path for path in projects_by_path if _normalize_path(path, machine) == path_of_project), str(machine.project)
    )


def _normalize_plugin(document: ToolDocument, source: SettingsSource, machine: Machine, plugins: Path) -> None:
    """Normalize a plugin's file: add the missing wrapper, and fill in the plugin's directories."""
    is_manifest = source.file.parent.name == ".claude-plugin"
    if "mcpServers" not in document.settings and not is_manifest:
        document.settings = {"mcpServers": document.settings}
    if isinstance(document.settings.get("mcpServers"), str):  # the path of a file that is read by itself
        document.settings = {}
    root = source.file.parent.parent if is_manifest else source.file.parent
    fill_in(document, {"CLAUDE_PLUGIN_ROOT": str(root)})
    match root.relative_to(plugins).parts:
        case ("cache", marketplace, plugin, _):
            id = f"{plugin}@{marketplace}"
            fill_in(document, {"CLAUDE_PLUGIN_DATA": str(plugins / "data" / re.sub(r"[^A-Za-z0-9_-]", "-", id))})
            if any(_has_disabled(settings, id) for settings in _read_settings(machine)):
                _switch_off(document, set(document.servers()))
        case _:
            _note_unknown_data(document)


def _has_disabled(settings: Mapping[str, object], plugin: str) -> bool:
    plugins = settings.get("enabledPlugins")
    return isinstance(plugins, dict) and plugins.get(plugin) is False


def _note_unknown_data(document: ToolDocument) -> None:
    reference = "${CLAUDE_PLUGIN_DATA}"
    for name, server in document.servers().items():
        if reference in json.dumps(server, default=str):
            document.add_remark(
                name, "", f"uses `{reference}`, whose directory is not known for this plugin: set the variable"
            )


def _switch_off(document: ToolDocument, names: set[str]) -> None:
    def change(name: str, server: Object) -> Object:
        return {**server, "disabled": True} if name in names else server

    document.change_servers("mcpServers", change)


def _refused_servers(machine: Machine) -> set[str]:
    """Return the servers of `.mcp.json` that the user has refused, from all places that Claude Code uses."""
    sources = [
        *_read_settings(machine),
        *(_project_part(document, machine) for document in _read_user_files(machine)),
    ]
    return {name for settings in sources for name in _to_strings(settings.get("disabledMcpjsonServers"))}


def _read_user_files(machine: Machine) -> Iterator[Mapping[str, object]]:
    directory = machine.environment.get("CLAUDE_CONFIG_DIR")
    for file in (Path(directory or machine.home) / ".claude.json", machine.home / ".claude.json"):
        yield _read_object(file)


def _read_settings(machine: Machine) -> Iterator[Mapping[str, object]]:
    user = Path(machine.environment.get("CLAUDE_CONFIG_DIR") or machine.home / ".claude")
    for directory in (user, machine.project / ".claude"):
        for name in ("settings.json", "settings.local.json"):
            yield _read_object(directory / name)


def _read_object(file: Path) -> Mapping[str, object]:
    try:
        value = parser.load(file).value
    except parser.UnreadableError:  # only additional settings: the file with the servers reports its own errors
        return {}
    return value if isinstance(value, dict) else {}


def _project_part(document: Mapping[str, object], machine: Machine) -> Mapping[str, object]:
    projects = document.get("projects")
    part = projects.get(project_key(document, machine)) if isinstance(projects, dict) else None
    return part if isinstance(part, dict) else {}


def _normalize_path(path: str, machine: Machine) -> str:
    same = path.replace("\\", "/").rstrip("/") if machine.platform == "win32" else path.rstrip("/")
    return same.casefold() if machine.platform == "win32" else same


def _to_strings(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()
