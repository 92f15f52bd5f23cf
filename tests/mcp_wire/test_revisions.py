from __future__ import annotations

import pytest

from dynamic_mcp.mcp import revisions
from dynamic_mcp.mcp.revisions import LEGACY, NEWEST, OLDEST


@pytest.mark.parametrize("revision", LEGACY, ids=lambda revision: revision.name)
def test_a_revision_is_found_by_its_name_and_negotiated_as_itself(revision: revisions.Revision) -> None:
    assert revisions.find(revision.name) is revision
    assert revisions.negotiate(revision.name) is revision
    assert revisions.closest_older(revision.name) is revision


@pytest.mark.parametrize("name", [None, "", "1.0", "2099-01-01", "1999-01-01", "latest"])
def test_what_we_do_not_speak_is_answered_with_the_newest(name: str | None) -> None:
    assert revisions.find(name) is None
    assert revisions.negotiate(name) is NEWEST


@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("2025-03-27", "2025-03-26"),
        ("2025-12-31", "2025-11-25"),
        ("9999-12-31", NEWEST.name),
        ("2024-11-04", OLDEST.name),
        ("0000-00-00", OLDEST.name),
        ("2025-06-18-draft", OLDEST.name),
        ("v2", OLDEST.name),
        ("", OLDEST.name),
        (None, OLDEST.name),
    ],
)
def test_an_unknown_name_stands_for_the_closest_older_revision(name: str | None, older: str) -> None:
    assert revisions.closest_older(name).name == older


def test_batches_are_part_of_one_revision_only() -> None:
    assert [revision.name for revision in LEGACY if revision.has_batches] == ["2025-03-26"]
