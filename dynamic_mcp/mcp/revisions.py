"""The revisions of the protocol as a table of features. No other module compares their names."""

from __future__ import annotations

import re

from msgspec import Struct


class Revision(Struct, frozen=True):
    """One revision of MCP and the features that not every revision has."""

    name: str
    has_batches: bool = False
    has_resource_links: bool = False
    has_tasks: bool = False
    has_url_elicitation: bool = False
    has_polling: bool = False
    has_titled_choices: bool = False
    is_stateless: bool = False


# Oldest first: https://modelcontextprotocol.io/specification, the changelog of each revision.
REVISIONS = (
    Revision("2024-11-05"),
    Revision("2025-03-26", has_batches=True),
    Revision("2025-06-18", has_resource_links=True),
    Revision(
        "2025-11-25",
        has_resource_links=True,
        has_tasks=True,
        has_url_elicitation=True,
        has_polling=True,
        has_titled_choices=True,
    ),
    Revision(
        "2026-07-28", has_resource_links=True, has_url_elicitation=True, has_titled_choices=True, is_stateless=True
    ),
)
# The specification's word for the revisions with `initialize` is legacy, and modern for those without.
LEGACY = tuple(revision for revision in REVISIONS if not revision.is_stateless)
OLDEST, NEWEST = LEGACY[0], LEGACY[-1]
MODERN = REVISIONS[-1]
# All names, in the order in which clients receive them: the newest first.
SUPPORTED = tuple(revision.name for revision in reversed(REVISIONS))
_BY_NAME = {revision.name: revision for revision in REVISIONS}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def find(name: str | None) -> Revision | None:
    """Return the revision with this name, if there is one."""
    return _BY_NAME.get(name or "")


def negotiate(name: str | None) -> Revision:
    """Return the revision to answer a client that requested `name` (basic/lifecycle, version negotiation)."""
    revision = find(name)
    return NEWEST if revision is None or revision.is_stateless else revision


def closest_older(name: str | None) -> Revision:
    """Return the newest legacy revision that is not newer than `name`; the oldest if it is older or not a date."""
    if name is None or not _DATE.fullmatch(name):
        return OLDEST
    older = [revision for revision in LEGACY if revision.name <= name]  # dates compare as text
    return older[-1] if older else OLDEST
