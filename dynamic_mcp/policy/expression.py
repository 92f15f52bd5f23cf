"""The condition of a rule in CEL, ready to evaluate."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.config.cel import compile_expression, names_any
from dynamic_mcp.policy.arguments import ConditionError

_OF_CALLER = ("subject", "issuer", "provider", "roles", "scopes", "claims")
_OF_ARGUMENTS = ("arguments",)


class Expression:
    """A condition that `config.cel` has checked."""

    def __init__(self, text: str) -> None:
        self._compiled = compile_expression(text)
        self.uses_arguments = names_any(text, _OF_ARGUMENTS)
        self.uses_caller = names_any(text, _OF_CALLER)

    def evaluate(self, variables: Mapping[str, object]) -> bool:
        """Return the value of the condition. Raises ConditionError if it is neither true nor false."""
        try:
            value: object = self._compiled.eval(data=variables).value()
        except (RuntimeError, TypeError, UnicodeError) as exc:
            raise ConditionError("it takes too long, or its variables have no values of CEL") from exc
        if not isinstance(value, bool):  # an error is a string
            raise ConditionError("it uses a name that is missing or has another type")
        return value
