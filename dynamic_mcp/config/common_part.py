"""The part of a config that all replicas of a service should have in common."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.config.read import read_document
from dynamic_mcp.errors import ConfigError

_DIGITS = 16
# Of a replica alone.
_OWN = ("name", "peers")


def digest_of_replicas(file: Path) -> str:
    """Return a digest of a config, whatever its form and its comments are; empty if it cannot be read.

    Each replica may have a name and peers of its own. Reads the file.
    """
    try:
        document = read_document(file)
    except ConfigError:
        return ""
    settings = document.get("settings") if isinstance(document, dict) else None
    cluster = settings.get("cluster") if isinstance(settings, dict) else None
    if isinstance(settings, dict) and isinstance(cluster, dict):
        settings["cluster"] = {name: value for name, value in cluster.items() if name not in _OWN}
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:_DIGITS]
