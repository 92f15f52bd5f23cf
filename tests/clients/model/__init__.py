"""A model that plays a script, behind the APIs that AI clients speak, so that they make real tool calls."""

from tests.clients.model.dialect import Call, Json, Result, Saying, Shown
from tests.clients.model.server import Model, Script

__all__ = ["Call", "Json", "Model", "Result", "Saying", "Script", "Shown"]
