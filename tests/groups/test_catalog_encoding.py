"""A catalog that was written as JSON is read as it was, byte for byte."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.catalog_encoding import decode_catalog, encode_catalog
from dynamic_mcp.mcp import wire


def test_entries_keep_their_bytes_and_lists_their_complaints() -> None:
    odd = Raw(b'{"name":"a","n":1.10,"big":12345678901234567890123,"lone":"\\ud800", "space" : [ ]}')
    tools = Listing({"a": odd, "": Raw(b"{}")}, {"_meta": Raw(b'{ "x":1e0 }')}, ("one was left out", "another"))
    catalog = Catalog(
        {ListKind.TOOLS: tools, ListKind.PROMPTS: Listing()},
        {"tools": Raw(b'{"listChanged":true}')},
        "Use it.\nWell.",
        "Title",
    )

    read = decode_catalog(wire.members(wire.encode(encode_catalog(catalog))))

    assert read == catalog
    assert bytes(read.tools["a"]) == bytes(odd)
    assert list(read.tools) == ["a", ""]
    assert read.complaint([ListKind.TOOLS]) == "one was left out; another"
    assert not read.knows([ListKind.RESOURCES])
