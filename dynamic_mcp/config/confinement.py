"""Programs that run confined, as the kernel sees them: what was started, and the reason why one cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import subprocess

NO_SANDBOX = "this system has no sandbox that dynamic-mcp can use"


class CannotConfine(OSError):
    """Raised if a program cannot be confined as the config says. `hint` says what is missing."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class ConfinedChild(Struct, frozen=True):
    """A program that was started confined. Call `release` once it and all that it started have ended."""

    process: subprocess.Popen[bytes]
    release: Callable[[], None]
