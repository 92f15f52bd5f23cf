"""What a group offers: every page, in the upstream's order, and no bad entry spoils the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from msgspec import Raw

from dynamic_mcp.errors import TimedOut
from dynamic_mcp.groups.catalog import (
    MAX_ENTRIES,
    MAX_PAGES,
    UNKNOWN,
    Ask,
    Catalog,
    Listing,
    ListKind,
    decode_catalog,
    encode_catalog,
    read_list,
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


async def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(take_turns())
        listing = await read_list(Pages({"tools": [tool(f"t{n}") for n in range(5000)]}), ListKind.TOOLS)
        other.cancel()

    assert list(listing.entries) == [f"t{n}" for n in range(5000)]
    assert turns > 5


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
    ("kind", "longest"),
    [(ListKind.TOOLS, 128), (ListKind.PROMPTS, 256), (ListKind.TEMPLATES, 2000), (ListKind.RESOURCES, 8192)],
)
async def test_an_entry_whose_name_is_too_long_is_left_out_and_that_is_said(kind: ListKind, longest: int) -> None:
    entries = [{kind.key: "a" * (longest + 1)}, {kind.key: "b" * longest}]

    async def ask(method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        return wire.members(json.dumps({kind.member: entries}).encode())

    listing = await read_list(ask, kind)

    assert list(listing.entries) == ["b" * longest]
    [complaint] = listing.complaints
    assert complaint.startswith(f"the {kind.noun} `aaaa")
    assert complaint.endswith(
        f"was left out: its {kind.key} has {longest + 1} characters, of which {longest} are allowed"
    )
    assert len(complaint) < 200


async def test_a_list_without_end_is_cut_and_little_is_said_of_many_bad_entries() -> None:
    entries = b",".join([b'{"name":"a%d"}' % number for number in range(MAX_ENTRIES)] + [b"{}"] * 3)
    catalog, complaints = await _read(b'{"tools":[' + entries + b"]}")
    assert len(catalog.tools) == MAX_ENTRIES
    assert complaints == (f"tools/list has {MAX_ENTRIES + 3} entries: those after {MAX_ENTRIES} were left out",)

    catalog, complaints = await _read({"tools": [tool("a")] * 1000})
    assert list(catalog.tools) == ["a"]
    assert (len(complaints), complaints[-1]) == (11, "989 more were left out")


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

    catalog = before.with_lists({ListKind.TOOLS: await read_list(Pages({"tools": [tool("new")]}), ListKind.TOOLS)})

    assert (list(catalog.tools), catalog.instructions, catalog.title) == (["new"], "Use me.", "Me")


async def test_what_the_question_raises_passes() -> None:
    async def ask(method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        raise TimedOut("up", "too late")

    with pytest.raises(TimedOut):
        await _read_from(ask)


# --- one line ------------------------------------------------------------------------------------------


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


def test_entries_keep_their_bytes_and_lists_their_complaints() -> None:
    odd = Raw(b'{"name":"a","n":1.10,"big":12345678901234567890123,"lone":"\\ud800", "space" : [ ]}')
    tools = Listing({"a": odd, "": Raw(b"{}")}, {"_meta": Raw(b'{ "x":1e0 }')}, ("one was left out", "another"))
    catalog = Catalog(
        {ListKind.TOOLS: tools, ListKind.PROMPTS: Listing(), ListKind.TEMPLATES: UNKNOWN},
        {"tools": Raw(b'{"listChanged":true}')},
        "Use it.\nWell.",
        "Title",
        {"serverInfo": Raw(b'{"name":"s", "icons":[]}'), "x-n": Raw(b"1.0")},
    )

    read = decode_catalog(wire.members(wire.encode(encode_catalog(catalog))))

    assert read == catalog
    assert bytes(read.tools["a"]) == bytes(odd)
    assert list(read.tools) == ["a", ""]
    assert read.complaint([ListKind.TOOLS]) == "one was left out; another"
    assert not read.knows([ListKind.RESOURCES])
    assert read.lists[ListKind.TEMPLATES].is_unknown


def test_a_catalog_of_a_version_that_kept_less_is_read() -> None:
    members = wire.members(wire.encode(encode_catalog(Catalog(instructions="Use it."))))
    del members["hello"]

    assert decode_catalog(members) == Catalog(instructions="Use it.")


# --- skills --------------------------------------------------------------------------------------------


def _skills(*uris: str) -> Catalog:
    return Catalog({ListKind.SKILLS: Listing({uri: Raw(b"{}") for uri in uris})})


@pytest.mark.parametrize(
    ("uri", "is_file"),
    [
        ("skill://a/SKILL.md", True),
        ("skill://a", True),
        ("skill://a/", True),
        ("skill://a/b/c.md", True),
        ("skill://a/b-c", True),
        ("skill://a-b/x.md", True),
        ("github://o/r/x/y/z.md", True),
        ("skill://a-c/x.md", False),
        ("skill://aa/x.md", False),
        ("skill://", False),
        ("skill://b/SKILL.md", False),
        ("github://o/r.md", False),
        ("", False),
    ],
)
def test_files_of_skills_are_those_below_their_directories(uri: str, is_file: bool) -> None:
    catalog = _skills("skill://a/b/SKILL.md", "skill://a/SKILL.md", "skill://a-b/SKILL.md", "github://o/r/x/SKILL.md")
    assert catalog.has_skill_file(uri) is is_file


@pytest.mark.parametrize("uri", ["SKILL.md", "/SKILL.md", "skill:/SKILL.md", "skill://SKILL.md", "skill://b/other"])
def test_a_skill_without_a_directory_takes_no_files_of_others(uri: str) -> None:
    assert not _skills(uri).has_skill_file("skill://b/c/SKILL.md")
    assert _skills(uri, "skill://b/SKILL.md").has_skill_file("skill://b/c.md")


def test_a_uri_with_a_million_segments_is_looked_up_like_any_other() -> None:
    """Each more prefix that is tried costs its length."""
    catalog = _skills("skill://a/SKILL.md")
    assert not catalog.has_skill_file("skill://b/" + "a/" * 1_000_000)
    assert catalog.has_skill_file("skill://a/" + "a/" * 1_000_000)
