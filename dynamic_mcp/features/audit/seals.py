"""Seals of ended days: the hash of a day's last line, chained like lines, and optionally signed.

A seal is kept after its day's file is removed. A copy that is kept elsewhere shows that lines were cut off or written
anew. The signature is over the line's bytes without `signature` and `hash`: over `{…,"prev":"<64 hex>"}`.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import VERSION, Damaged
from dynamic_mcp.system import paths

if TYPE_CHECKING:  # loads cryptography
    from dynamic_mcp.features.audit.signing import SealSigningKey

_LOCK_POLL_S = 0.01
_LOCK_WITHIN_S = 5.0
# Nothing may stand behind the signature, which covers what is before it.
_SIGNED = re.compile(rb'(\{.*),"signature":"([A-Za-z0-9+/]+=*)","hash":"[0-9a-f]{64}"\}', re.DOTALL)


class DaySeal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The seal of a day, made at `at`: the number of its last line, and the hashes of its first and last.

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

    @property
    def is_early(self) -> bool:
        """True if the day had not ended when it was sealed."""
        return self.at[:10] <= self.day


_decode = msgspec.json.Decoder(DaySeal).decode


def read_seals(directory: Path) -> list[DaySeal]:
    """Return the seals in their order, unchecked, without lines that are not seals. Raises OSError."""
    seals: list[DaySeal] = []
    for line in read_seal_lines(directory):
        with suppress(Damaged):
            seals.append(read_seal(line))
    return seals


def read_seal_lines(directory: Path) -> list[bytes]:
    """Return the lines of the file of seals, with their newlines. Raises OSError."""
    try:
        return (directory / days.SEALS).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def read_seal(data: bytes) -> DaySeal:
    """Parse a written seal without checking its hash. Raises Damaged if it is not a seal."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Damaged(f"is not a seal: {exc}") from None


def split_signature(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a seal that its signature is over, and the signature. Raises Damaged if it has none."""
    match = _SIGNED.fullmatch(data)
    if match is None:
        raise Damaged("is not signed")
    return match[1] + b"}", base64.b64decode(match[2] + b"==")


def seal_days(
    directory: Path, today: str, *, signer: SealSigningKey | None = None, now: Callable[[], float] = time.time
) -> list[DaySeal]:
    """Seal the days before today that have no seal yet, and return their seals. Raises OSError."""
    with _locked(directory / days.SEALS) as descriptor:
        seals = read_seals(directory)
        sealed, new = {seal.day for seal in seals}, list[DaySeal]()
        prev = seals[-1].hash if seals else chain.ZERO
        for day in days.list_days(directory):
            if day < today and day not in sealed and (seal := _build(directory, day, prev, now())) is not None:
                seal, data = _finish(seal, signer)
                _append(descriptor, data)
                new.append(seal)
                prev = seal.hash
        if new:
            os.fsync(descriptor)
    return new


def seal_end(
    directory: Path, *, signer: SealSigningKey | None = None, now: Callable[[], float] = time.time
) -> DaySeal | None:
    """Return a seal of the last day so far, to be kept elsewhere; None if there is no line. Raises OSError.

    It is not written to the file of seals, where each day has one.
    """
    day_names = days.list_days(directory)
    seal = _build(directory, day_names[-1], chain.ZERO, now()) if day_names else None
    return None if seal is None else _finish(seal, signer)[0]


def _build(directory: Path, day: str, prev: str, at: float) -> DaySeal | None:
    """Return the seal of a day, unsigned; None if the day has no line."""
    with days.file_of(directory, day).open("rb") as file:
        tail = days.read_tail(file.fileno())
        file.seek(0)
        line = file.readline(days.MAX_LINE)
    if tail.last is None:
        return None
    try:
        first = chain.read_link(line).hash
    except Damaged:
        first = ""
    at_text = days.timestamp(at)
    return DaySeal(v=VERSION, day=day, lines=tail.last.n, first=first, last=tail.last.hash, at=at_text, prev=prev)


def _finish(seal: DaySeal, signer: SealSigningKey | None) -> tuple[DaySeal, bytes]:
    """Return a seal with its signature and hash, and its line."""
    if signer is not None:
        seal = structs.replace(seal, key=signer.fingerprint)
        seal = structs.replace(seal, signature=base64.b64encode(signer.sign(chain.encode(seal))).decode())
    data, digest = chain.finish(chain.encode(seal))
    return structs.replace(seal, hash=digest), data


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    is_torn = size > 0 and not days.read_end(descriptor, size).endswith(b"\n")
    days.write_whole(descriptor, b"\n" + data if is_torn else data, size)


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
