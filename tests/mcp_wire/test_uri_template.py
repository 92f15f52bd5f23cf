"""A template matches every URI that it can produce (RFC 6570) and few others, and never takes long."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.mcp.uri_template import expand, matches, variables
from tests.examples import examples

# The expansions of RFC 6570, section 3.2, with its variables: template, URI.
EXPANSIONS = [
    ("{var}", "value"),
    ("{hello}", "Hello%20World%21"),
    ("{x,y}", "1024,768"),
    ("{x,hello,y}", "1024,Hello%20World%21,768"),
    ("map?{x,y}", "map?1024,768"),
    ("?{x,empty}", "?1024,"),
    ("?{undef,y}", "?768"),
    ("O{empty}X", "OX"),
    ("O{undef}X", "OX"),
    ("{var:3}", "val"),
    ("{list}", "red,green,blue"),
    ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
    ("{+hello}", "Hello%20World!"),
    ("{+base}index", "http://example.com/home/index"),
    ("here?ref={+path}", "here?ref=/foo/bar"),
    ("up{+path}{var}/here", "up/foo/barvalue/here"),
    ("{+path:6}/here", "/foo/b/here"),
    ("{#path,x}/here", "#/foo/bar,1024/here"),
    ("{#keys*}", "#semi=;,dot=.,comma=,"),
    ("X{.var}", "X.value"),
    ("X{.x,y}", "X.1024.768"),
    ("X{.list*}", "X.red.green.blue"),
    ("X{.keys*}", "X.semi=%3B.dot=..comma=%2C"),
    ("{/var,x}/here", "/value/1024/here"),
    ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
    ("{/var,empty}", "/value/"),
    ("{/keys*}", "/semi=%3B/dot=./comma=%2C"),
    ("{;x,y,empty}", ";x=1024;y=768;empty"),
    ("{;hello:5}", ";hello=Hello"),
    ("{;keys*}", ";semi=%3B;dot=.;comma=%2C"),
    ("{?x,y,empty}", "?x=1024&y=768&empty="),
    ("{?keys}", "?keys=semi,%3B,dot,.,comma,%2C"),
    ("{&x,y,empty}", "&x=1024&y=768&empty="),
    ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
]


@pytest.mark.parametrize(("template", "uri"), EXPANSIONS)
def test_a_template_matches_what_it_expands_to(template: str, uri: str) -> None:
    assert matches(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("full://item/{id}", "full://item/7"),
        ("full://item/{id}", "full://item/"),
        ("full://{a}/{b}/{c}", "full://1/2/3"),
        ("file:///{+path}", "file:///a/b/c.txt"),
        ("files{/path*}{?rev}", "files/a/b/c?rev=7"),
        ("files{/path*}{?rev}", "files"),
        ("{a}{b}{c}", "abc"),
        ("db://{table}.{ext}", "db://users.old.csv"),
        ("plain://no-expression", "plain://no-expression"),
    ],
)
def test_templates_as_servers_write_them_match_their_uris(template: str, uri: str) -> None:
    assert matches(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("full://item/{id}", "full://item"),
        ("full://item/{id}", "full://item/7/8"),
        ("full://item/{id}", "full://item/7?x=1"),
        ("full://item/{id}", "other://item/7"),
        ("full://item/{id}", " full://item/7"),
        ("full://{a}/b", "full://x/b/c"),
        ("X{.var}", "Xvalue"),
        ("files{/path*}", "filesystem"),
        ("{?x}", "x=1"),
        ("{var}", "a/b"),
        ("plain://no-expression", "plain://no-expression/more"),
        ("plain://no-expression", ""),
    ],
)
def test_what_a_template_cannot_make_does_not_match(template: str, uri: str) -> None:
    assert not matches(template, uri)


@pytest.mark.parametrize("template", ["", "a{b", "a}b", "{a{b}}", "{}{", "}{", "{a}}"])
def test_what_is_no_template_matches_nothing(template: str) -> None:
    assert not matches(template, template)
    assert not matches(template, "a")


values = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(["", "a", "://", "/x/", "-"]), values), max_size=6), values)
def test_any_values_that_fill_a_template_make_a_uri_that_matches(parts: list[tuple[str, str]], end: str) -> None:
    literal_end = quote(end, safe="")
    template = "".join(f"{literal}{{v{n}}}" for n, (literal, _) in enumerate(parts)) + literal_end
    uri = "".join(literal + quote(value, safe="") for literal, value in parts) + literal_end

    assert matches(template, uri) == bool(template)


@examples(100)
@given(st.text("{}+#./;?&a*,:", max_size=40), st.text("{}+#./;?&a*,:", max_size=40))
def test_no_template_and_no_uri_raises(template: str, uri: str) -> None:
    assert isinstance(matches(template, uri), bool)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{+a}" * 400 + "!", "a" * 1999),
        ("{+a}x" * 300, "x" * 1999),
        ("{a}" * 600 + "{", "a" * 1999),
        ("{" * 1999, "a"),
        ("{/a*}" * 390, "/" * 1999),
        ("{a,b,c,d}," * 190, "," * 1999),
    ],
)
def test_hostile_templates_are_answered_like_any_other(template: str, uri: str) -> None:
    # a matcher that tries every way through would never come back from these
    assert isinstance(matches(template, uri), bool)


def test_what_is_too_long_to_be_looked_at_does_not_match() -> None:
    assert not matches("{+a}", "a" * 100_000)
    assert not matches("a" * 100_000, "a" * 100_000)


# --- making URIs: the examples of RFC 6570, section 3.2, whose values are texts -----------------------------

VALUES = {
    "var": "value",
    "hello": "Hello World!",
    "half": "50%",
    "empty": "",
    "x": "1024",
    "y": "768",
    "path": "/foo/bar",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("{x,y}", "1024,768"),
        ("{var:3}", "val"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{+path}/here", "/foo/bar/here"),
        ("{#x,hello,y}", "#1024,Hello%20World!,768"),
        ("X{.x,y}", "X.1024.768"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{/var,empty}", "/value/"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{?undef}", ""),
    ],
)
def test_a_template_makes_the_uri_that_the_rfc_says(template: str, uri: str) -> None:
    assert expand(template, VALUES) == uri


@pytest.mark.parametrize(
    ("template", "names"),
    [("a://{x}/{+path}{?x,y*}{var:3}", ["x", "path", "y", "var"]), ("a://b", []), ("a://{", []), ("{,}", [])],
)
def test_the_variables_of_a_template_are_named_once_in_order(template: str, names: list[str]) -> None:
    assert variables(template) == names


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_made_uri_matches_its_template(name: str, value: str) -> None:
    template = "x://host/{name}{?q}"

    assert matches(template, expand(template, {"name": name, "q": value}))
