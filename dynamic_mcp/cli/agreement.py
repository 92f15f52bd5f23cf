"""Asks the user at the terminal to confirm the changes shown before."""

from __future__ import annotations

import sys

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import InvalidArguments


def may_ask(context: Invocation) -> bool:
    """Return whether a user at the terminal can answer questions."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and not context.out.is_json_requested


def agree(context: Invocation, question: str, *, done: str, yes: bool) -> bool:
    """Ask whether to continue; `done` is the participle for messages. Raises InvalidArguments without a terminal."""
    if yes:
        return True
    if not may_ask(context):
        raise InvalidArguments(f"nothing was {done}, since nobody can agree to it here", hint="--yes agrees to it")
    import questionary

    if questionary.confirm(question, default=True).unsafe_ask() is not True:
        context.out.say(f"nothing was {done}")
        return False
    return True


def require_person(command: str, *, seen: str, is_sure: bool) -> None:
    """Require a terminal, unless `--yes` confirms that the user has `seen` the content. Raises InvalidArguments."""
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArguments(
            f"`{command}` needs a terminal, so that a person decides",
            hint=f"run it in a terminal, or add `--yes` if a person has seen {seen}",
        )
