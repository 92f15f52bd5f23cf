"""Generates the JSON Schema of the config file, for editors, from the pydantic models.

Beside JSON Schema, it has keywords of VS Code's JSON language server, which other editors use too: an order of
completions, which are sorted by name without it, and that comments and trailing commas are fine.
"""

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from dynamic_mcp.config.model import LEVEL, Root

_FOR_EDITORS = {"allowComments": True, "allowTrailingCommas": True}


def schema() -> dict[str, object]:
    """Return the schema as JSON Schema 2020-12. Of each object, the required and the everyday fields come first."""
    parts = {key: _trim(part) for key, part in _in_order(Root.model_json_schema()).items()}
    return {"$schema": GenerateJsonSchema.schema_dialect, **parts, "title": "dynamic-mcp config", **_FOR_EDITORS}


def schema_text() -> str:
    """Return the text of the published schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _trim(value: object) -> object:
    # titles repeat the names, and a null default only says that the field is optional
    match value:
        case dict():
            return {
                key: _trim(inner)
                for key, inner in _in_order(value).items()
                if not (key == "title" and isinstance(inner, str)) and not (key == "default" and inner is None)
            }
        case list():
            return [_trim(inner) for inner in value]
    return value


def _in_order(form: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Return a schema with the fields of its object in order, each with the text that VS Code sorts it by."""
    if (fields := form.get("properties")) is None:
        return form
    required = form.get("required", ())
    names = sorted(fields, key=lambda name: (fields[name][LEVEL] == "advanced", name not in required))
    ranks = {name: f"{1 + (fields[name][LEVEL] == 'advanced')}{number:02}" for number, name in enumerate(names)}
    return {**form, "properties": {name: {**fields[name], "suggestSortText": ranks[name]} for name in names}}


if __name__ == "__main__":
    sys.stdout.buffer.write(schema_text().encode())
