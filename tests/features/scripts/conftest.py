"""Commands about scripts run as those of any other room."""

from tests.cli.fixtures import cli, state

__all__ = ["cli", "state"]
