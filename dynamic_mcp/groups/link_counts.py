"""How often the links of a group were opened, lost, and opened again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LinkCounts:
    """Counts of all instances of the groups of one name, over reloads too: they only grow.

    `restarts` are links that were opened in place of one that was lost.
    """

    opened: int = 0
    failed: int = 0
    lost: int = 0
    restarts: int = 0
