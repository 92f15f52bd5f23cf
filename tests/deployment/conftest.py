from __future__ import annotations

from tests.cli.fixtures import cli

__all__ = ["cli"]
