from __future__ import annotations

from tests.cli.fixtures import cli, state
from tests.config.fixtures import read_config

__all__ = ["cli", "read_config", "state"]
