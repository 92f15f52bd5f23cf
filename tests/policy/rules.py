"""Access rules as tests write them: the config's own JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynamic_mcp.config.access import Access, resolve_access
from dynamic_mcp.config.section import read
from dynamic_mcp.identity import Authentication, Principal

Json = Any  # whatever JSON a test writes down


def access_of(*, approve: Mapping[str, tuple[str, ...]] | None = None, **members: Json) -> Access:
    """Return `settings.access` with these members, and `approve` of servers."""
    found = resolve_access(read(Access, members), approve or {})
    assert found is not None
    return found


def person(subject: str = "ann", *roles: str, **members: Json) -> Authentication:
    """Return somebody with a credential."""
    return Authentication(Principal("token", subject), "bearer", roles, **members)
