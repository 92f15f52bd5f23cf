"""Finds servers in several registries: by words, or by exact name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from dynamic_mcp.errors import NotFound, RegistryError
from dynamic_mcp.features.registry.cache import AnswerCache
from dynamic_mcp.features.registry.client import LATEST, MOST_PAGES, RegistryClient, ServerListing
from dynamic_mcp.features.registry.config import Registry
from dynamic_mcp.features.registry.document import NAME, ServerDocument
from dynamic_mcp.system.text import format_age

MOST_WORDS = 4
# The time limit for all pages of a search.
SEARCH_S = 45.0
_VERSIONS_SHOWN = 5
_GUESSES = 3


class Hit(Struct, frozen=True):
    """A server, and its registry."""

    registry: str
    document: ServerDocument


class Lookup:
    """Queries registries, in order. `notes` are what the user should know about the answers so far."""

    def __init__(self, registries: Sequence[Registry], cache: AnswerCache) -> None:
        self._registries = registries
        self._cache = cache
        self.notes: list[str] = []

    async def search(self, words: Sequence[str], *, most_pages: int = MOST_PAGES) -> list[Hit]:
        """Return the servers with any of these words, those with most of them first. Raises RegistryError."""
        answers = await asyncio.gather(*(self._search_one(each, words, most_pages) for each in self._registries))
        errors = [each for each in answers if isinstance(each, RegistryError)]
        if errors and len(errors) == len(answers):
            raise errors[0]
        self.notes += [error.message for error in errors]
        hits = [hit for each in answers if not isinstance(each, RegistryError) for hit in each]
        return sorted(hits, key=lambda hit: -_count_words(hit.document, words))

    async def find(self, name: str, version: str = LATEST) -> Hit:
        """Return a server of the first registry that has it. Raises NotFound and RegistryError."""
        if NAME.fullmatch(name):
            for registry in self._registries:
                async with self._open(registry) as client:
                    document = await client.get(name, version)
                    self._note_age(client)
                    if document is not None:
                        return Hit(registry.name, document)
        raise await self._not_found(name, version)

    async def versions(self, name: str) -> tuple[ServerDocument, ...]:
        """Return all versions of a server, of the first registry that has it. Raises RegistryError."""
        for registry in self._registries if NAME.fullmatch(name) else ():
            async with self._open(registry) as client:
                listing = await client.versions(name)
                self._note_age(client)
                if listing.documents:
                    return listing.documents
        return ()

    def _open(self, registry: Registry) -> RegistryClient:
        return RegistryClient(registry, self._cache)

    async def _search_one(
        self, registry: Registry, words: Sequence[str], most_pages: int
    ) -> list[Hit] | RegistryError:
        found: dict[str, ServerDocument] = {}
        try:
            async with asyncio.timeout(SEARCH_S), self._open(registry) as client:
                for word in words[:MOST_WORDS]:
                    listing = await client.search(word, most_pages=most_pages)
                    self._note_listing(registry.name, word, listing)
                    found.update({each.name: each for each in listing.documents if each.status != "deleted"})
                self._note_age(client)
        except RegistryError as exc:
            return exc
        except TimeoutError:
            return RegistryError(registry.name, f"it did not answer within {SEARCH_S:g} s")
        return [Hit(registry.name, each) for each in found.values()]

    async def _not_found(self, name: str, version: str) -> NotFound:
        if version != LATEST and (versions := await self.versions(name)):
            shown = ", ".join(f"`{each.version}`" for each in versions[:_VERSIONS_SHOWN])
            numbers = [each.version for each in versions]
            return NotFound(f"version of `{name}`", version, numbers, hint=f"it has {shown}")
        near = _closest(name, [each.document.name for each in await self._guess(name)])
        guess = "did you mean " + " or ".join(f"`{each}`" for each in near) + "? " if near else ""
        return NotFound("server in the registry", name, hint=f"{guess}{_how_to_search(name)}")

    async def _guess(self, name: str) -> Sequence[Hit]:
        """Return servers whose names contain a part of this one.

        Raises RegistryError if no registry answers and none was queried before: invalid names are not looked up.
        """
        words = [part for part in name.rpartition("/")[2].replace("_", "-").split("-") if len(part) > 2]
        longest = sorted(words, key=len, reverse=True)[:2]
        try:
            return await self.search([name.rpartition("/")[2], *longest], most_pages=1)
        except RegistryError as exc:
            if not NAME.fullmatch(name):
                raise
            self.notes.append(exc.message)
            return ()

    def _note_listing(self, registry: str, word: str, listing: ServerListing) -> None:
        if listing.is_cut:
            self.notes.append(f"registry `{registry}` has more servers for `{word}`; another word may narrow it")
        if listing.skipped:
            self.notes.append(f"registry `{registry}`: {listing.skipped} entries cannot be understood")

    def _note_age(self, client: RegistryClient) -> None:
        if client.stale is not None and client.stale.age_s is not None:
            age = format_age(client.stale.age_s)
            self.notes.append(f"registry `{client.name}`: {client.stale.reason}; this is what it answered {age} ago")
            client.stale = None


def _count_words(document: ServerDocument, words: Sequence[str]) -> int:
    text = f"{document.name} {document.title} {document.description}".casefold()
    return sum(word.casefold() in text for word in words)


def _closest(name: str, names: Sequence[str]) -> list[str]:
    """Return the names closest to this one; the namespace counts less than the rest."""
    from difflib import SequenceMatcher  # only for a wrong name

    last = name.rpartition("/")[2].casefold()

    def likeness(each: str) -> tuple[float, float]:
        other = each.rpartition("/")[2].casefold()
        return SequenceMatcher(None, last, other).ratio(), SequenceMatcher(None, name, each).ratio()

    return sorted(names, key=likeness, reverse=True)[:_GUESSES]


def _how_to_search(name: str) -> str:
    from dynamic_mcp.system.shell import format_command

    return f"`{format_command('registry', 'search', name.rpartition('/')[2] or name)}` looks for others"
