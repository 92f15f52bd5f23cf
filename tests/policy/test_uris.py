"""Globs of URIs, and the ways to read a URI."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.policy.arguments import ConditionError
from dynamic_mcp.policy.uris import MAX_URI, UriGlobs, variants

ALLOWED = UriGlobs(["file:///allowed/*"])
SECRET = UriGlobs(["file:///secret*"])


@pytest.mark.parametrize(
    "uri",
    [
        "file:///allowed/../secret",
        "file:///allowed/%2e%2e/secret",
        "file:///allowed/%252E%252e/secret",
        "file:///allowed/..%2fsecret",
        "file:///allowed/..%5csecret",
        "file:///allowed/..\\secret",
        "file:///allowed//../../secret",
        "file:///allowed/a%2fb/../../secret",
        "file:///allowed/a%252fb/../../secret",
        "file:///allowed//a%252fb/../../../secret",
        "file:///allowed/?/../../secret",
        "file:///allowed/%3f/%2e%2e/%2e%2e/secret",
        "FILE:///allowed/../secret",
        "file:/allowed/../secret",
        "file://localhost/allowed/./../secret",
        "file:///allowed/../../../secret",
    ],
)
def test_no_way_to_write_a_uri_gets_out_of_what_is_allowed_or_past_what_is_denied(uri: str) -> None:
    assert not ALLOWED.match_all(uri)
    assert SECRET.match_any(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret/a",
        "FILE:///secret/a",
        "file:/secret/a",
        "file://LOCALHOST/secret/a",
        "file:////secret/a",
        "file:///%73ecret/a",
        "file:///%2573ecret/a",
        "file:///./secret/a",
    ],
)
def test_what_is_denied_is_denied_however_it_is_written(uri: str) -> None:
    assert SECRET.match_any(uri)


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("file:///allowed/*", "file:///allowed/a/b.txt"),
        ("file:///allowed/*", "file:///allowed/100%25"),
        ("memo://Insights/*", "memo://Insights/Today"),
        ("file:///My%20Docs/*", "file:///My%20Docs/a%20b"),
        ("file:///My Docs/*", "file:///My%20Docs/a"),
        ("page://https://example.com/*", "page://https://example.com/a"),
        ("https://Example.com/a?q=*", "https://Example.com/a?q=X"),
        ("urn:isbn:*", "urn:isbn:123"),
        ("notes:*", "notes:a..b"),
    ],
)
def test_what_is_allowed_is_allowed_as_it_is_usually_written(pattern: str, uri: str) -> None:
    assert UriGlobs([pattern]).match_all(uri)


def test_a_host_may_be_a_directory() -> None:
    assert UriGlobs(["notes://private/*"]).match_any("notes://public/../private/a")
    assert not UriGlobs(["notes://public/*"]).match_all("notes://public/../private/a")


def test_an_escaped_star_in_a_glob_is_no_wildcard() -> None:
    globs = UriGlobs(["file:///a/%2a"])
    assert not globs.match_any("file:///a/b")
    assert globs.match_any("file:///a/%2a")


def test_a_uri_that_is_too_long_is_denied() -> None:
    uri = "file:///allowed/" + "a" * MAX_URI
    with pytest.raises(ConditionError):
        variants(uri)
    assert not ALLOWED.match_all(uri)
    assert SECRET.match_any(uri)


def test_a_plain_uri_has_one_way_to_read_it() -> None:
    assert variants("file:///a/b.txt?x=1#y") == ("file:///a/b.txt?x=1#y",)


@given(st.text("/.:%25efA?\\", max_size=30))
def test_all_ways_to_read_any_text_are_found_and_few(text: str) -> None:
    found = variants(text)
    assert found[0] == text
    assert len(found) <= 12


@given(st.text(st.characters(), max_size=20))
def test_everything_is_matched_by_a_star(text: str) -> None:
    assert UriGlobs(["*"]).match_all(text)


def test_a_template_is_judged_by_what_it_may_expand_to() -> None:
    assert ALLOWED.may_match("file:///{+path}")
    assert ALLOWED.may_match("FILE:///allowed/{path}")
    assert not ALLOWED.may_match("file:///secret/{path}")
    assert SECRET.covers("FILE:///secret/{path}")
    assert not SECRET.covers("file:///{+path}")
