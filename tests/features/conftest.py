from __future__ import annotations

from tests.cli.fixtures import cli, state
from tests.config.fixtures import read_config
from tests.features.shared_stores import redis, store_pair

__all__ = ["cli", "read_config", "redis", "state", "store_pair"]
