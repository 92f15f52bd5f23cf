"""Keeps results that were too long, readable as `dynamic-mcp://results/<id>` by the client that they were for.

`?start=` and `?end=` choose a range of characters. A client has a bounded number of bytes; the oldest go first.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from threading import Lock
from urllib.parse import parse_qsl

from msgspec import Struct

from dynamic_mcp.client import Client
from dynamic_mcp.errors import InvalidArguments, NotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools.results import Keep, Mark

ROOT = "dynamic-mcp://results/"
# A client has so many results and so many characters; one result may be longer than all of that.
MAX_RESULTS = 100
MAX_CHARACTERS = 64 << 20
_ID_BYTES = 16


class StoreSize(Struct, frozen=True):
    """The number of results that are kept for all clients, and their characters."""

    results: int
    characters: int


class _Text(Struct, frozen=True):
    """A text from `tools`, each after its group: a client that may not use one of them may not read it."""

    text: str
    media_type: str
    group: str
    tools: tuple[tuple[str, str], ...]
    mark: Mark | None


class ResultStore:
    """The results that are kept, by client."""

    def __init__(self) -> None:
        self._of: dict[Client, dict[str, _Text]] = {}
        self._lock = Lock()

    def keeper(self, client: Client, group: GroupView, tool: str) -> Keep:
        """Return what keeps a text of a tool for this client."""
        mark = group.mark_text if group.presentation.answers.marks else None
        return self._keeper(client, group.name, ((group.name, tool),), mark)

    def own_keeper(self, client: Client, mark: Mark | None = None, tools: Iterable[tuple[str, str]] = ()) -> Keep:
        """Return what keeps a text of one of our own tools for this client, made of results of these `tools`."""
        return self._keeper(client, "", tuple(tools), mark)

    def _keeper(self, client: Client, group: str, tools: tuple[tuple[str, str], ...], mark: Mark | None) -> Keep:
        texts = self._of.setdefault(client, {})
        lock = self._lock

        def keep(text: str, media_type: str) -> str:
            id = secrets.token_hex(_ID_BYTES)
            with lock:  # a selection runs in a thread
                texts[id] = _Text(text, media_type, group, tools, mark)
                _make_room(texts)
            return ROOT + id

        return keep

    def measure(self) -> StoreSize:
        """Return how much is kept."""
        with self._lock:
            lengths = [len(kept.text) for texts in self._of.values() for kept in texts.values()]
        return StoreSize(len(lengths), sum(lengths))

    def release(self, client: Client) -> None:
        """Forget what is kept for a client."""
        self._of.pop(client, None)

    def read(self, client: Client, uri: str, view: View) -> Frame | None:
        """Return a kept result of a tool of the view, or a range of it; None where the URI is of another kind.

        Raises InvalidArguments and NotFound.
        """
        id, _, query = uri.removeprefix(ROOT).partition("?")
        if not uri.startswith(ROOT) or len(id) != 2 * _ID_BYTES:
            return None
        kept = self._of.get(client, {}).get(id)
        if kept is None or not all(view.has_tool(*each) for each in kept.tools):
            raise NotFound("kept result", uri, hint="results are kept for a while only: call the tool again")
        start, end = _range(query, len(kept.text))
        is_whole = (start, end) == (0, len(kept.text))
        shown = kept.text[start:end]
        group = view.get(kept.group)
        mark = kept.mark if group is None else group.mark_text
        text = shown if mark is None else mark(shown)
        media_type = kept.media_type if is_whole and text is shown else "text/plain"
        found = {"uri": uri, "mimeType": media_type, "text": text}
        return wire.result_frame({"contents": [found]})


def _make_room(texts: dict[str, _Text]) -> None:
    """Remove the oldest results until the bounds hold; the newest stays."""
    size = sum(len(kept.text) for kept in texts.values())
    while len(texts) > 1 and (len(texts) > MAX_RESULTS or size > MAX_CHARACTERS):
        size -= len(texts.pop(next(iter(texts))).text)


def _range(query: str, length: int) -> tuple[int, int]:
    bounds_asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=10)) if len(query) < 200 else {"": ""}
    bounds = {"start": "0", "end": str(length), **bounds_asked}
    if set(bounds) != {"start", "end"} or not all(each.isdecimal() and len(each) < 20 for each in bounds.values()):
        raise InvalidArguments(
            f"a range of the result is `?start=A&end=B`, from 0 to {length} characters, not `?{query[:100]}`"
        )
    start, end = (min(int(bounds[name]), length) for name in ("start", "end"))
    return start, max(start, end)
