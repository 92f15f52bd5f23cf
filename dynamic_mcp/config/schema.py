"""The JSON Schema of the config file, for editors: written from the model, so that both say the same."""

import json
import sys

from pydantic.json_schema import GenerateJsonSchema

from dynamic_mcp.config.model import Root


def schema() -> dict[str, object]:
    """The schema as JSON Schema 2020-12."""
    parts = {key: _trim(part) for key, part in Root.model_json_schema().items()}
    return {"$schema": GenerateJsonSchema.schema_dialect, **parts, "title": "dynamic-mcp config"}


def schema_text() -> str:
    """The schema as the file that is published."""
    return json.dumps(schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _trim(value: object) -> object:
    # titles repeat the names, and a default of null says only that a field may be left out
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
