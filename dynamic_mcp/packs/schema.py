"""Generates the JSON Schema of packs, for editors."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from dynamic_mcp.packs.model import Pack

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:  # Any: JSON
    """Return the schema as JSON Schema 2020-12."""
    return {"$schema": DIALECT, "title": "dynamic-mcp pack of a command line program", **msgspec.json.schema(Pack)}


def schema_text() -> str:
    """Return the text of the published schema file."""
    return json.dumps(schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
