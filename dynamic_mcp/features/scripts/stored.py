"""Reads stored scripts: files `NAME.py` of one folder, which begin with front matter in comments.

A file that is invalid is left out by itself, with a complaint. Hidden files, and files that begin with `_`, are no
scripts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line, os_reason
from dynamic_mcp.tools.schema import find_schema_error
from dynamic_mcp.upstream.front_matter import BadFrontMatter, parse_front_matter

MOST_SCRIPTS = 500
LARGEST_BYTES = 1_000_000
_SUFFIX = ".py"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FRONT_MATTER = re.compile(r"(?:#![^\n]*\n)?# ---[ \t]*\n((?:#[^\n]*\n)*?)# ---[ \t]*(?:\n|\Z)")
_KEYS = ("description", "input")
_LONGEST_FRONT_MATTER = 64_000
_LONGEST_DESCRIPTION = 2000
_NO_INPUT: Mapping[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}
_DIGITS = 32


class StoredScript(Struct, frozen=True):
    """A script: its name, its text, and its `definition` as a tool, which has the `digest` of the text."""

    name: str
    code: str
    digest: str
    definition: Raw


class StoredScripts(Struct, frozen=True):
    """The scripts of a folder by their names, and what is wrong with the other files."""

    scripts: Mapping[str, StoredScript] = {}
    complaints: tuple[str, ...] = ()


class BadScript(ValueError):
    """A file that is no script that can be used."""


def read_folder(folder: Path) -> StoredScripts:
    """Return the scripts in a folder. Raises OSError if it cannot be read. Blocks."""
    scripts: dict[str, StoredScript] = {}
    complaints: list[str] = []
    files = list_files(folder)
    for file in files[:MOST_SCRIPTS]:
        try:
            script = read_script(file)
        except BadScript as exc:
            complaints.append(f"`{one_line(file.name)}` is left out: {exc}")
        else:
            scripts[script.name] = script
    if len(files) > MOST_SCRIPTS:
        complaints.append(f"there are more than {MOST_SCRIPTS} scripts: the others are left out")
    return StoredScripts(scripts, tuple(complaints))


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be scripts, by their names. Raises OSError. Blocks."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(_SUFFIX) and file.name[0] not in "._")


def stamps_of(folder: Path) -> object:
    """Return what differs as soon as a script is changed, added or removed. Raises OSError. Blocks."""
    return [(file.name, _stamp(file)) for file in list_files(folder)]


def file_of(folder: Path, name: str) -> Path:
    """Return the file of the script with this name. Raises BadScript."""
    if not _NAME.fullmatch(name):
        raise BadScript("its name has other characters than letters, digits, `-` and `_`")
    return folder / f"{name}{_SUFFIX}"


def read_script(file: Path) -> StoredScript:
    """Return the script in a file. Raises BadScript. Blocks."""
    name = file.name.removesuffix(_SUFFIX)
    file_of(file.parent, name)
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(file.parent)):
        raise BadScript("it is a link out of the folder")
    try:
        if not S_ISREG(file.stat().st_mode):  # opening a pipe would wait
            raise BadScript("it is no regular file")
        with file.open("rb") as opened:
            data = opened.read(LARGEST_BYTES + 1)
    except OSError as exc:
        raise BadScript(f"it cannot be read: {os_reason(exc)}") from exc
    if len(data) > LARGEST_BYTES:
        raise BadScript(f"it has more than {LARGEST_BYTES} bytes")
    try:
        code = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as exc:
        raise BadScript("it is not UTF-8") from exc
    digest = sha256(data).hexdigest()[:_DIGITS]
    return StoredScript(name, code, digest, define(name, code, digest))


def read_digest(definition: Raw) -> str:
    """Return the digest of the text of the script that is defined like this; empty if it has none."""
    words = wire.text(wire.member(definition, "inputSchema", "$comment")) or ""
    return words.rpartition(" ")[2]


def define(name: str, code: str, digest: str) -> Raw:
    """Return the definition of a script as a tool. Raises BadScript.

    The digest of the text is in the schema, which counts where definitions are pinned, as members that no reader
    sees do not.
    """
    front_matter = _read_front_matter(code)
    description = front_matter.get("description")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _LONGEST_DESCRIPTION:
        raise BadScript(f"its front matter has no `description` of 1 to {_LONGEST_DESCRIPTION} characters")
    schema = front_matter.get("input", _NO_INPUT)
    if not isinstance(schema, dict):
        raise BadScript("`input` in its front matter is no JSON schema")
    schema = {"type": "object", **schema}
    if schema["type"] != "object":
        raise BadScript("`input` in its front matter is not the schema of an object")
    try:
        if flaw := find_schema_error(schema):
            raise BadScript(f"`input` in its front matter is no JSON schema: {flaw}")
        schema = {**schema, "$comment": f"text of the script: sha256 {digest}"}
        return Raw(wire.encode({"name": name, "description": description.strip(), "inputSchema": schema}))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        if isinstance(exc, BadScript):
            raise
        raise BadScript("its front matter cannot be JSON") from exc


def _read_front_matter(code: str) -> Mapping[str, object]:
    found = _FRONT_MATTER.match(code[:_LONGEST_FRONT_MATTER])
    if found is None:
        raise BadScript("it does not begin with front matter: comments between two lines `# ---`")
    lines = (line.removeprefix("#").removeprefix(" ") for line in found[1].splitlines())
    try:
        front_matter = parse_front_matter("\n".join(lines).encode())
    except BadFrontMatter as exc:
        raise BadScript(f"its front matter {exc}") from exc
    if unknown := [key for key in front_matter if key not in _KEYS]:
        raise BadScript(
            f"its front matter has an unknown key `{unknown[0][:50]}`; it may have `description` and `input`"
        )
    return front_matter


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
