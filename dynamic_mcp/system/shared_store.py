"""What several replicas share: the interface of a store, and how it fails.

Every entry is bounded in size and expires. Names and values are not readable in the store, so names may be personal
and values secret. An operation ends within half a second, with its outcome or with `StoreUnavailable`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from msgspec import DecodeError, Struct

from dynamic_mcp.system.decoding import decode_as

log = logging.getLogger(__name__)

T = TypeVar("T")

# The largest value.
MOST_BYTES = 1 << 20
# The longest time until an entry expires.
LONGEST_S = 400 * 86_400.0

Version = bytes
"""Identifies one writing of an entry; opaque."""
ABSENT: Version = b""
"""The version of an entry that there is not."""


class StoreFailure(Enum):
    """Why a store cannot be used. Values are what a person reads."""

    DOWN = "cannot be reached"
    SLOW = "does not answer in time"
    BUSY = "has too many commands waiting"
    READ_ONLY = "is read only"
    FULL = "is full"
    REFUSED = "refuses the user, the password or a command"
    FOREIGN = "has data of other keys or of another version"
    NONSENSE = "answers what is not understood"
    CLOSED = "is closed"


class StoreUnavailable(Exception):
    """An operation failed. With `may_have_run`, it may have changed the store nevertheless.

    Where an answer decides about security, refuse; where it saves work, go on without.
    """

    def __init__(self, failure: StoreFailure, detail: str = "", *, may_have_run: bool = False) -> None:
        super().__init__(f"the shared store {failure.value}{detail and f': {detail}'}")
        self.failure = failure
        self.detail = detail
        self.may_have_run = may_have_run


class StoreSpace(Struct, frozen=True):
    """One kind of entries. Those of a space with `most_listed` can be listed; further ones are refused as FULL."""

    name: str  # letters, digits and `-`
    most_listed: int = 0


class StoredEntry(Struct, frozen=True):
    """An entry as it was read."""

    name: str
    value: bytes
    version: Version

    def read(self, kind: type[T]) -> T | None:
        """Return the JSON of the value as this type; None if another version of the program has written it."""
        try:
            return decode_as(self.value, kind)
        except (DecodeError, UnicodeDecodeError) as exc:
            log.debug("a `%s` in the shared store cannot be read: %s", kind.__name__, exc)
            return None


class Rate(Struct, frozen=True):
    """A counted rate: one call per `interval_s`, with bursts that make up for `slack_s`."""

    name: str
    interval_s: float
    slack_s: float


class Lease(Struct, frozen=True):
    """One of so many places that are taken at once."""

    name: str
    places: int


class Wait(Struct, frozen=True):
    """What was refused, by its index, and the seconds until it is worth trying again."""

    index: int
    wait_s: float


class StoreStatus(Struct, frozen=True):
    """What a store says of itself; `where` has no secrets, `failure` is empty while it works."""

    where: str
    failure: str = ""
    operations: int = 0
    failed: int = 0
    refused: int = 0  # without asking the store, while it does not work


class SharedStore(Protocol):
    """A store. All methods that wait raise StoreUnavailable."""

    async def get(self, space: StoreSpace, name: str) -> StoredEntry | None: ...

    async def put(self, space: StoreSpace, name: str, value: bytes, ttl_s: float) -> Version:
        """Write an entry, whether or not there is one."""
        ...

    async def compare_and_set(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, *, expected: Version
    ) -> Version | None:
        """Write an entry if it still has the `expected` version, or, with ABSENT, if there is none.

        Returns its new version; None if it was not written.
        """
        ...

    async def delete(self, space: StoreSpace, name: str, *, expected: Version | None = None) -> bool:
        """Delete an entry, if it still has the `expected` version; return whether it was deleted."""
        ...

    async def take(self, space: StoreSpace, name: str) -> StoredEntry | None:
        """Read and delete an entry at once: of all that take it, one gets it."""
        ...

    async def list_entries(self, space: StoreSpace) -> list[StoredEntry]:
        """Return the entries of a space that has `most_listed`; FULL if they have more than 4 MiB together."""
        ...

    def scan(self, space: StoreSpace) -> AsyncIterator[StoredEntry]:
        """Yield the entries of any space that were there all the time, for commands: it reads the whole store."""
        ...

    async def count_changes(self, spaces: Sequence[StoreSpace]) -> tuple[int, ...]:
        """Return a number for each of these listed spaces that differs after each change but expiry."""
        ...

    async def count(self, space: StoreSpace, rates: Sequence[Rate]) -> Wait | None:
        """Count one call for all rates, or for none and return the one with the longest wait. One round trip."""
        ...

    async def acquire(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> Wait | None:
        """Take a place of each lease until released or `ttl_s` have passed, or none and return the first full one.

        A holder that has a place keeps it, so acquiring again renews. `wait_s` is until the next place expires.
        """
        ...

    async def renew(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> bool:
        """Keep the places of a holder; return whether it still had them all."""
        ...

    async def release(self, space: StoreSpace, leases: Sequence[Lease], holder: str) -> None:
        """Give places back, and publish that in the topic of the space with an empty message."""
        ...

    async def publish(self, space: StoreSpace, message: bytes) -> None:
        """Send a message to the subscribers of a space in all processes. It may be lost."""
        ...

    def subscribe(self, space: StoreSpace, on_message: Callable[[bytes | None], object]) -> Callable[[], None]:
        """Have `on_message` called with the messages of a space, among them those of this process.

        None says that messages may have been lost. A change of an entry in a listed space publishes its name.
        Returns what ends the subscription.
        """
        ...

    def on_reset(self, restore: Callable[[], object]) -> Callable[[], None]:
        """Have `restore` called whenever the store has lost entries, or may have; return what ends that.

        It was wiped, or could not be reached for a while, after which another server may be in its place. What must
        not be forgotten, such as revocations, is to be written again from what this process knows.
        """
        ...

    def describe(self) -> StoreStatus: ...

    async def close(self) -> None: ...


def check_entry(value: bytes, ttl_s: float) -> None:
    """Raise ValueError for an entry that no store takes: that is a bug of the caller."""
    if len(value) > MOST_BYTES:
        raise ValueError(f"an entry has {len(value)} bytes, and may have {MOST_BYTES}")
    if not 0 < ttl_s <= LONGEST_S:
        raise ValueError(f"an entry cannot expire in {ttl_s} s")
