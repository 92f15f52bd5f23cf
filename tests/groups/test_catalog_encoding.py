"""A catalog that was written as JSON is read as it was, byte for byte."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.groups.catalog import UNKNOWN, Catalog, Listing, ListKind
from dynamic_mcp.groups.catalog_encoding import decode_catalog, encode_catalog
from dynamic_mcp.mcp import wire


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
