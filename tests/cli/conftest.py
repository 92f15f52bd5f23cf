from __future__ import annotations

from tests.cli.fixtures import calc, cli, config, home, state

__all__ = ["calc", "cli", "config", "home", "state"]
