"""What a group offers: every page, in the upstream's order, and no bad entry spoils the others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec import Raw

from dynamic_mcp.errors import TimedOut
from dynamic_mcp.groups.catalog import (
    MAX_DESCRIPTION,
    MAX_PAGES,
    Ask,
    Catalog,
    Listing,
    ListKind,
    one_line,
    read_list,
    read_or_keep,
)
from dynamic_mcp.mcp import wire
from tests.fakes import Json, tool


class Pages:
    """An upstream's answers to `tools/list`, by cursor; an unknown cursor gets the last one again."""

    def __init__(self, *pages: Json) -> None:
        self.pages = pages
        self.cursors: list[bytes] = []

    async def __call__(self, method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        assert method == "tools/list"
        self.cursors.append(bytes(params.get("cursor", b"")))
        page = self.pages[min(len(self.cursors), len(self.pages)) - 1]
        return wire.members(page if isinstance(page, bytes) else json.dumps(page).encode())


def holding(tools: Mapping[str, Raw], instructions: str = "", title: str = "") -> Catalog:
    return Catalog({ListKind.TOOLS: Listing(tools)}, instructions=instructions, title=title)


async def _read(*pages: Json) -> tuple[Catalog, tuple[str, ...]]:
    return await _read_from(Pages(*pages))


async def _read_from(ask: Ask) -> tuple[Catalog, tuple[str, ...]]:
    listing = await read_list(ask, ListKind.TOOLS)
    return Catalog({ListKind.TOOLS: listing}), listing.complaints


async def test_tools_are_kept_as_the_bytes_that_arrived_in_the_upstreams_order() -> None:
    page = b'{"tools":[{"name":"b" , "x":1e400},{"inputSchema":{},"name":"a"}]}'

    catalog, complaints = await _read(page)

    assert {name: bytes(entry) for name, entry in catalog.tools.items()} == {
        "b": b'{"name":"b" , "x":1e400}',
        "a": b'{"inputSchema":{},"name":"a"}',
    }
    assert list(catalog.tools) == ["b", "a"]
    assert complaints == ()


async def test_all_pages_are_read_with_the_cursor_as_it_came() -> None:
    pages = Pages(
        b'{"tools":[{"name":"a"}],"nextCursor":"\\u0031+/="}',
        {"tools": [tool("b")], "nextCursor": "2"},
        {"tools": [tool("c")]},
    )

    catalog, complaints = await _read_from(pages)

    assert list(catalog.tools) == ["a", "b", "c"]
    assert pages.cursors == [b"", b'"\\u0031+/="', b'"2"']
    assert complaints == ()


async def test_a_cursor_that_comes_again_ends_the_list() -> None:
    pages = Pages({"tools": [tool("a")], "nextCursor": "same"}, {"tools": [tool("b")], "nextCursor": "same"})

    catalog, complaints = await _read_from(pages)

    assert list(catalog.tools) == ["a", "b"]
    assert len(pages.cursors) == 2
    assert complaints


async def test_a_list_without_an_end_is_cut() -> None:
    pages = Pages(*({"tools": [tool(f"t{n}")], "nextCursor": str(n)} for n in range(10 * MAX_PAGES)))

    catalog, complaints = await _read_from(pages)

    assert len(catalog.tools) == len(pages.cursors) <= MAX_PAGES
    assert complaints


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(b"{}", id="no name"),
        pytest.param(b'{"name":""}', id="an empty name"),
        pytest.param(b'{"name":5}', id="a name that is no string"),
        pytest.param(b"null", id="null"),
        pytest.param(b'["name"]', id="a list"),
        pytest.param(b'{"name":"good","title":"again"}', id="a name that was there"),
    ],
)
async def test_a_bad_entry_is_left_out_by_itself(entry: bytes) -> None:
    catalog, complaints = await _read(b'{"tools":[{"name":"good"},' + entry + b',{"name":"also"}]}')

    assert {name: bytes(each) for name, each in catalog.tools.items()} == {
        "good": b'{"name":"good"}',
        "also": b'{"name":"also"}',
    }
    assert len(complaints) == 1


@pytest.mark.parametrize("tools", [b"null", b"{}", b'"tools"', b"3"])
async def test_a_list_that_is_none_is_complained_of(tools: bytes) -> None:
    catalog, complaints = await _read(b'{"tools":' + tools + b"}")

    assert catalog.tools == {}
    assert len(complaints) == 1


async def test_reading_again_keeps_what_the_upstream_said_of_itself() -> None:
    before = holding({"old": Raw(b"{}")}, instructions="Use me.", title="Me")

    listing, was_read = await read_or_keep(Pages({"tools": [tool("new")]}), ListKind.TOOLS, before)
    catalog = before.with_lists({ListKind.TOOLS: listing})

    assert was_read
    assert (list(catalog.tools), catalog.instructions, catalog.title) == (["new"], "Use me.", "Me")


async def test_what_the_question_raises_passes() -> None:
    async def ask(method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        raise TimedOut("up", "too late")

    with pytest.raises(TimedOut):
        await _read_from(ask)


# --- one line ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two\n lines\r\n", "two lines"),
        ("bell\x07 and \x1b[31mred\x1b[0m", "bell and [31mred [0m"),
        ("a\u2028b\u202ec\u200bd", "a b c d"),
        ("", ""),
        ("\n\t", ""),
        ("naïve 日本", "naïve 日本"),
    ],
)
def test_foreign_text_fits_into_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_long_text_is_cut_to_fit() -> None:
    line = one_line("word " * 1000)

    assert len(line) <= MAX_DESCRIPTION
    assert line.endswith("word…")


@pytest.mark.parametrize(
    ("title", "instructions", "summary"),
    [
        ("My Server", "Does things.", "My Server"),
        ("", "Does things. Also others.", "Does things"),
        ("", "Does things.\n\nThen others.", "Does things"),
        ("", "Does things.\nThen others.", "Does things"),
        ("", "Version 1.5 of things", "Version 1.5 of things"),
        ("", "\n\n  Does things!  ", "Does things!"),
        (" \n", "", ""),
        ("", "", ""),
    ],
)
def test_a_summary_is_the_title_or_the_first_sentence(title: str, instructions: str, summary: str) -> None:
    assert Catalog({}, instructions=instructions, title=title).summary == summary
