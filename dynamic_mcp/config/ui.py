"""The page for people: `settings.ui`."""

from __future__ import annotations

from typing import Annotated

from dynamic_mcp.config.section import Section
from dynamic_mcp.config.types import Strings


class Ui(Section, frozen=True):
    """The page for people at `/ui`. Everybody there sees their own; the local user sees and does everything."""

    operators: Annotated[
        Strings, "The roles that see and do everything on the page, as the local user does. Default: none."
    ] = ()
    approvers: Annotated[
        Strings, "The roles that see the calls of others that wait for approval, and decide. Default: none."
    ] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that mean something on the page."""
        return *self.operators, *self.approvers
