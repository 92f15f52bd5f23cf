"""Generates the JSON Schema of the config file, for editors, from the pydantic models."""

import json
import sys

from pydantic.json_schema import GenerateJsonSchema

from dynamic_mcp.config.model import Root


def schema() -> dict[str, object]:
    """Return the schema as JSON Schema 2020-12."""
    parts = {key: _trim(part) for key, part in Root.model_json_schema().items()}
    return {"$schema": GenerateJsonSchema.schema_dialect, **parts, "title": "dynamic-mcp config"}


def schema_text() -> str:
    """Return the text of the published schema file."""
    return json.dumps(schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _trim(value: object) -> object:
    # titles repeat the names, and a null default only says that the field is optional
    match value:
        case dict():
            return {
                key: _trim(inner)
                for key, inner in value.items()
                if not (key == "title" and isinstance(inner, str)) and not (key == "default" and inner is None)
            }
        case list():
            return [_trim(inner) for inner in value]
    return value


if __name__ == "__main__":
    sys.stdout.write(schema_text())
