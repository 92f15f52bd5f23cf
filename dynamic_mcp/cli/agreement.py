"""Asks the person at the terminal to agree to what was shown."""

from __future__ import annotations

import sys

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import InvalidArguments


def may_ask(this: Invocation) -> bool:
    """Return whether there is a person at the terminal to ask."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and not this.out.is_json_requested


def agree(this: Invocation, question: str, *, done: str, yes: bool) -> bool:
    """Ask whether to go on; `done` is what has not been done yet. Raises InvalidArguments if nobody can answer."""
    if yes:
        return True
    if not may_ask(this):
        raise InvalidArguments(f"nothing was {done}, since nobody can agree to it here", hint="--yes agrees to it")
    import questionary

    if questionary.confirm(question, default=True).unsafe_ask() is not True:
        this.out.say(f"nothing was {done}")
        return False
    return True
