"""What a server answered, in blocks that a page can show: text, JSON as a tree, small images, and downloads.

It is text, whatever it says it is: no HTML and no SVG of a server is ever rendered, and a file is offered by what its
first bytes are, not by what the server calls it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.results import repeats
from dynamic_mcp.ui.byte_budget import ByteBudget
from dynamic_mcp.ui.json_tree import Node, build_tree, parse_json

MOST_BLOCKS = 40
# An image that is larger is offered as a file.
LARGEST_IMAGE = 100_000
# The images of one page, together.
_ALL_IMAGES = 300_000
_LONGEST_TEXT = 12_000
_LONGEST_NAME = 300
_LARGEST_JSON = 2_000_000
# The HTML of a block without its texts, in bytes.
_FRAME = 300
_OCTETS = "application/octet-stream"

BlockKind = Literal["text", "json", "image", "file", "link", "note"]

# How the files begin that are offered by their type, each with its name's end.
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png", "png"),
    (b"\xff\xd8\xff", "image/jpeg", "jpg"),
    (b"GIF87a", "image/gif", "gif"),
    (b"GIF89a", "image/gif", "gif"),
    (b"%PDF-", "application/pdf", "pdf"),
    (b"OggS", "audio/ogg", "ogg"),
    (b"fLaC", "audio/flac", "flac"),
    (b"ID3", "audio/mpeg", "mp3"),
    (b"\xff\xfb", "audio/mpeg", "mp3"),
    (b"PK\x03\x04", "application/zip", "zip"),
)


class Block(Struct, frozen=True):
    """A part of an answer. `label` says what it is, and `title` how the server calls it.

    `part` is the number under which all of it can be downloaded; None where there is nothing more. `uri` is that of a
    resource, `data_url` an image.
    """

    kind: BlockKind
    label: str
    title: str = ""
    text: str = ""
    tree: Node | None = None
    data_url: str = ""
    uri: str = ""
    size: int = 0
    part: int | None = None
    is_cut: bool = False
    is_app: bool = False


class Download(Struct, frozen=True):
    """A file: its content, the type that its content has, and the end of its name."""

    content: bytes
    type: str
    suffix: str


class Piece(Struct, frozen=True):
    """A content block of MCP and who said it; `role` is that of a message of a prompt."""

    members: Mapping[str, Raw]
    role: str = ""


def read_pieces(result: Raw) -> list[Piece]:
    """Return the content of the result of a tool, a resource or a prompt, in order. Raises Malformed."""
    found = wire.members(result)
    pieces: list[Piece] = []
    structured = found.get("structuredContent", wire.ABSENT)
    if len(structured) and bytes(structured) != b"null":
        pieces.append(Piece({"type": Raw(b'"structured"'), "value": structured}))
    blocks = _elements(found.get("content"))
    pieces += [Piece(wire.members(each)) for each in blocks if not (len(structured) and repeats(each, structured))]
    pieces += [Piece({"type": Raw(b'"resource"'), "resource": each}) for each in _elements(found.get("contents"))]
    for message in _elements(found.get("messages")):
        role, content = wire.text(wire.member(message, "role")) or "?", wire.member(message, "content")
        blocks = _elements(content) if bytes(content).lstrip().startswith(b"[") else [content]
        pieces += [Piece(wire.members(each), role) for each in blocks]
    return pieces


def build_blocks(pieces: list[Piece], space: ByteBudget) -> Iterator[tuple[str, Block]]:
    """Yield what a page shows of the pieces, each with its role."""
    images = ByteBudget(_ALL_IMAGES)
    for number, piece in enumerate(pieces):
        if number >= MOST_BLOCKS or not space.spend(_FRAME):
            yield "", Block("note", "", text=f"{len(pieces) - number:,} more parts are in the download")
            return
        role, _ = space.take(piece.role, _LONGEST_NAME)
        yield role, _build_block(number, piece.members, space, images)


def read_download(piece: Piece) -> Download:
    """Return a piece as a file."""
    members = piece.members
    match wire.text(members.get("type")):
        case "structured":
            return Download(bytes(members["value"]), "application/json", "json")
        case "text":
            return _text_file(wire.text(members.get("text")) or "")
        case "image" | "audio":
            return _binary_file(members, "data")
        case "resource":
            inner = _members(members.get("resource"))
            return _binary_file(inner, "blob") if "blob" in inner else _text_file(wire.text(inner.get("text")) or "")
        case _:
            return Download(wire.encode(members), "application/json", "json")


def recognize(content: bytes) -> tuple[str, str]:
    """Return the type of a file by how it begins, and the end of its name."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp", "webp"
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "audio/wav", "wav"
    found = ((type_, suffix) for start, type_, suffix in _BEGINNINGS if content.startswith(start))
    return next(found, (_OCTETS, "bin"))


def _build_block(number: int, members: Mapping[str, Raw], space: ByteBudget, images: ByteBudget) -> Block:
    match wire.text(members.get("type")):
        case "structured":
            return _show_json(number, bytes(members["value"]), "Structured content", space) or _show_text(
                number, bytes(members["value"]).decode("utf-8", "replace"), "Structured content", space
            )
        case "text":
            return _show_text_or_json(number, wire.text(members.get("text")) or "", "Text", space)
        case "image":
            return _show_file(number, members, "data", "Image", space, images)
        case "audio":
            return _show_file(number, members, "data", "Audio", space, images)
        case "resource_link":
            return _show_link(members, space)
        case "resource":
            return _show_resource(number, _members(members.get("resource")), space, images)
        case _:
            data = wire.encode(members)
            found = _show_json(number, data, "Content of another type", space)
            return found or _show_text(number, data.decode("utf-8", "replace"), "Content of another type", space)


def _show_text_or_json(number: int, text: str, label: str, space: ByteBudget, **more: str) -> Block:
    found = _show_json(number, text.encode("utf-8", "replace"), label, space, **more) if _may_be_json(text) else None
    return found or _show_text(number, text, label, space, **more)


def _may_be_json(text: str) -> bool:
    stripped = text.strip()[:1], text.rstrip()[-1:]
    return stripped in (("{", "}"), ("[", "]")) and len(text) <= _LARGEST_JSON


def _show_json(
    number: int, data: bytes, label: str, space: ByteBudget, title: str = "", uri: str = ""
) -> Block | None:
    if len(data) > _LARGEST_JSON:
        return None
    try:
        value = parse_json(data)
    except ValueError:
        return None
    tree = build_tree(value, space)
    return Block("json", label, title, tree=tree, uri=uri, size=len(data), part=number, is_cut=not tree.is_whole)


def _show_text(number: int, text: str, label: str, space: ByteBudget, title: str = "", uri: str = "") -> Block:
    shown, is_whole = space.take(text, _LONGEST_TEXT)
    size = len(text.encode("utf-8", "replace"))
    return Block("text", label, title, shown, uri=uri, size=size, part=number, is_cut=not is_whole)


def _show_link(members: Mapping[str, Raw], space: ByteBudget) -> Block:
    name = wire.text(members.get("title")) or wire.text(members.get("name")) or ""
    title, _ = space.take(name, _LONGEST_NAME)
    text, _ = space.take(wire.text(members.get("description")) or "", 2 * _LONGEST_NAME)
    return Block("link", "Resource", title, text, uri=_take_uri(members, space))


def _show_resource(number: int, inner: Mapping[str, Raw], space: ByteBudget, images: ByteBudget) -> Block:
    uri = _take_uri(inner, space)
    if "blob" in inner:
        block = _show_file(number, inner, "blob", "Resource", space, images)
    else:
        block = _show_text_or_json(number, wire.text(inner.get("text")) or "", "Resource", space)
    is_app = uri.startswith("ui://") or "html" in (wire.text(inner.get("mimeType")) or "")
    return replace(block, uri=uri, is_app=is_app)


def _take_uri(members: Mapping[str, Raw], space: ByteBudget) -> str:
    """Return the URI of a resource; an empty text where there is no space for all of it."""
    uri = wire.text(members.get("uri")) or ""
    return space.take(uri, len(uri))[0] if len(uri) <= 2000 else ""


def _show_file(
    number: int, members: Mapping[str, Raw], member: str, label: str, space: ByteBudget, images: ByteBudget
) -> Block:
    content = _decode(members, member)
    declared, _ = space.take(wire.text(members.get("mimeType")) or "", _LONGEST_NAME)
    if content is None:
        return Block("note", label, declared, f"{label} that is no valid base64", part=number)
    type_, _ = recognize(content)
    if type_.startswith("image/") and len(content) <= LARGEST_IMAGE and images.spend(len(content)):
        url = f"data:{type_};base64,{b64encode(content).decode()}"
        return Block("image", label, declared, data_url=url, size=len(content), part=number)
    return Block("file", label, declared, size=len(content), part=number)


def _binary_file(members: Mapping[str, Raw], member: str) -> Download:
    content = _decode(members, member)
    if content is None:
        return _text_file(wire.text(members.get(member)) or "")
    return Download(content, *recognize(content))


def _text_file(text: str) -> Download:
    return Download(text.encode("utf-8", "replace"), "text/plain; charset=utf-8", "txt")


def _decode(members: Mapping[str, Raw], member: str) -> bytes | None:
    try:
        return b64decode(wire.text(members.get(member)) or "", validate=True)
    except (binascii.Error, ValueError):
        return None


def _members(data: Raw | None) -> Mapping[str, Raw]:
    try:
        return wire.members(data or wire.EMPTY_OBJECT)
    except wire.Malformed:
        return {}


def _elements(data: Raw | None) -> list[Raw]:
    return [] if data is None or not len(data) or bytes(data) == b"null" else wire.elements(data)
