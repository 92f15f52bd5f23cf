"""Overrides as tests write them: the config's own JSON, and tools that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Rules
from dynamic_mcp.config.section import read
from dynamic_mcp.features.overrides.config import Override
from dynamic_mcp.features.overrides.overrides import Overrides

Json = Any  # whatever JSON a test writes down


def rules_of(**members: Json) -> Rules:
    """Return the rules of a server with these `overrides`."""
    return {"overrides": tuple(_read(members))}


def _read(members: Json) -> Iterator[Override]:
    return (replace(read(Override, each), tools=tools) for tools, each in members.items())


def overrides_of(**members: Json) -> Overrides:
    """Return `overrides` of a server with these members."""
    return Overrides(tuple(_read(members)))


def tools_of(**tools: Json) -> dict[str, Raw]:
    """Return the tools of a server: by name, the properties of the input schema, or the whole tool."""
    return {
        name: Raw(msgspec.json.encode({"name": name, **(each if "inputSchema" in each else _takes(each))}))
        for name, each in tools.items()
    }


def _takes(properties: Json) -> Json:
    return {"inputSchema": {"type": "object", "properties": properties, "additionalProperties": False}}


def shown(overrides: Overrides, tools: dict[str, Raw]) -> dict[str, Json]:
    """Return the tools as they are shown."""
    return {name: msgspec.json.decode(entry) for name, entry in overrides.show(tools).entries.items()}


def restored(overrides: Overrides, tools: dict[str, Raw], tool: str, given: Json) -> Json:
    """Return what the server of a tool, by its shown name, is sent for these arguments."""
    sent = overrides.show(tools).by_name[tool].restore(Raw(msgspec.json.encode(given)))
    return None if sent is None else msgspec.json.decode(sent)
