from __future__ import annotations

from tests.config.fixtures import read_config, refuse

__all__ = ["read_config", "refuse"]
