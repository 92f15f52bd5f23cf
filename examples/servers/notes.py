"""An MCP server that stores notes as Markdown files in `NOTES_DIR`, or in `dynamic-mcp-notes` in the home directory.

    python notes.py

You can edit the files: the first line is the title, and the file's name without `.md` is the note's name.
"""

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

FOLDER = Path(os.environ.get("NOTES_DIR") or Path.home() / "dynamic-mcp-notes")

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

server = MCPServer(
    "notes",
    title="Notes",
    version="1.0.0",
    instructions="Search before you add, to avoid duplicates. Delete a note only when the user asks for it.",
    log_level="WARNING",
)

Name = Annotated[str, Field(description="The note's name, as `list_notes` and `search_notes` give it")]


class NoteInfo(BaseModel):
    """A note in a list."""

    name: str = Field(description="The name that the other tools take")
    title: str
    changed: datetime


class Match(NoteInfo):
    """A note that matches a search."""

    line: str = Field(description="The first line that has a word of the query")


class Note(NoteInfo):
    """A note with its text."""

    text: str = Field(description="Markdown, without the title")


@server.tool(title="Add a note", annotations=ADDS)
def add_note(
    title: Annotated[str, Field(description="One line, different from the title of any other note", max_length=100)],
    text: Annotated[str, Field(description="Markdown")],
) -> NoteInfo:
    """Save a new note and return its name. Fails if a note of that name exists."""
    name = re.sub(r"[\W_]+", "-", title.lower()).strip("-")
    if not name:
        raise ToolError(f"no letter or digit in the title `{title}`")
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with (FOLDER / f"{name}.md").open("x", encoding="utf-8") as file:
            file.write(f"# {' '.join(title.split())}\n\n{text.strip()}\n")
    except FileExistsError:
        raise ToolError(f"a note `{name}` already exists; choose another title") from None
    return brief(find(name))


@server.tool(title="List the notes", annotations=READS)
def list_notes() -> list[NoteInfo]:
    """List all notes, the latest change first."""
    return [brief(note) for note in notes()]


@server.tool(title="Search the notes", annotations=READS)
def search_notes(
    query: Annotated[str, Field(description="Words that must all occur in the note, in any order and case")],
    limit: Annotated[int, Field(description="The maximum number of notes", ge=1, le=100)] = 10,
) -> list[Match]:
    """Find the notes that contain every word of the query, the latest change first."""
    words = query.lower().split()
    if not words:
        raise ToolError("the query is empty; use `list_notes` for all notes")
    found: list[Match] = []
    for note in notes():
        lines = [note.title, *note.text.splitlines()]
        if all(word in "\n".join(lines).lower() for word in words):
            line = next(line for line in lines if any(word in line.lower() for word in words))
            found.append(Match(**brief(note).model_dump(), line=line.strip()))
    return found[:limit]


@server.tool(title="Read a note", annotations=READS)
def read_note(name: Name) -> Note:
    """Return a note with its text."""
    return find(name)


@server.tool(title="Delete a note", annotations=DELETES)
def delete_note(name: Name) -> str:
    """Delete a note permanently."""
    find(name)
    (FOLDER / f"{name}.md").unlink()
    return f"deleted `{name}`"


@server.resource("notes://all", title="All notes", mime_type="text/markdown")
def all_notes() -> str:
    """Return all notes in one document, the latest change first."""
    return "\n".join(f"# {note.title}\n\n{note.text}\n" for note in notes())


@server.prompt(title="Summarize a topic")
def sum_up(topic: Annotated[str, Field(description="The topic of the summary")]) -> str:
    """Summarize what the notes say about a topic."""
    return (
        f"Search my notes for `{topic}` and its synonyms, and read the matching ones. Summarize "
        "them in a few lines, name them, and point out contradictions."
    )


def notes() -> Iterator[Note]:
    """Yield all notes, the latest change first."""
    for path in sorted(FOLDER.glob("*.md"), key=lambda path: path.stat().st_mtime, reverse=True):
        title, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        changed = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
        yield Note(name=path.stem, title=title.lstrip("# "), changed=changed, text=text.strip())


def find(name: str) -> Note:
    """Return the note of this name; it searches existing notes only, so that no name leads out of the folder."""
    for note in notes():
        if note.name == name:
            return note
    raise ToolError(f"there is no note `{name}`; `list_notes` names them")


def brief(note: Note) -> NoteInfo:
    """Return a note without its text."""
    return NoteInfo(name=note.name, title=note.title, changed=note.changed)


if __name__ == "__main__":
    server.run()
