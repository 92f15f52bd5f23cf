from __future__ import annotations

from tests.cli.fixtures import cli, state

__all__ = ["cli", "state"]
