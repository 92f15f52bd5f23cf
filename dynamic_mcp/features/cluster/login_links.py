"""Pages of logins to servers, which a browser may open at any replica: the replica that has sent the link has them.

The names in links, and the states with which browsers return, begin with `d1.<replica>.`. That is not signed: a name
that was made up is found nowhere.
"""

from __future__ import annotations

import re

from dynamic_mcp.oauth.links import CALLBACK_PATH, LINK_PATH

_MARK = r"d[0-9]{1,3}\.([A-Za-z0-9][A-Za-z0-9-]{0,62})\."
_PAGE = re.compile(f"[^?]*{LINK_PATH}{_MARK}[^/?]*(?:[?]|$)".encode())
_RETURN = re.compile(f"[^?]*{CALLBACK_PATH}[?](?:[^#]*&)?state={_MARK}".encode())


def mark_of(replica: str) -> str:
    """Return what names in links of this replica begin with."""
    return f"d1.{replica}."


def find_sender(target: bytes) -> str:
    """Return the replica whose login a page is about; empty if it is about none."""
    found = _PAGE.match(target) or _RETURN.match(target)
    return "" if found is None else found[1].decode()
