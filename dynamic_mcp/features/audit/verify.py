"""Finds out whether the audit log is as it was written: every line, the order of lines and days, and the seals.

Lines that were cut off at the very end leave a log that is whole, so they show only with a seal that was kept
elsewhere. So does a log that somebody has written anew as a whole, unless its seals are signed.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import Damaged, Link
from dynamic_mcp.features.audit.log import GAP
from dynamic_mcp.features.audit.seals import Seal, read_seal
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import pluralize

# Told how many bytes were read, and how many there are.
Progress = Callable[[int, int], None]
# Nothing may stand behind the signature, which covers what is before it.
_SIGNED = re.compile(rb'(\{.*),"signature":"([A-Za-z0-9+/]+=*)","hash":"[0-9a-f]{64}"\}', re.DOTALL)
# Who has to read more has seen enough.
_MOST_FINDINGS = 1000
# Something that was written was changed, or is missing; a gap that the log itself says, in which nothing is missing
# that was recorded; a day that was kept long enough; something that is good to know.
_Kind = Literal["changed", "missing", "gap", "removed", "note"]
_GAP = b'"event":"' + GAP.encode() + b'"'


class Verification(Struct, frozen=True):
    """What was found: in how many days and lines, under how many seals, and with which line the log ends.

    `is_anchored` says whether a seal that was kept elsewhere is of the day that the log ends with.
    """

    days: int
    lines: int
    seals: int
    end_day: str
    end_line: int
    end_hash: str
    is_anchored: bool
    findings: tuple[Finding, ...]

    @property
    def is_intact(self) -> bool:
        """Tell whether nothing was changed, and nothing is missing."""
        return all(each.kind in ("gap", "removed", "note") for each in self.findings)


class Verifier:
    """Verifies the log in a directory. Seals must be signed with one of the `keys`, if there are any.

    `elsewhere` are lines with seals that were kept elsewhere. `keep_s` is how long days are kept; None is unknown.
    """

    def __init__(
        self,
        directory: Path,
        *,
        today: str,
        keys: Sequence[_PublicKey] = (),
        elsewhere: Sequence[bytes] = (),
        keep_s: float | None = None,
    ) -> None:
        self._directory = directory
        self._today = today
        self._keys = keys
        self._keep_s = keep_s
        self._findings: list[Finding] = []
        self._seals = self._read_seals(self._read_own_seals(), days.SEALS)
        self._elsewhere = self._read_seals(elsewhere, "")

    def verify(self, since: str = "", progress: Progress | None = None) -> Verification:
        """Verify the days since one of them. Raises OSError."""
        known = days.list_days(self._directory)
        checked = [day for day in known if day >= since]
        check = _ChainCheck(self._findings, self._begin(known, checked))
        sizes = {day: days.file_of(self._directory, day).stat().st_size for day in checked}
        sealed = self._sealed_lines(since)
        read = 0
        for day in checked:
            check.check_day(days.file_of(self._directory, day), sealed.get(day, ()))
            read += sizes[day]
            if progress is not None:
                progress(read, sum(sizes.values()))
        self._check_seals(check, known, since)
        end = checked[-1] if check.lines else ""
        return Verification(
            days=len(checked),
            lines=check.lines,
            seals=len(self._seals),
            end_day=end,
            end_line=check.n,
            end_hash=check.last if check.lines else "",
            is_anchored=any(each.seal.day == end for each in self._elsewhere),
            findings=tuple(self._findings[:_MOST_FINDINGS]),
        )

    # --- seals -------------------------------------------------------------------------------------------------

    def _read_own_seals(self) -> list[bytes]:
        try:
            data = (self._directory / days.SEALS).read_bytes()
        except FileNotFoundError:
            return []
        return data.splitlines(keepends=True)

    def _read_seals(self, lines: Sequence[bytes], file: str) -> list[_FoundSeal]:
        found = _parse_seals(lines, file, self._keys, self._findings)
        if file:
            _check_own(found, self._findings)
        return found

    def _sealed_lines(self, since: str) -> dict[str, set[int]]:
        """Return the numbers of lines whose hashes seals say, by their days."""
        found: dict[str, set[int]] = {}
        for each in (*self._seals, *self._elsewhere):
            if each.seal.day >= since:
                found.setdefault(each.seal.day, set()).update((1, each.seal.lines))
        return found

    def _begin(self, known: Sequence[str], checked: Sequence[str]) -> frozenset[str]:
        """Return the hashes that the first line may go on from."""
        if not checked:
            return frozenset()
        before = [day for day in known if day < checked[0]]
        if before:
            check = _ChainCheck([], frozenset())
            check.check_day(days.file_of(self._directory, before[-1]), ())
            return frozenset({check.last})
        gone = [each.seal for each in (*self._seals, *self._elsewhere) if each.seal.day < checked[0]]
        latest = max((seal.day for seal in gone), default="")
        return frozenset(seal.last for seal in gone if seal.day == latest) or frozenset({chain.ZERO})

    def _check_seals(self, check: _ChainCheck, known: Sequence[str], since: str) -> None:
        for each in (*self._seals, *self._elsewhere):
            if each.seal.day >= since:
                self._check_seal(each, check, known)
        mine = {each.seal.day: each.what for each in self._seals}
        for each in self._elsewhere:
            if not each.is_early and each.seal.day >= since and mine.get(each.seal.day) != each.what:
                what = "is not the one that was kept elsewhere" if each.seal.day in mine else "is missing"
                self._note("missing", days.SEALS, 0, f"the seal of {each.seal.day} {what}")
        for day in known:
            if since <= day < self._today and day not in mine:
                self._note(
                    "note", days.file_of(self._directory, day).name, 0, "the day has ended, and has no seal yet"
                )

    def _check_seal(self, found: _FoundSeal, check: _ChainCheck, known: Sequence[str]) -> None:
        seal, name = found.seal, days.file_of(self._directory, found.seal.day).name
        if seal.day not in known:
            self._check_gone(seal, known)
            return
        day = check.days[seal.day]
        says = f"the seal{'' if found.file else ' that was kept elsewhere'}"
        if day.last_line < seal.lines:
            missing = f"{says} says {seal.lines} lines, and the file ends with line {day.last_line}"
            self._note("missing", name, day.count, missing)
        elif day.last_line > seal.lines and not found.is_early:
            self._note("changed", name, day.count, f"{says} says {seal.lines} lines, and there are more")
        elif seal.lines and day.hashes.get(seal.lines) != seal.last:
            self._note("changed", name, seal.lines, f"{says} says another hash of this line")
        if seal.first and day.hashes.get(1, seal.first) != seal.first:
            self._note("changed", name, 1, f"{says} says another hash of this line")

    def _check_gone(self, seal: Seal, known: Sequence[str]) -> None:
        name = days.file_of(self._directory, seal.day).name
        is_oldest = not any(day < seal.day for day in known)
        is_due = self._keep_s is None or bool(days.expired([seal.day], self._today, self._keep_s))
        if is_oldest and is_due and seal.day < self._today:
            if not any(each.kind == "removed" and each.file == name for each in self._findings):
                self._note("removed", name, 0, "the day was removed; its seal was kept")
        else:
            self._note("missing", name, 0, "the file is missing, and there is a seal of it")

    def _note(self, kind: _Kind, file: str, line: int, what: str) -> None:
        self._findings.append(Finding(kind, file, line, what))


class _PublicKey(Protocol):
    """A key that checks signatures; `fingerprint` names it."""

    fingerprint: str

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Tell whether this is the signature of these bytes."""
        ...


class _FoundSeal(Struct, frozen=True):
    """A seal, and where it is: in which line of a file; a seal that was kept elsewhere has no file."""

    seal: Seal
    file: str
    line: int

    @property
    def what(self) -> tuple[int, str, str]:
        """What it says of the day. The same may be sealed twice."""
        return self.seal.lines, self.seal.first, self.seal.last

    @property
    def is_early(self) -> bool:
        """Tell whether the day had not ended when it was sealed."""
        return self.seal.at[:10] <= self.seal.day


def _parse_seals(
    lines: Sequence[bytes], file: str, keys: Sequence[_PublicKey], findings: list[Finding]
) -> list[_FoundSeal]:
    """Return the seals in these lines, and report those that are none or not signed with one of the keys."""
    found = []
    for number, line in enumerate(lines, start=1):
        data = line if file else line[max(line.find(b"{"), 0) :].rstrip()  # a system log adds a time
        if not file and not data:
            continue
        name = file or "the seals that were kept elsewhere"
        try:
            if file and not data.endswith(b"\n"):
                raise Damaged("has no end")
            chain.check(data)
            seal = read_seal(data)
        except Damaged as exc:
            findings.append(Finding("changed", name, number, str(exc)))
            continue
        if keys and (problem := _check_signature(seal, data.rstrip(), keys)):
            findings.append(Finding("changed", name, number, problem))
        found.append(_FoundSeal(seal, file, number))
    return found


def _check_own(seals: Sequence[_FoundSeal], findings: list[Finding]) -> None:
    """Report seals that do not follow each other."""
    prev, day = chain.ZERO, ""

    def report(kind: _Kind, line: int, what: str) -> None:
        findings.append(Finding(kind, days.SEALS, line, what))

    for each in seals:
        if each.seal.prev != prev:
            report("changed", each.line, "does not follow the seal before it")
        elif each.seal.day <= day:
            report("changed", each.line, f"the seal of {each.seal.day} comes after that of {day}")
        prev, day = each.seal.hash, each.seal.day


def _check_signature(seal: Seal, data: bytes, keys: Sequence[_PublicKey]) -> str:
    """Return what is wrong with a signature; empty if nothing is."""
    signed = _SIGNED.fullmatch(data)
    if signed is None:
        return "is not signed"
    key = next((key for key in keys if key.fingerprint == seal.key), None)
    if key is None:
        return f"is signed with another key, {seal.key[:16]}…"
    is_good = key.has_signed(signed[1] + b"}", base64.b64decode(signed[2] + b"=="))
    return "" if is_good else "has a wrong signature"


class Finding(Struct, frozen=True):
    """Something that was found in a file, at the line of this number; 0 is the file as a whole."""

    kind: _Kind
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.what}"


class _CheckedDay(Struct):
    """What is known of a day's file: how many lines it has, its last number, and the hashes that were asked for."""

    count: int = 0
    last_line: int = 0
    hashes: dict[int, str] = {}


class _Gap(Struct, frozen=True):
    """What a gap line says."""

    reason: str = ""
    last: int = 0
    lines: int = 0
    sha256: str = ""


class _ChainCheck:
    """Goes through the files in the order of their days; the first line may go on from the hashes in `begin`."""

    def __init__(self, findings: list[Finding], begin: frozenset[str]) -> None:
        self.lines = 0
        self.n = 0
        self.last = next(iter(begin), chain.ZERO)
        self.days: dict[str, _CheckedDay] = {}
        self._findings = findings
        self._expected = begin
        self._damaged: list[tuple[int, bytes, str]] = []
        self._file = ""

    def check_day(self, file: Path, wanted: Collection[int]) -> None:
        """Check one file, and keep the hashes of the wanted lines."""
        self._file, self.n = file.name, 0
        day = self.days[days.day_of(file) or ""] = _CheckedDay()
        with file.open("rb") as opened:
            for number, data in enumerate(opened, start=1):
                day.count = number
                self._check(number, data)
                if self.n in wanted:
                    day.hashes[self.n] = self.last
        day.last_line = self.n
        self._report_damaged()

    def _check(self, number: int, data: bytes) -> None:
        self.lines += 1
        try:
            if not data.endswith(b"\n"):
                raise Damaged("has no end")
            link = chain.read_link(data)
        except Damaged as exc:
            self._damaged.append((number, data.removesuffix(b"\n"), str(exc)))
            return
        gap = _read_gap(data)
        if gap is not None:
            self._explain(number, gap)
        if self._damaged:
            self._expected |= {told for _, line, _ in self._damaged for told in _possible_hashes(line)}
        if gap is None or gap.reason not in ("moved", "cut"):
            self._check_place(number, link)
        self._report_damaged()
        self.n, self.last, self._expected = link.n, link.hash, frozenset({link.hash})

    def _check_place(self, number: int, link: Link) -> None:
        """Check that a line follows the one before it."""
        nearest = self.n + 1
        if link.prev in self._expected and nearest <= link.n <= nearest + len(self._damaged):
            return
        if link.n > nearest + len(self._damaged):
            missing = pluralize(link.n - nearest, "line")
            self._find(
                "missing", number, f"{missing} before this one {'is' if missing[:2] == '1 ' else 'are'} missing"
            )
        elif link.n < nearest:
            self._find("changed", number, f"is line {link.n}, and does not belong here")
        elif number == 1:
            self._find("missing", number, "does not follow the last line of the day before")
        else:
            self._find("changed", number, "does not follow the line before it")

    def _explain(self, number: int, gap: _Gap) -> None:
        """Take what the log itself says about a gap before this line."""
        match gap.reason:
            case "torn":
                if self._damaged and hashlib.sha256(self._damaged[-1][1]).hexdigest() == gap.sha256:
                    torn = self._damaged.pop()
                    self._find("gap", torn[0], "a line that was not written whole; the log says so itself")
                else:
                    self._find("changed", number, "the half of a line that it tells of is not before it")
            case "damaged":
                if len(self._damaged) < gap.lines:
                    self._find("missing", number, "the damaged lines that it tells of are not before it")
            case "moved" | "cut":
                how = "was moved away" if gap.reason == "moved" else "was cut off"
                lines = f"what was before, up to line {gap.last}, {how}"
                self._find("missing", number, f"{lines} while the log was written; the log says so itself")
            case "lost":
                lost = (
                    f"{pluralize(gap.lines, 'line')} could not be written" if gap.lines else "lines were not written"
                )
                self._find("gap", number, f"{lost}; the log says so itself")
            case other:
                self._find("gap", number, f"the log itself tells of a gap: {other or 'it says no reason'}")

    def _report_damaged(self) -> None:
        for number, _, why in self._damaged:
            self._find("changed", number, why)
        self._damaged = []

    def _find(self, kind: _Kind, line: int, what: str) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(Finding(kind, self._file, line, what))


def _read_gap(data: bytes) -> _Gap | None:
    if _GAP not in data:
        return None
    try:
        line = chain.read_line(data)
        return decode_as(line.detail, _Gap) if line.event == GAP else None
    except (Damaged, msgspec.MsgspecError):
        return _Gap() if _GAP in data[:200] else None


def _possible_hashes(line: bytes) -> tuple[str, ...]:
    """Return what the line after a damaged one may take for its hash: what it says, or what it should say."""
    told = line[-66:-2].decode("ascii", "replace")
    return told, hashlib.sha256(line[: -len(',"hash":""}') - 64] + b"}").hexdigest()
