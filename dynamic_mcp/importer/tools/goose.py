"""Goose: an extension is a server or a built-in part; headers may refer to the extension's own variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynamic_mcp.importer.model import Machine, Source
from dynamic_mcp.importer.tools.document import Object, ToolDocument

_PARTS = ("builtin", "platform", "frontend", "inline_python")


def normalize(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Keep the extensions that are servers."""
    extensions = document.settings.get("extensions")
    if not isinstance(extensions, dict):
        return
    kept: Object = {}
    for name, extension in extensions.items():
        server = _flatten(extension) if isinstance(extension, dict) else extension
        if not isinstance(server, dict):
            kept[name] = server
        elif server.get("type") in _PARTS:
            document.remarks.append(
                (name, f"has the type `{server['type']}`, which is built into Goose, and is left out")
            )
        else:
            kept[name] = _with_headers(server)
    document.settings["extensions"] = kept


def _flatten(extension: Object) -> Object:
    inner = extension.get("config")
    if not isinstance(inner, dict):
        return extension
    return {key: value for key, value in {**extension, **inner}.items() if key != "config"}


def _with_headers(server: Object) -> Object:
    """Fill a remote server's variables into its headers, which are their only use."""
    envs, headers = server.get("envs"), server.get("headers")
    if not server.get("uri"):
        return server
    values = {name: text for name, text in envs.items() if isinstance(text, str)} if isinstance(envs, dict) else {}
    rest = {key: value for key, value in server.items() if key not in ("envs", "env_keys")}
    if isinstance(headers, dict):
        rest["headers"] = {
            name: _inline(text, values) if isinstance(text, str) else text for name, text in headers.items()
        }
    return rest


def _inline(text: str, values: Mapping[str, str]) -> str:
    """Replace references to these values, except by values that look like references themselves."""

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[1] or match[2], match[0])
        return match[0] if "$" in value else value

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", fill, text)
