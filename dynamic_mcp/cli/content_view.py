"""Prints the content of tools, resources and prompts: text as text, everything else into files."""

from __future__ import annotations

import binascii
import contextlib
import json
import mimetypes
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Raw

from dynamic_mcp.cli.output import Output
from dynamic_mcp.errors import ProtocolViolation
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import EMPTY_ARRAY
from dynamic_mcp.tools.results import repeats


@contextlib.contextmanager
def reject_malformed(group: str) -> Iterator[None]:
    """Raise ProtocolViolation if content shown in this context is malformed."""
    try:
        yield
    except wire.Malformed as exc:
        raise ProtocolViolation(
            group, f"the server's answer is malformed: {exc}", hint="--json prints it unchanged"
        ) from exc


def show_result(out: Output, result: Raw, save: str | None, *, is_text: bool = False) -> None:
    """Print the result of a tool: structured content, then each content block that does not repeat it.

    With `is_text`, only the blocks are printed: the structured content has the same information. So it has if it is
    an object with the text as its one member, as many libraries send it.
    """
    found = wire.members(result)
    structured = None if is_text else found.get("structuredContent")
    if structured is not None and _only_wraps(structured, [*texts(result)]):
        structured = None
    if structured is not None and len(structured):
        out.print_json(bytes(structured))
    for block in wire.elements(found.get("content", EMPTY_ARRAY)):
        if structured is None or not repeats(block, structured):
            _show(out, wire.members(block), save)


def show_contents(out: Output, result: Raw, save: str | None) -> None:
    """Print the contents of a resource."""
    for content in wire.elements(wire.member(result, "contents") or EMPTY_ARRAY):
        _show_resource(out, wire.members(content), save)


def show_messages(out: Output, result: Raw, save: str | None) -> None:
    """Print the messages of a prompt, each under its role."""
    for message in wire.elements(wire.member(result, "messages") or EMPTY_ARRAY):
        out.print_text(f"[{wire.text(wire.member(message, 'role')) or '?'}]")
        content = wire.member(message, "content")
        for block in wire.elements(content) if bytes(content).startswith(b"[") else [content]:
            _show(out, wire.members(block), save)


def texts(result: Raw) -> Iterator[str]:
    """Yield the texts of a tool's result."""
    for block in wire.elements(wire.member(result, "content") or EMPTY_ARRAY):
        yield wire.text(wire.member(block, "text")) or ""


def _only_wraps(structured: Raw, shown: list[str]) -> bool:
    try:
        values = list(json.loads(bytes(structured)).values())
    except (AttributeError, ValueError, RecursionError):  # no object, or none that is known to be one
        return False
    return len(shown) == 1 and values == shown


def save_file(data: bytes, suffix: str, save: str | None) -> str:
    """Write data to a new file, in the directory `save` or else in a temporary one; return the file's name."""
    folder = Path(save) if save else Path(tempfile.mkdtemp(prefix="dynamic-mcp-"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=folder, prefix="result-", suffix=suffix, delete=False) as file:
        file.write(data)
    return file.name


def _show(out: Output, block: Mapping[str, Raw], save: str | None) -> None:
    match wire.text(block.get("type")):
        case "text":
            out.print_text(wire.text(block.get("text")) or "")
        case "image" | "audio":
            _save(out, block, "data", save)
        case "resource":
            _show_resource(out, wire.members(block.get("resource", wire.EMPTY_OBJECT)), save)
        case "resource_link":
            name = wire.text(block.get("title")) or wire.text(block.get("name")) or ""
            out.print_text(f"{wire.text(block.get('uri'))} {name}".rstrip())
        case _:
            out.print_json(dict(block))


def _show_resource(out: Output, content: Mapping[str, Raw], save: str | None) -> None:
    if "blob" in content:
        _save(out, content, "blob", save)
    else:
        out.print_text(wire.text(content.get("text")) or "")


def _save(out: Output, content: Mapping[str, Raw], member: str, save: str | None) -> None:
    kind = (wire.text(content.get("mimeType")) or "application/octet-stream").partition(";")[0].strip()
    try:
        data = b64decode(wire.text(content.get(member)) or "", validate=True)
    except binascii.Error:
        out.say(f"{kind}: not valid base64, nothing saved")
        return
    name = save_file(data, mimetypes.guess_extension(kind) or ".bin", save)
    out.say(f"{kind}, {len(data)} bytes, saved as {name}")
