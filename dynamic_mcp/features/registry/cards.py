"""Finds the server cards that a host publishes, by its AI catalog or beside an endpoint (SEP-2127).

A card is not trusted: it is fetched like the documents of a login, without redirects and within bounds, and only its
remotes count.
https://github.com/modelcontextprotocol/experimental-ext-server-card, docs/discovery.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dynamic_mcp.features.registry.document import FlawedDocument, ServerDocument, read_answer
from dynamic_mcp.mcp.well_known import AI_CATALOG, CARD_TYPE, SERVER_CARD

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Document, Documents

_ACCEPT = {"Accept": f"{CARD_TYPE}, application/json"}
_MOST_CARDS = 20
_WITHIN_S = 45.0


class FoundCard(Struct, frozen=True):
    """A server as its card describes it, and the URL of the document that has the card."""

    document: ServerDocument
    url: str


class FoundCards(Struct, frozen=True):
    """The cards of a host, why further documents are no cards or could not be read, and which do not exist."""

    cards: tuple[FoundCard, ...]
    problems: tuple[str, ...]
    missing: tuple[str, ...] = ()


async def find_cards(url: str) -> FoundCards:
    """Return the cards at a URL, beside it, or in the AI catalog of its host, whichever has some first.

    Raises ForbiddenUrl if the URL itself is not a plain one.
    """
    from dynamic_mcp.web.address_policy import AddressPolicy
    from dynamic_mcp.web.documents import DocumentError, open_documents

    policy = AddressPolicy(url)
    policy.check_endpoint(url)
    problems: list[str] = []
    missing: list[str] = []
    cards: list[FoundCard] = []
    try:
        async with asyncio.timeout(_WITHIN_S), open_documents(policy) as documents:
            for place in _places(url):
                try:
                    document = await documents.fetch(place, _ACCEPT)
                except DocumentError as exc:
                    (missing if exc.is_missing else problems).append(str(exc))
                    continue
                cards = await _read(place, document, documents, problems)
                if cards:
                    break
    except TimeoutError:
        problems.append(f"not all documents were read within {_WITHIN_S:g} s")
    return FoundCards(tuple(cards), tuple(problems), tuple(missing))


def _places(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    plain = parts._replace(query="", fragment="").geturl().rstrip("/")
    if parts.path.endswith((SERVER_CARD, ".json")):
        yield url
    else:
        yield f"{plain}{SERVER_CARD}"
    yield f"{parts.scheme}://{parts.netloc}{AI_CATALOG}"


async def _read(place: str, document: Document, documents: Documents, problems: list[str]) -> list[FoundCard]:
    """Return the card that a document is, or those that it names as a catalog."""
    entries = document.get("entries")
    if not isinstance(entries, list):
        return _parse(place, document, problems)
    wanted = [each for each in entries if isinstance(each, dict) and each.get("type") == CARD_TYPE]
    if len(wanted) > _MOST_CARDS:
        problems.append(f"only the first {_MOST_CARDS} cards of `{place}` were read")
    found = [await _follow(place, each, documents, problems) for each in wanted[:_MOST_CARDS]]
    return [card for cards in found for card in cards]


async def _follow(place: str, entry: Document, documents: Documents, problems: list[str]) -> list[FoundCard]:
    from dynamic_mcp.web.documents import DocumentError

    inline, url = entry.get("data"), entry.get("url")
    if isinstance(inline, dict):
        return _parse(place, inline, problems)
    if not isinstance(url, str):
        problems.append(f"an entry of `{place}` has neither a card nor its URL")
        return []
    try:
        return _parse(url, await documents.fetch(url, _ACCEPT), problems)
    except DocumentError as exc:
        problems.append(str(exc))
        return []


def _parse(url: str, document: Document, problems: list[str]) -> list[FoundCard]:
    try:
        found = read_answer({**document, "server": None})
    except FlawedDocument as exc:
        problems.append(f"`{url[:200]}` is no server card: {exc}")
        return []
    if found.packages:
        problems.append(f"the packages in the card at `{url[:200]}` are ignored: a card is of remote servers only")
    return [FoundCard(structs.replace(found, packages=()), url)]
