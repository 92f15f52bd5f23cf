"""What a server answers is text on the page: bounded, and a file by its first bytes alone."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.ui.byte_budget import ByteBudget, measure
from dynamic_mcp.ui.content import LARGEST_IMAGE, MOST_BLOCKS, Block, build_blocks, read_download, read_pieces
from dynamic_mcp.ui.json_tree import Node, build_tree, parse_json

Json = Any  # JSON that a test writes
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def blocks_of(result: Json, space: int = 20_000) -> list[Block]:
    pieces = read_pieces(Raw(wire.encode(result)))
    return [block for _, block in build_blocks(pieces, ByteBudget(space))]


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def file(content: bytes, kind: str = "image", mime: str = "image/png") -> Json:
    return {"type": kind, "data": b64encode(content).decode(), "mimeType": mime}


def download(block: Json) -> tuple[bytes, str, str]:
    found = read_download(read_pieces(Raw(wire.encode({"content": [block]})))[0])
    return found.content, found.type, found.suffix


def nodes_of(node: Node) -> list[Node]:
    return [node, *(each for child in node.children for each in nodes_of(child))]


def test_structured_content_is_a_tree_and_the_text_that_repeats_it_is_not_shown() -> None:
    found = blocks_of({"content": [text('{"a": 1}'), text("more")], "structuredContent": {"a": 1}})

    assert [(each.kind, each.label) for each in found] == [("json", "Structured content"), ("text", "Text")]


def test_text_that_is_json_is_a_tree_and_other_text_stays_text() -> None:
    kinds = [each.kind for each in blocks_of({"content": [text("[1]"), text("{no}"), text("12"), text('"x"')]})]

    assert kinds == ["json", "text", "text", "text"]


def test_numbers_keep_their_digits() -> None:
    tree = blocks_of({"content": [text('{"a": 12345678901234567890.10, "b": NaN}')]})[0].tree

    assert tree is not None
    assert [(each.kind, each.text) for each in tree.children] == [("num", "12345678901234567890.10"), ("num", "NaN")]


@pytest.mark.parametrize(
    "content",
    [PNG, b"\xff\xd8\xff" + bytes(9), b"GIF89a" + bytes(9), b"RIFF1234WEBP" + bytes(9)],
)
def test_a_small_image_is_shown_by_its_first_bytes(content: bytes) -> None:
    [block] = blocks_of({"content": [file(content, mime="text/html")]})

    assert block.kind == "image"
    assert block.data_url.startswith(("data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;"))


@pytest.mark.parametrize(
    ("content", "mime"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml"),
        (b"<html><script>alert(1)</script>", "image/png"),
        (b"", "image/png"),
        (PNG + bytes(LARGEST_IMAGE), "image/png"),
    ],
)
def test_any_other_image_is_a_file_to_save(content: bytes, mime: str) -> None:
    [block] = blocks_of({"content": [file(content, mime=mime)]})

    assert (block.kind, block.data_url, block.size) == ("file", "", len(content))


def test_a_file_is_saved_as_what_its_first_bytes_are() -> None:
    assert download(file(PNG, mime="text/html"))[1:] == ("image/png", "png")
    assert download(file(b"<svg>", mime="image/svg+xml")) == (b"<svg>", "application/octet-stream", "bin")
    assert download(file(b"RIFF1234WAVE", "audio", "audio/wav"))[1:] == ("audio/wav", "wav")
    assert download(text("<b>"))[1:] == ("text/plain; charset=utf-8", "txt")
    assert download({"type": "resource", "resource": {"uri": "x:y", "blob": "AAE="}})[0] == b"\0\1"
    assert download({"type": "image", "data": "no base64"})[0] == b"no base64"


def test_links_and_resources_have_their_uris() -> None:
    link = {"type": "resource_link", "uri": "demo://1", "name": "one", "title": "One"}
    found = blocks_of({"content": [link, {"type": "resource", "resource": {"uri": "demo://2", "text": "two"}}]})

    assert [(each.kind, each.title, each.uri) for each in found] == [
        ("link", "One", "demo://1"),
        ("text", "", "demo://2"),
    ]


def test_the_page_of_an_app_is_text() -> None:
    page = {"uri": "ui://app/view", "mimeType": "text/html;profile=mcp-app", "text": "<script>alert(1)</script>"}
    [block] = blocks_of({"contents": [page]})

    assert (block.kind, block.text, block.is_app) == ("text", page["text"], True)


def test_messages_of_a_prompt_have_their_roles() -> None:
    messages = [{"role": "user", "content": text("hi")}, {"role": "assistant", "content": [text("ho"), file(PNG)]}]
    found = [*build_blocks(read_pieces(Raw(wire.encode({"messages": messages}))), ByteBudget(9000))]

    assert [(role, block.kind) for role, block in found] == [
        ("user", "text"),
        ("assistant", "text"),
        ("assistant", "image"),
    ]


@pytest.mark.parametrize(
    "result",
    [
        {"content": [text("\u202e" * 1_000_000)]},
        {"content": [text("<" * 1_000_000)]},
        {"content": [text("x")] * 5000},
        {"structuredContent": {f"<{number}>" * 50: "&" * 400 for number in range(3000)}},
        {"structuredContent": [[[number] for number in range(1000)]] * 100},
        {"content": [{"type": "resource_link", "uri": "x:" + "\u202e" * 1900, "name": "<" * 9000}] * 300},
        {"content": [{"type": "\u202e" * 9000, "any": "<" * 100_000}]},
    ],
)
def test_an_answer_of_any_size_takes_a_bounded_space(result: Json) -> None:
    found = blocks_of(result, 20_000)
    said = [*(each.text for each in found), *(each.title for each in found), *(each.uri for each in found)]
    trees = [node for each in found if each.tree is not None for node in nodes_of(each.tree)]

    assert 0 < len(found) <= MOST_BLOCKS + 1
    assert sum(map(measure, said)) + sum(measure(each.key) + measure(each.text) + 120 for each in trees) < 22_000


def test_what_does_not_fit_is_said_to_be_cut() -> None:
    assert blocks_of({"content": [text("x" * 100_000)]})[0].is_cut
    assert blocks_of({"structuredContent": [list(range(1000))]})[0].is_cut
    assert not blocks_of({"content": [text("x"), text("[1]")]})[0].is_cut


def test_a_tree_that_is_deeper_than_the_page_shows_says_how_much_is_left_out() -> None:
    value: Json = "x"
    for _ in range(50):
        value = [value]
    deepest = nodes_of(build_tree(value, ByteBudget(20_000)))[-1]

    assert deepest.left_out == 1
    assert blocks_of({"content": [text("[" * 100_000 + "]" * 100_000)]})[0].kind == "text"
    with pytest.raises(ValueError, match="deeply"):
        parse_json("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize("result", [{"content": 3}, {"content": ["x"]}, {"messages": {}}, {"contents": 1}])
def test_a_malformed_answer_is_refused(result: Json) -> None:
    with pytest.raises(wire.Malformed):
        blocks_of(result)


def test_odd_members_of_a_block_are_shown_as_far_as_they_can_be() -> None:
    odd = [{"type": 3}, {}, {"type": "text"}, {"type": "image", "data": 7}, {"type": "resource", "resource": []}]

    assert [each.kind for each in blocks_of({"content": odd})] == ["json", "json", "text", "file", "text"]
