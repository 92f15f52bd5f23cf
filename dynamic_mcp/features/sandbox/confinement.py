"""What confines one program, as the config says; the means are chosen when it is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dynamic_mcp.config.confinement import NO_SANDBOX, CannotConfine, ConfinedChild
from dynamic_mcp.features.sandbox.words import Restrictions

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Program


class SandboxConfinement(Restrictions, frozen=True):
    """Starts a program with these restrictions."""

    def describe(self) -> str:
        """Return in a few words what is confined."""
        parts = ["writing"]
        if self.read is not None:
            parts.append("reading")
        if self.hosts is not None:
            parts.append(f"network but for {', '.join(self.hosts)}" if self.hosts else "network")
        where = f", in a container of {self.container}" if self.container is not None else ""
        return f"{', '.join(parts)}{where}"

    def start(
        self, program: Program, environment: Mapping[str, str], *, stdin: int, stdout: int, stderr: int
    ) -> ConfinedChild:
        """Start a program confined. Raises CannotConfine, OSError and ValueError."""
        if sys.platform != "win32" and self.container is not None:
            from dynamic_mcp.features.sandbox import container  # with the first of them

            return container.launch(self, program, environment, (stdin, stdout, stderr))
        if sys.platform == "linux":
            from dynamic_mcp.features.sandbox.launching import launch  # with the first program that is confined

            return launch(self, program, environment, (stdin, stdout, stderr))
        raise CannotConfine(NO_SANDBOX)  # the config refuses it before
