"""The files of approvals: `ID.json` of a proxy, `ID.NONCE.decision` of a command, and `ID.NONCE.answer` to it.

Whatever is read must be a regular file of this user that nobody else could have written.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw

from dynamic_mcp.features.approvals.queued import ApprovalAnswer, ApprovalDecision, QueuedApproval, parse_id
from dynamic_mcp.mcp import wire
from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as

log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

# What one file may have. A call with more arguments cannot be shown to a person.
MOST_BYTES = 8 << 20
_PENDING, _DECISION, _ANSWER = ".json", ".decision", ".answer"


class Unsuitable(ValueError):
    """A file that must not count; the text says why."""


class ApprovalStore:
    """The folder, as both sides use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<ApprovalStore {self._path}>"

    def make(self) -> None:
        """Create the folder, or see to it that nobody else can use it. Raises OSError."""
        paths.claim_private_dir(self._path)

    def names(self) -> list[str]:
        """Return the names of all files; none if there is no folder."""
        try:
            return sorted(file.name for file in self._path.iterdir())
        except OSError:
            return []

    # --- what waits ----------------------------------------------------------------------------------------

    def write_pending(self, pending: QueuedApproval) -> None:
        """Write what waits. Raises OSError, also if it is too large to be read or its id is in use."""
        file, data = self._path / f"{pending.id}{_PENDING}", _encode(pending)
        if len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB", str(file))
        if file.exists():
            raise FileExistsError(errno.EEXIST, "in use", str(file))
        paths.write_private(file, data, durable=False)

    def pending_ids(self) -> list[str]:
        """Return the ids of what waits."""
        stems = [name.removesuffix(_PENDING) for name in self.names() if name.endswith(_PENDING)]
        return [stem for stem in stems if parse_id(stem) == stem]

    def read_pending(self, id: str) -> tuple[QueuedApproval, float]:
        """Return what waits, and when its file was touched last. Raises OSError and Unsuitable."""
        pending, touched_at = self._read(self._path / f"{id}{_PENDING}", QueuedApproval)
        if pending.id != id:
            raise Unsuitable("it has the id of another call")
        return pending, touched_at

    def has_pending(self, id: str) -> bool:
        """Tell whether something waits by this id."""
        return (self._path / f"{id}{_PENDING}").exists()

    def touch_pending(self, pending: QueuedApproval) -> None:
        """Show that the proxy of what waits is alive; writes it again if somebody took that for dead."""
        with contextlib.suppress(OSError):
            if self.has_pending(pending.id):
                os.utime(self._path / f"{pending.id}{_PENDING}")
            else:
                self.write_pending(pending)

    def remove_pending(self, id: str) -> None:
        """Remove what waits no more."""
        self._unlink(f"{id}{_PENDING}")

    # --- what was decided ----------------------------------------------------------------------------------

    def write_decision(self, decision: ApprovalDecision) -> str:
        """Write a decision and return its key. Raises OSError."""
        key = f"{decision.id}.{secrets.token_hex(8)}"
        paths.write_private(self._path / f"{key}{_DECISION}", _encode(decision), durable=False)
        return key

    def withdraw_decision(self, key: str) -> bool:
        """Remove a decision; returns whether it was still there, and so counts for nothing."""
        return self._unlink(f"{key}{_DECISION}")

    def decision_keys(self) -> Iterator[tuple[str, str]]:
        """Yield the id and the key of each decision that is there."""
        for name in self.names():
            id, _, nonce = name.removesuffix(_DECISION).partition(".")
            if name.endswith(_DECISION) and nonce:
                yield id, f"{id}.{nonce}"

    def claim_decision(self, key: str) -> ApprovalDecision:
        """Remove a decision and return it; only one caller gets it. Raises OSError and Unsuitable."""
        claimed = self._path / f".{key}.claimed"
        (self._path / f"{key}{_DECISION}").rename(claimed)
        try:
            return self._read(claimed, ApprovalDecision)[0]
        finally:
            self._unlink(claimed.name)

    def write_answer(self, key: str, answer: ApprovalAnswer) -> None:
        """Say what became of a decision."""
        try:
            paths.write_private(self._path / f"{key}{_ANSWER}", _encode(answer), durable=False)
        except OSError as exc:  # whoever waits for it will see that nothing waits any more
            log.debug("a decision cannot be answered: %s", exc)

    def take_answer(self, key: str) -> ApprovalAnswer | None:
        """Return what became of a decision, once; None if nothing is said yet."""
        try:
            answer = self._read(self._path / f"{key}{_ANSWER}", ApprovalAnswer)[0]
        except (OSError, Unsuitable):
            return None
        self._unlink(f"{key}{_ANSWER}")
        return answer

    # --- all of them ---------------------------------------------------------------------------------------

    def remove_older(self, before: float) -> None:
        """Remove what killed processes have left, last written before this time, apart from what waits."""
        for name in (name for name in self.names() if not name.endswith(_PENDING)):
            file = self._path / name
            with contextlib.suppress(OSError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                    file.unlink()

    def _read(self, file: Path, form: type[T]) -> tuple[T, float]:
        data, touched_at = _read_own(file)
        try:
            return _decode(data, form), touched_at
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, wire.Malformed) as exc:
            raise Unsuitable(f"it cannot be read: {exc}") from None

    def _unlink(self, name: str) -> bool:
        try:
            (self._path / name).unlink()
        except OSError:
            return False
        return True


def _read_own(file: Path) -> tuple[bytes, float]:
    """Return the content of a file, and when it was written. Raises OSError and Unsuitable."""
    _check(file.lstat())  # Windows has no O_NOFOLLOW
    flags = ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
    descriptor = os.open(file, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        _check(status)
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unsuitable("it is too large")
    return data, status.st_mtime


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Unsuitable("it is not a regular file")
    if os.name == "posix" and status.st_uid != os.geteuid():
        raise Unsuitable("it belongs to another user")
    if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o022:
        raise Unsuitable("others could have written it")
    if status.st_size > MOST_BYTES:
        raise Unsuitable("it is too large")


def _decode(data: bytes, form: type[T]) -> T:
    try:
        return decode_as(data, form)
    except msgspec.DecodeError:
        # it takes no lone surrogate escapes, which the arguments of a call may have
        members = wire.members(data)
        arguments = members.pop("arguments", wire.ABSENT)
        value = decode_as(wire.encode(members), form)
        return msgspec.structs.replace(value, arguments=arguments) if len(arguments) else value


def _encode(value: msgspec.Struct) -> bytes:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    given = {name: field for name, field in fields.items() if not isinstance(field, Raw) or len(field)}
    try:
        return wire.encode(given)
    except UnicodeEncodeError:  # a path or a name is not UTF-8; show its invalid bytes as escapes
        return wire.encode({name: _escape(each) if isinstance(each, str) else each for name, each in given.items()})


def _escape(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
