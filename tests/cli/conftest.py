from __future__ import annotations

from tests.cli.fixtures import cli, config, home, state

__all__ = ["cli", "config", "home", "state"]
