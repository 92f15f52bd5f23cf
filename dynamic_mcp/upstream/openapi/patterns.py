"""Leaves out the patterns of schemas that cannot be checked, so that everything else in these schemas is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dynamic_mcp.openapi.document import Json
from dynamic_mcp.tools.schema import find_schema_error


def without_bad_patterns(tool: Json) -> Json:
    """Return a tool whose schema has only patterns that the validator takes."""
    return {**tool, "inputSchema": _clean(tool["inputSchema"])}


def _clean(schema: Any) -> Any:  # Any: JSON
    match schema:
        case list():
            return [_clean(each) for each in schema]
        case dict():
            return {key: _clean_member(key, each) for key, each in schema.items() if not _is_bad(key, each)}
    return schema


def _clean_member(key: str, value: Any) -> Any:  # Any: JSON
    if key in ("enum", "const", "default"):
        return value
    if key == "patternProperties":
        return {pattern: _clean(each) for pattern, each in value.items() if _is_pattern(pattern)}
    if key in ("properties", "$defs", "dependentSchemas"):
        return {name: _clean(each) for name, each in value.items()}
    return _clean(value)


def _is_bad(key: str, value: object) -> bool:
    return key == "pattern" and isinstance(value, str) and not _is_pattern(value)


@lru_cache(maxsize=1000)
def _is_pattern(text: str) -> bool:
    return not find_schema_error({"pattern": text})
