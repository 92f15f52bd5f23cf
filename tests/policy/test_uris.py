"""Globs of URIs, and the ways to read a URI."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynamic_mcp.policy.arguments import ConditionError
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.uris import MAX_URI, UriGlobs, readings_of_all, variants
from tests.examples import examples
from tests.policy.uri_oracles import NodeUrls, read_with_pydantic, read_with_urlsplit

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
        ("https://*.example.com/*", "https://api.example.com/v1/a?b=c#d"),
        ("https://example.com:8443/*", "https://example.com:8443/a"),
        ("https://example.com:443/*", "https://example.com:443/a"),
        ("https://example.com:*/*", "https://example.com:443/a"),
        ("https://example.com", "https://example.com"),
        ("https://example.com?q=*", "https://example.com?q=1"),
        ("https://b\u00fccher.example/*", "https://b\u00fccher.example/a"),
        ("https://10.0.0.?/*", "https://10.0.0.5/a"),
        ("https://[::1]:8080/*", "https://[::1]:8080/a"),
        ("postgres://ann@db:5432/shop/*", "postgres://ann@db:5432/shop/orders/schema"),
        ("file://nas/share/*", "file://nas/share/a.txt"),
        ("file:///C:/docs/*", "file:///C:/docs/a%20b.txt"),
        ("issue://12?", "issue://123"),
        ("page://*#intro", "page://a/b#intro"),
        ("data:*", "data:text/plain;base64,aGk="),
    ],
)
def test_what_is_allowed_is_allowed_as_it_is_usually_written(pattern: str, uri: str) -> None:
    assert UriGlobs([pattern]).match_all(uri)


@pytest.mark.parametrize("character", [*map(chr, range(0x21)), "\x7f"])
@pytest.mark.parametrize(
    "uri",
    ["file:///allowed/.{}./secret", "{}file:///allowed/a", "file:///allowed/%2{}e%2e/secret", "file:///allowed/a{}"],
)
def test_a_character_that_parsers_drop_is_allowed_by_none_and_denied_by_all(uri: str, character: str) -> None:
    assert not ALLOWED.match_all(uri.format(character))
    assert SECRET.match_any(uri.format(character))


@pytest.mark.parametrize("escape", ["%09", "%0a", "%0D", "%00", "%7f", "%2509"])
def test_an_escaped_control_character_is_allowed_by_none_and_denied_by_all(escape: str) -> None:
    assert not ALLOWED.match_all(f"file:///allowed/.{escape}./secret")
    assert SECRET.match_any(f"file:///allowed/.{escape}./secret")


@pytest.mark.parametrize(
    "uri",
    [
        "https://internal.example/x",
        "https://%69nternal.example/x",
        "https://%2569nternal.example/x",
        "https://INTERNAL.example:443/x",
        "https://internal.example:0443/x",
        "https://internal.example:/x",
        "https://user:word@internal.example/x",
        "https://open.example@internal.example/x",
        "https://internal.example./x",
        "https:/internal.example/x",
        "https:internal.example/x",
        "https:////internal.example/x",
        "https:\\\\internal.example\\x",
        "https://internal.example\\@open.example/x",
        "https://open.example\\@internal.example/x",
        "https://\uff49nternal.example/x",
        "https://internal\u3002example/x",
        "https://inter\u00adnal.example/x",
        "https://internal.example",
        "https://internal.example?x",
        "https:%2f%2finternal.example/x",
    ],
)
def test_a_host_is_the_same_however_it_is_written(uri: str) -> None:
    assert UriGlobs(["https://internal.example/*"]).match_any(uri)
    assert not UriGlobs(["https://open.example/*"]).match_all(uri)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "127.0.0.1:80"])
def test_an_address_is_the_same_however_it_is_written(host: str) -> None:
    assert UriGlobs(["http://127.0.0.1/*"]).match_any(f"http://{host}/x")
    assert UriGlobs(["http://127.*"]).match_any(f"http://{host}/x")


@pytest.mark.parametrize("host", ["255.1", "0xff.0.0.1", "4278190081"])
def test_the_largest_number_of_an_address_is_one_of_it(host: str) -> None:
    assert UriGlobs(["http://255.0.0.1/*"]).match_any(f"http://{host}/x")


@pytest.mark.parametrize("host", ["1.2.3.256", "1.258.0", "1.2.3.4.0", "[::g]"])
def test_what_is_no_address_is_not_taken_for_one(host: str) -> None:
    uri = f"http://{host}/x"
    assert UriGlobs([f"http://{host}/*"]).match_any(uri)
    assert not UriGlobs(["http://1.2.4.0/*", "http://1.2.3.4/*", "http://[::1]/*"]).match_any(uri)


@pytest.mark.parametrize(
    ("scheme", "port"), [("http", 80), ("https", 443), ("ws", 80), ("wss", 443), ("ftp", 21)], ids=str
)
def test_the_port_that_a_scheme_has_anyway_makes_no_difference(scheme: str, port: int) -> None:
    assert UriGlobs([f"{scheme}://internal.example/*"]).match_any(f"{scheme}://internal.example:{port}/x")
    assert UriGlobs([f"{scheme}://internal.example:{port}/*"]).match_any(f"{scheme}://internal.example/x")
    assert not UriGlobs([f"{scheme}://internal.example/*"]).match_any(f"{scheme}://internal.example:8{port}/x")


@pytest.mark.parametrize("pattern", ["https://b\u00fccher.example/*", "https://xn--bcher-kva.example/*"])
def test_a_name_in_unicode_is_the_same_as_in_punycode(pattern: str) -> None:
    for host in ("b\u00fccher.example", "xn--bcher-kva.example", "BU\u0308CHER.example", "b%C3%BCcher.example"):
        assert UriGlobs([pattern]).match_any(f"https://{host}/x")


@pytest.mark.parametrize(
    "uri",
    [
        "file:secret/a",
        "file:\\secret\\a",
        "file://elsewhere/secret/a",
        "file:///secret?a",
        "file:///secret#a",
        "file:///allowed/a%2fb/%2e%2e/%2e%2e/secret",
        "file:///allowed/b%2fc/../%2e%2e%2fsecret/a",
    ],
)
def test_a_file_is_the_same_however_it_is_written(uri: str) -> None:
    assert UriGlobs(["file:///secret", "file:///secret/*"]).match_any(uri)
    assert not ALLOWED.match_all(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///C:/secret/a",
        "file:///C|/secret/a",
        "fIle://C|/secret/a",
        "f%69le:///C|//secret/a",
        "file:C|\\secret\\a",
        "file:///C:/allowed/..\\secret/a",
        "file:///C:/../../secret/a",
        "file:/x/..///C:/secret/a?x",
        "file:////C:%5C..%5Csecret/a",
    ],
)
def test_a_drive_is_the_same_however_it_is_written(uri: str) -> None:
    assert UriGlobs(["file:///C:/secret/*"]).match_any(uri)
    assert not UriGlobs(["file:///C:/allowed/*"]).match_all(uri)


@pytest.mark.parametrize("uri", ["file:///secret/a", "file:/secret/a", "file:secret/a", "file:/x/../secret/a"])
def test_a_glob_of_files_without_slashes_is_about_the_same_files(uri: str) -> None:
    assert UriGlobs(["file:secret/*"]).match_any(uri)


@pytest.mark.parametrize("pattern", ["https:internal*", "https:internal.example/*", "https:internal.example/x"])
def test_a_glob_of_web_addresses_without_slashes_is_about_the_same_hosts(pattern: str) -> None:
    assert UriGlobs([pattern]).match_any("https://internal.example/x")


@pytest.mark.parametrize("uri", ["memo:/\\x/a?b%252f../c", "memo:////x/a", "memo://x/b/../a", "MEMO://x/a"])
def test_a_name_of_a_servers_own_scheme_is_the_same_however_it_is_written(uri: str) -> None:
    assert UriGlobs(["memo://x/*", "memo:///x/*"]).match_any(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "memo:///%2fprivate/a",
        "memo:///%2fpr%69vate/a",
        "memo:///%252fprivate/a",
        "memo:////private/a",
        "memo:///%2fann@PRIVATE/a",
    ],
)
def test_a_path_that_may_be_read_as_a_host_is_judged_as_one(uri: str) -> None:
    assert UriGlobs(["memo://private/*"]).match_any(uri)
    assert not UriGlobs(["memo:///*"]).match_all(uri)
    assert UriGlobs(["memo:///*"]).match_all("memo:///public/a")


def test_the_end_that_a_server_does_not_look_at_makes_nothing_allowed() -> None:
    assert not UriGlobs(["file:///srv/*.md"]).match_all("file:///srv/secret.key?.md")
    assert not UriGlobs(["https://open.example/*.md"]).match_all("https://open.example/secret.key#.md")
    assert UriGlobs(["https://open.example/*.md"]).match_all("https://open.example/secret.key?.md")


@pytest.mark.parametrize(
    "uri", ["file:///allowed/../secret/.", "file:///allowed/../secret/b/..", "file:/x/../secret/"]
)
def test_a_directory_by_itself_is_of_what_is_in_it(uri: str) -> None:
    assert UriGlobs(["file:///secret/*"]).match_any(uri)


def test_brackets_that_are_not_around_a_host_are_allowed_by_none_and_denied_by_all() -> None:
    globs = UriGlobs(["https://[::1]/*"])
    for uri in ("https://x[::1]/a", "https://::1]/a", "https://[::1/a"):
        assert not globs.match_all(uri)
        assert globs.match_any(uri)


def test_the_host_of_a_template_is_the_same_however_it_is_written() -> None:
    globs = UriGlobs(["https://internal.example/*"])
    assert globs.covers("https:/%69nternal.example:443/{id}")
    assert globs.may_match("https://INTERNAL.example./{id}")
    assert not globs.covers("https://{host}/{id}")


def test_a_host_may_be_a_directory() -> None:
    assert UriGlobs(["notes://private/*"]).match_any("notes://public/../private/a")
    assert not UriGlobs(["notes://public/*"]).match_all("notes://public/../private/a")


def test_an_escaped_star_in_a_glob_is_no_wildcard() -> None:
    globs = UriGlobs(["file:///a/%2a"])
    assert not globs.match_any("file:///a/b")
    assert globs.match_any("file:///a/%2a")


@pytest.mark.parametrize("label", ["a.", "%2e", "xn--a.", "1."])
def test_a_host_that_is_far_longer_than_any_name_cannot_be_judged(label: str) -> None:
    uri = f"https://{label * 10_000}/path"
    with pytest.raises(ConditionError, match="host"):
        variants(uri)
    assert not UriGlobs(["https://*"]).match_all(uri)
    assert UriGlobs(["https://example.com/*"]).match_any(uri)


def test_a_uri_that_is_too_long_is_denied() -> None:
    uri = "file:///allowed/" + "a" * MAX_URI
    with pytest.raises(ConditionError):
        variants(uri)
    assert not ALLOWED.match_all(uri)
    assert SECRET.match_any(uri)


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("postgres://ann@db/*", "postgres://db/orders"),
        ("file://nas/share/*", "file:///share/a.txt"),
        ("https://example.com:*/*", "https://example.com/a"),
        ("https://stra\u00dfe.example/*", "https://strasse.example/a"),
    ],
)
def test_a_glob_allows_no_more_than_what_it_says(pattern: str, uri: str) -> None:
    assert not UriGlobs([pattern]).match_all(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/.good.example/",
        "https://evil.example/.good.example/x",
        "https://a@evil.example:1/.good.example/",
        "https://evil.example\\.good.example/",
        "https://evil.example?.good.example/",
        "https://evil.example#.good.example/",
        "https://evil.example%2f.good.example/",
    ],
)
def test_a_wildcard_in_a_host_does_not_reach_into_the_path(uri: str) -> None:
    globs = UriGlobs(["https://*.good.example/*"])
    assert globs.match_all("https://docs.good.example/a/b")
    assert globs.match_all("https://DOCS.good.example/a/../b")
    assert not globs.match_all(uri)


def test_a_uri_that_takes_too_long_to_read_is_denied() -> None:
    uri = "file:///allowed/" + "%20" * 4000
    assert not ALLOWED.match_all(uri)
    assert SECRET.match_any(uri)


def test_of_several_uris_one_that_cannot_be_judged_is_read_as_it_is_written() -> None:
    assert readings_of_all(["memo://a", "me mo://b", "MEMO://c"]) == {"memo://a", "me mo://b", "MEMO://c", "memo://c"}


def test_a_plain_uri_has_one_way_to_read_it() -> None:
    assert variants("file:///a/b.txt") == ("file:///a/b.txt",)
    assert variants("memo://notes/a?x=1") == ("memo://notes/a?x=1",)


@examples(100)
@given(st.text("/.:%25efA?\\", max_size=30))
def test_all_ways_to_read_any_text_are_found_and_few(text: str) -> None:
    found = variants(text)
    assert found[0] == text
    assert len(found) <= 60


@examples(100)
@given(st.text(st.characters(), max_size=20))
def test_everything_is_matched_by_a_star(text: str) -> None:
    assert UriGlobs(["*"]).match_all(text)


def test_a_template_is_judged_by_what_it_may_expand_to() -> None:
    assert ALLOWED.may_match("file:///{+path}")
    assert ALLOWED.may_match("FILE:///allowed/{path}")
    assert not ALLOWED.may_match("file:///secret/{path}")
    assert SECRET.covers("FILE:///secret/{path}")
    assert not SECRET.covers("file:///{+path}")


# --- what parsers make of it -----------------------------------------------------------------------------

TARGETS = (
    "https://internal.example/secret/a",
    "https://127.0.0.1/secret/a",
    "https://[::1]/secret/a",
    "https://b\u00fccher.example/secret/a",
    "file:///secret/a",
    "file:///C:/secret/a",
    "memo://private/secret/a",
)
DENIED = (
    "https://internal.example/*",
    "https://127.0.0.1/*",
    "https://[::1]/*",
    "https://xn--bcher-kva.example/*",
    "file:///secret/*",
    "file:///C:/secret/*",
    "memo://private/*",
)
# What parsers drop or strip, and other ways to write what stands in a URI
INSERTED = (
    *("\t", "\n", "\r", " ", "\x00", "\x1f", "\x7f", "%09", "%0a", "%20", "\u00ad", "\u200b", "\ufeff"),
    *("./", "../", "x/../", "%2e%2e/", "%2E/", ".%2e/", "x%2f../", "/", "\\", "..\\", "?", "#", "?/../", "%3f"),
    *("@", "user@", "user:word@", "a\\@", ":443", ":0443", ":", ".", "localhost", "C|", "%", "%2", "%25", "x"),
)
REPLACED = {
    "https:": ("HTTPS:", "https:/", "http:"),
    "://": (":", ":/", ":///", ":\\\\", ":/\\", "://localhost/"),
    "/": ("\\", "//", "/./", "%2f", "%252f", "/x/../"),
    ".": ("\u3002", "\uff0e", "%2e", "%252e"),
    "C:": ("C|", "c:", "C%3a"),
    "127.0.0.1": ("127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1."),
    "[::1]": ("[0:0:0:0:0:0:0:1]", "[0::0001]"),
    "b\u00fccher": ("B\u00dcCHER", "xn--bcher-kva", "bu\u0308cher", "b%C3%BCcher"),
    "e": ("E", "%65", "%2565", "\uff45", "\u24d4"),
    "i": ("I", "%69", "\uff49"),
    "s": ("%73", "\u017f"),
}


@st.composite
def rewritten_uris(draw: st.DrawFn) -> str:
    """Draw URIs that parsers may read as one of the targets."""
    uri = draw(st.sampled_from(TARGETS))
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            at = draw(st.integers(0, len(uri)))
            uri = uri[:at] + draw(st.sampled_from(INSERTED)) + uri[at:]
            continue
        old = draw(st.sampled_from([text for text in REPLACED if text in uri] or ["/"]))
        at = draw(st.sampled_from([found.start() for found in re.finditer(re.escape(old), uri)] or [0]))
        uri = uri[:at] + draw(st.sampled_from(REPLACED[old])) + uri[at + len(old) :]
    return uri


@pytest.fixture(scope="module")
def node_urls() -> Iterator[NodeUrls]:
    """Return Node's parser, in one process."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node, whose `URL` is to be compared with")
    with NodeUrls(node) as urls:
        yield urls


@given(rewritten_uris())
@examples(1000)
def test_whatever_a_python_parser_makes_of_a_uri_is_judged(uri: str) -> None:
    check_readings(uri, [*read_with_pydantic(uri), *read_with_urlsplit(uri)])


@pytest.mark.full
@given(rewritten_uris())
@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_node_makes_of_a_uri_is_judged(node_urls: NodeUrls, uri: str) -> None:
    readings = node_urls.read(uri)
    check_readings(uri, [*readings, *(each for reading in readings for each in read_with_urlsplit(reading))])


def check_readings(uri: str, readings: Sequence[str]) -> None:
    """Check that a URI is denied if one reading is, and allowed only if all of them are."""
    for each in DENIED:
        if any(map(Globs([each]).matches, readings)):
            assert UriGlobs([each]).match_any(uri), readings
        if UriGlobs([each]).match_all(uri):
            assert all(map(Globs([each, *in_unicode(each)]).matches, readings)), readings


def in_unicode(glob: str) -> list[str]:
    return [glob.replace("xn--bcher-kva", "b\u00fccher")]
