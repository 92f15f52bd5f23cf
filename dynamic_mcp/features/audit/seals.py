"""Seals of ended days: the hash that all lines of a day lead to, chained as the lines are, and perhaps signed.

Kept after the day's file is gone, and kept elsewhere too, a seal shows that lines were cut off or written anew. The
signature is over the line's bytes without `signature` and `hash`: over `{…,"prev":"<64 hex>"}`.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import VERSION, Damaged
from dynamic_mcp.system import paths

_LOCK_POLL_S = 0.01
_LOCK_WITHIN_S = 5.0


class Signer(Protocol):
    """A private key: `fingerprint` is the SHA-256 of its public key, in hex."""

    fingerprint: str

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        ...


class Seal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A day that has ended, and when it was sealed: the number of its last line, the hashes of its first and last.

    `key` is the fingerprint of the key that made the `signature`, which is base64.
    """

    v: int
    day: str
    lines: int
    first: str
    last: str
    at: str
    key: str = ""
    prev: str = ""
    signature: str = ""
    hash: str = ""


_decode = msgspec.json.Decoder(Seal).decode


def read_seals(directory: Path) -> list[Seal]:
    """Return the seals in their order, without checking them, and without lines that are none. Raises OSError."""
    try:
        lines = (directory / days.SEALS).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found: list[Seal] = []
    for line in lines:
        with suppress(Damaged):
            found.append(read_seal(line))
    return found


def read_seal(data: bytes) -> Seal:
    """Return a seal as it is written, whether its hash is right or not. Raises Damaged if it is no seal at all."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Damaged(f"is no seal: {exc}") from None


def signed_part(data: bytes) -> bytes:
    """Return the bytes of a seal that its signature is over. Raises Damaged if it has none."""
    start = data.rfind(b',"signature":"')
    if start < 0:
        raise Damaged("has no signature")
    return data[:start] + b"}"


def seal_days(
    directory: Path, today: str, *, signer: Signer | None = None, now: Callable[[], float] = time.time
) -> list[Seal]:
    """Seal the days before today that have no seal yet, and return their seals. Raises OSError."""
    with _locked(directory / days.SEALS) as descriptor:
        known = read_seals(directory)
        sealed, new = {seal.day for seal in known}, list[Seal]()
        prev = known[-1].hash if known else chain.ZERO
        for day in days.list_days(directory):
            if day < today and day not in sealed and (seal := _build(directory, day, now())) is not None:
                new.append(_write(descriptor, structs.replace(seal, prev=prev), signer))
                prev = new[-1].hash
        if new:
            os.fsync(descriptor)
    return new


def seal_end(directory: Path, *, signer: Signer | None = None, now: Callable[[], float] = time.time) -> Seal | None:
    """Return a seal of the last day as it is now, to be kept elsewhere; None if there is no line. Raises OSError.

    It is not written to the file of seals, where each day has one.
    """
    known = days.list_days(directory)
    seal = _build(directory, known[-1], now()) if known else None
    if seal is None:
        return None
    signed = _sign(structs.replace(seal, prev=chain.ZERO), signer)
    return structs.replace(signed, hash=chain.finish(chain.encode(signed))[1])


def _build(directory: Path, day: str, at: float) -> Seal | None:
    """Return the seal of a day that is over; None if it has no line."""
    with days.file_of(directory, day).open("rb") as file:
        tail = days.read_tail(file.fileno(), os.fstat(file.fileno()).st_size)
        file.seek(0)
        line = file.readline(days.MAX_LINE)
    if tail.last is None:
        return None
    try:
        first = chain.read_link(line).hash
    except Damaged:
        first = ""
    return Seal(v=VERSION, day=day, lines=tail.last.n, first=first, last=tail.last.hash, at=days.Clock().text(at))


def _write(descriptor: int, seal: Seal, signer: Signer | None) -> Seal:
    seal = _sign(seal, signer)
    data, own = chain.finish(chain.encode(seal))
    size = os.fstat(descriptor).st_size
    is_torn = size > 0 and not days.read_end(descriptor, size).endswith(b"\n")
    days.write_whole(descriptor, b"\n" + data if is_torn else data, size)
    return structs.replace(seal, hash=own)


def _sign(seal: Seal, signer: Signer | None) -> Seal:
    if signer is None:
        return seal
    seal = structs.replace(seal, key=signer.fingerprint)
    return structs.replace(seal, signature=base64.b64encode(signer.sign(chain.encode(seal))).decode())


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = days.open_private(path)
    try:
        ends_at = time.monotonic() + _LOCK_WITHIN_S
        while not paths.try_lock(descriptor):
            if time.monotonic() > ends_at:
                raise TimeoutError(f"another process seals days in {path.parent}")
            time.sleep(_LOCK_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)
