"""What the names of commands suggest that they do: a proposal for the reviewer, which nothing else follows."""

from __future__ import annotations

import re

from dynamic_mcp.packs.model import Effect
from dynamic_mcp.policy import verbs

_DESTRUCTIVE = verbs.words(
    "clean delete destroy discard drop erase format kill prune purge reset remove rm rmdir shutdown truncate"
    " uninstall unset wipe poweroff reboot halt"
)


def propose_effect(name: str) -> Effect:
    """Return what a command of this name probably does. What is not known well is `unknown`."""
    found = re.findall(r"[a-z]+", name)
    if any(word in _DESTRUCTIVE for word in found):
        return "destructive"
    if any(word in verbs.WRITE for word in found):
        return "write"
    if found and (found[-1] in verbs.READ or found[0] in verbs.READ):
        return "read"
    return "unknown"
