"""Keeps results that were too long, readable as `dynamic-mcp://results/<id>` by the client that they were for.

`?start=` and `?end=` choose a range of characters. A client has a bounded number of bytes; the oldest go first.
Among several replicas, the id names the one that keeps the result; what replicas share may have a copy.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from msgspec import Struct

from dynamic_mcp.client import Client
from dynamic_mcp.errors import InvalidArguments, NotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.kept_text import KeptText
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools.results import Keep, Mark

if TYPE_CHECKING:  # loaded with a store
    from dynamic_mcp.proxy.request import IdSigner
    from dynamic_mcp.proxy.shared_results import SharedResults
    from dynamic_mcp.system.shared_store import SharedStore

ROOT = "dynamic-mcp://results/"
# A client has so many results and so many characters; one result may be longer than all of that.
MAX_RESULTS = 100
MAX_CHARACTERS = 64 << 20
_ID_BYTES = 16
_ID = re.compile(r"(d[0-9]{1,3}\.[A-Za-z0-9-]+\.[A-Za-z0-9_-]+\.)?[0-9a-f]{32}")


class StoreSize(Struct, frozen=True):
    """The number of results that are kept for all clients, and their characters."""

    results: int
    characters: int


class ResultServices(Protocol):
    """What signs the ids of results, and has copies of them, if other replicas serve the same clients."""

    @property
    def result_ids(self) -> IdSigner | None: ...

    @property
    def shared_store(self) -> SharedStore | None: ...


class ResultStore:
    """The results that are kept, by client."""

    def __init__(self, services: ResultServices) -> None:
        self._services = services
        self._of: dict[Client, dict[str, tuple[KeptText, Mark | None]]] = {}
        self._lock = Lock()
        self._copies: SharedResults | None = None

    def keeper(self, client: Client, group: GroupView, tool: str) -> Keep:
        """Return what keeps a text of a tool for this client."""
        mark = group.mark_text if group.presentation.answers.marks else None
        return self._keeper(client, group.name, ((group.name, tool),), mark)

    def own_keeper(
        self, client: Client, marking: GroupView | None = None, tools: Iterable[tuple[str, str]] = ()
    ) -> Keep:
        """Return what keeps a text of one of our own tools for this client, made of results of these `tools`.

        It is shown with the marks of the group `marking`.
        """
        group, mark = ("", None) if marking is None else (marking.name, marking.mark_text)
        return self._keeper(client, group, tuple(tools), mark)

    def _keeper(self, client: Client, group: str, tools: tuple[tuple[str, str], ...], mark: Mark | None) -> Keep:
        texts = self._of.setdefault(client, {})
        lock, signer = self._lock, self._services.result_ids
        copies, loop = self._find_copies(), asyncio.get_running_loop()

        def keep(text: str, media_type: str) -> str:
            id = secrets.token_hex(_ID_BYTES)
            kept = KeptText(text, media_type, group, tools, mark is not None)
            with lock:  # a selection runs in a thread
                texts[id] = kept, mark
                _make_room(texts)
            if copies is not None:
                loop.call_soon_threadsafe(copies.add, id, client, kept)
            return ROOT + (id if signer is None else signer.sign(id, client))

        return keep

    def _find_copies(self) -> SharedResults | None:
        """Return what replicas share of results; None if they share nothing."""
        store = self._services.shared_store
        if self._copies is not None and self._copies.store is not store:
            self._copies.end()
            self._copies = None
        if self._copies is None and store is not None:
            from dynamic_mcp.proxy.shared_results import SharedResults

            self._copies = SharedResults(store)
        return self._copies

    def measure(self) -> StoreSize:
        """Return how much is kept."""
        with self._lock:
            lengths = [len(kept.text) for texts in self._of.values() for kept, _ in texts.values()]
        return StoreSize(len(lengths), sum(lengths))

    def release(self, client: Client) -> None:
        """Forget what is kept for a client."""
        self._of.pop(client, None)

    async def close(self) -> None:
        if self._copies is not None:
            await self._copies.close()

    async def read(self, client: Client, uri: str, view: View) -> Frame | None:
        """Return a kept result of a tool of the view, or a range of it; None where the URI is of another kind.

        Raises InvalidArguments and NotFound.
        """
        id, _, query = uri.removeprefix(ROOT).partition("?")
        if not uri.startswith(ROOT) or not _ID.fullmatch(id):
            return None
        kept, kept_mark = await self._find(client, id)
        if kept is None or not all(view.has_tool(*each) for each in kept.tools):
            raise _not_found(uri)
        start, end = _range(query, len(kept.text))
        is_whole = (start, end) == (0, len(kept.text))
        shown = kept.text[start:end]
        group = view.get(kept.group)
        mark = kept_mark if group is None else group.mark_text
        if mark is None and kept.is_marked:  # by rules that this replica does not have
            raise _not_found(uri)
        text = shown if mark is None else mark(shown)
        media_type = kept.media_type if is_whole and text is shown else "text/plain"
        found = {"uri": uri, "mimeType": media_type, "text": text}
        return wire.result_frame({"contents": [found]})

    async def _find(self, client: Client, id: str) -> tuple[KeptText | None, Mark | None]:
        """Return a result that is kept for a client, here or by another replica of whose keys `id` is."""
        signer, texts = self._services.result_ids, self._of.get(client, {})
        own_id = signer.open(id, client) if signer is not None and "." in id else None
        found = texts.get(own_id or id)
        if found is not None or own_id is None or (copies := self._find_copies()) is None:
            return found or (None, None)
        return await copies.find(own_id, client), None


def _not_found(uri: str) -> NotFound:
    return NotFound("kept result", uri, hint="results are kept for a while only: call the tool again")


def _make_room(texts: dict[str, tuple[KeptText, Mark | None]]) -> None:
    """Remove the oldest results until the bounds hold; the newest stays."""
    size = sum(len(kept.text) for kept, _ in texts.values())
    while len(texts) > 1 and (len(texts) > MAX_RESULTS or size > MAX_CHARACTERS):
        size -= len(texts.pop(next(iter(texts)))[0].text)


def _range(query: str, length: int) -> tuple[int, int]:
    bounds_asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=10)) if len(query) < 200 else {"": ""}
    bounds = {"start": "0", "end": str(length), **bounds_asked}
    if set(bounds) != {"start", "end"} or not all(each.isdecimal() and len(each) < 20 for each in bounds.values()):
        raise InvalidArguments(
            f"a range of the result is `?start=A&end=B`, from 0 to {length} characters, not `?{query[:100]}`"
        )
    start, end = (min(int(bounds[name]), length) for name in ("start", "end"))
    return start, max(start, end)
