"""Generates the JSON Schema of the config file, for editors, from the pydantic models.

Beside JSON Schema, it has keywords of VS Code's JSON language server, which other editors use too: an order of
completions, which are sorted by name without it, and that comments and trailing commas are fine.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from dynamic_mcp.config.model import LEVEL, Root

_FOR_EDITORS = {"allowComments": True, "allowTrailingCommas": True}


def schema() -> dict[str, object]:
    """Return the schema as JSON Schema 2020-12. The everyday fields of each object come first."""
    parts = {key: _trim(part) for key, part in Root.model_json_schema().items()}
    return {"$schema": GenerateJsonSchema.schema_dialect, **parts, "title": "dynamic-mcp config", **_FOR_EDITORS}


def schema_text() -> str:
    """Return the text of the published schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _trim(value: object) -> object:
    # titles repeat the names, and a null default only says that the field is optional
    match value:
        case dict():
            return {
                key: _in_order(inner) if key == "properties" else _trim(inner)
                for key, inner in value.items()
                if not (key == "title" and isinstance(inner, str)) and not (key == "default" and inner is None)
            }
        case list():
            return [_trim(inner) for inner in value]
    return value


def _in_order(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Return the properties of an object, everyday ones first, each with the text that VS Code sorts it by."""
    names = sorted(properties, key=lambda name: properties[name][LEVEL] == "advanced")
    found: dict[str, object] = {}
    for number, name in enumerate(names):
        form = _trim(properties[name])
        assert isinstance(form, dict)
        rank = "2" if form[LEVEL] == "advanced" else "1"
        found[name] = {**form, "suggestSortText": f"{rank}{number:02}"}
    return found


if __name__ == "__main__":
    sys.stdout.write(schema_text())
