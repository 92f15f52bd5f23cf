"""Verifies that the audit log is unchanged: every line, the order of lines and days, and the seals.

Lines that were cut off at the very end leave an intact log, so they show only with a seal that was kept elsewhere. So
does a log that was written anew as a whole, unless its seals are signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from dynamic_mcp.features.audit import chain, days, seals
from dynamic_mcp.features.audit.chain import ChainLink, Damaged
from dynamic_mcp.features.audit.log import GAP
from dynamic_mcp.features.audit.seals import DaySeal
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import pluralize

if TYPE_CHECKING:  # loads cryptography
    from dynamic_mcp.features.audit.signing import SealVerifyKey

# Called with the number of bytes that were read, and of all.
Progress = Callable[[int, int], None]
_MOST_FINDINGS = 1000
# `changed` and `missing` are damage. `gap` is recorded by the log itself, and no recorded line is missing there.
# `removed` is a day that was kept long enough.
_FindingKind = Literal["changed", "missing", "gap", "removed", "note"]
_GAP_EVENT = b'"event":"' + GAP.encode() + b'"'


class LogFinding(Struct, frozen=True):
    """Something that was found in a file, at the line of this number; 0 is the file as a whole."""

    kind: _FindingKind
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.what}"


class Verification(Struct, frozen=True):
    """The result: the number of days, lines and seals, the last line of the log, and the findings.

    `is_anchored` says whether a seal that was kept elsewhere is of the day that the log ends with.
    """

    days: int
    lines: int
    seals: int
    end_day: str
    end_line: int
    end_hash: str
    is_anchored: bool
    findings: tuple[LogFinding, ...]

    @property
    def is_intact(self) -> bool:
        """True if nothing was changed and nothing is missing."""
        return all(each.kind in ("gap", "removed", "note") for each in self.findings)


class _FoundSeal(Struct, frozen=True):
    """A seal, and the line of the file of seals that it is in; None if it was kept elsewhere."""

    seal: DaySeal
    line: int | None

    @property
    def content(self) -> tuple[int, str, str]:
        """The seal's facts about the day. The same day may be sealed twice."""
        return self.seal.lines, self.seal.first, self.seal.last


class Verifier:
    """Verifies the log in a directory. Seals must be signed with one of the `keys`, if there are any.

    `elsewhere` are lines with seals that were kept elsewhere. `keep_s` is how long days are kept; None is unknown.
    """

    def __init__(
        self,
        directory: Path,
        *,
        today: str,
        keys: Sequence[SealVerifyKey] = (),
        elsewhere: Sequence[bytes] = (),
        keep_s: float | None = None,
    ) -> None:
        self._directory = directory
        self._today = today
        self._keys = keys
        self._keep_s = keep_s
        self._findings: list[LogFinding] = []
        self._seals = self._parse_own_seals()
        self._elsewhere = self._parse_seals_kept_elsewhere(elsewhere)

    def verify(self, since: str = "", progress: Progress | None = None) -> Verification:
        """Verify the days since one of them. Raises OSError."""
        day_names = days.list_days(self._directory)
        checked = [day for day in day_names if day >= since]
        check = _ChainCheck(self._findings, self._find_beginning(day_names, checked))
        sizes = {day: days.file_of(self._directory, day).stat().st_size for day in checked}
        read = 0
        for day in checked:
            sealed = {number for each in self._all_seals if each.seal.day == day for number in (1, each.seal.lines)}
            check.check_day(days.file_of(self._directory, day), sealed)
            read += sizes[day]
            if progress is not None:
                progress(read, sum(sizes.values()))
        self._check_seals(check, day_names, since)
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

    # --- reading seals -----------------------------------------------------------------------------------------

    @property
    def _all_seals(self) -> list[_FoundSeal]:
        return [*self._seals, *self._elsewhere]

    def _parse_own_seals(self) -> list[_FoundSeal]:
        """Return the seals beside the log, and report those that are damaged or do not follow each other."""
        found: list[_FoundSeal] = []
        prev, day = chain.ZERO, ""
        for number, line in enumerate(seals.read_seal_lines(self._directory), start=1):
            if not line.endswith(b"\n"):
                self._report("changed", days.SEALS, number, "is incomplete")
                continue
            seal = self._parse_seal(line, days.SEALS, number)
            if seal is None:
                continue
            found.append(_FoundSeal(seal, number))
            if seal.prev != prev:
                self._report("changed", days.SEALS, number, "does not follow the seal before it")
            elif seal.day <= day:
                self._report("changed", days.SEALS, number, f"the seal of {seal.day} comes after that of {day}")
            prev, day = seal.hash, seal.day
        return found

    def _parse_seals_kept_elsewhere(self, lines: Sequence[bytes]) -> list[_FoundSeal]:
        found: list[_FoundSeal] = []
        for number, line in enumerate(lines, start=1):
            data = line[max(line.find(b"{"), 0) :].rstrip()  # a system log adds a time
            seal = self._parse_seal(data, "the seals that were kept elsewhere", number) if data else None
            if seal is not None:
                found.append(_FoundSeal(seal, None))
        return found

    def _parse_seal(self, data: bytes, file: str, number: int) -> DaySeal | None:
        try:
            chain.check(data)
            seal = seals.read_seal(data)
        except Damaged as exc:
            self._report("changed", file, number, str(exc))
            return None
        if self._keys and (problem := _check_signature(seal, data.rstrip(), self._keys)):
            self._report("changed", file, number, problem)
        return seal

    # --- comparing seals with the log --------------------------------------------------------------------------

    def _find_beginning(self, day_names: Sequence[str], checked: Sequence[str]) -> frozenset[str]:
        """Return the hashes that may precede the first line."""
        if not checked:
            return frozenset()
        before = [day for day in day_names if day < checked[0]]
        if before:
            check = _ChainCheck([], frozenset())
            check.check_day(days.file_of(self._directory, before[-1]), ())
            return frozenset({check.last})
        earlier = [each.seal for each in self._all_seals if each.seal.day < checked[0]]
        latest = max((seal.day for seal in earlier), default="")
        return frozenset(seal.last for seal in earlier if seal.day == latest) or frozenset({chain.ZERO})

    def _check_seals(self, check: _ChainCheck, day_names: Sequence[str], since: str) -> None:
        kept_seals = {each.seal.day: each.content for each in self._seals}
        for each in self._all_seals:
            if each.seal.day in day_names and each.seal.day >= since:
                self._check_seal(each, check.days[each.seal.day])
            elif each.seal.day >= since:
                self._check_removed(each.seal, day_names)
        for each in self._elsewhere:
            day = each.seal.day
            if not each.seal.is_early and day >= since and kept_seals.get(day) != each.content:
                what = "is not the one that was kept elsewhere" if day in kept_seals else "is missing"
                self._report("missing", days.SEALS, 0, f"the seal of {day} {what}")
        for day in day_names:
            if since <= day < self._today and day not in kept_seals:
                self._report("note", f"{day}{days.SUFFIX}", 0, "the day has ended, and has no seal yet")

    def _check_seal(self, found: _FoundSeal, day: _CheckedDay) -> None:
        seal, name = found.seal, f"{found.seal.day}{days.SUFFIX}"
        source = "the seal that was kept elsewhere" if found.line is None else "the seal"
        if day.last_line < seal.lines:
            what = f"{source} has {seal.lines} lines, and the file ends with line {day.last_line}"
            self._report("missing", name, day.count, what)
        elif day.last_line > seal.lines and not seal.is_early:
            self._report("changed", name, day.count, f"{source} has {seal.lines} lines, and the file has more")
        elif seal.lines and day.hashes.get(seal.lines) != seal.last:
            self._report("changed", name, seal.lines, f"{source} has another hash of this line")
        if seal.first and day.hashes.get(1, seal.first) != seal.first:
            self._report("changed", name, 1, f"{source} has another hash of this line")

    def _check_removed(self, seal: DaySeal, day_names: Sequence[str]) -> None:
        """Report the file of a day that is missing, as `removed` if it was kept long enough."""
        is_oldest = not any(day < seal.day for day in day_names)
        is_due = self._keep_s is None or bool(days.expired([seal.day], self._today, self._keep_s))
        finding = LogFinding(
            "missing", f"{seal.day}{days.SUFFIX}", 0, "the file is missing, and there is a seal of it"
        )
        if is_oldest and is_due and seal.day < self._today:
            finding = LogFinding("removed", finding.file, 0, "the day was removed; its seal was kept")
            if finding in self._findings:
                return
        self._findings.append(finding)

    def _report(self, kind: _FindingKind, file: str, line: int, what: str) -> None:
        self._findings.append(LogFinding(kind, file, line, what))


def _check_signature(seal: DaySeal, data: bytes, keys: Sequence[SealVerifyKey]) -> str:
    """Return what is wrong with a signature; empty if nothing is."""
    try:
        signed, signature = seals.split_signature(data)
    except Damaged as exc:
        return str(exc)
    key = next((key for key in keys if key.fingerprint == seal.key), None)
    if key is None:
        return f"is signed with another key, {seal.key[:16]}…"
    return "" if key.has_signed(signed, signature) else "has a wrong signature"


class _CheckedDay(Struct):
    """A checked file: how many lines it has, its last number, and the hashes of wanted lines."""

    count: int = 0
    last_line: int = 0
    hashes: dict[int, str] = {}


class _Gap(Struct, frozen=True):
    """The detail of a gap line."""

    reason: str = ""
    last: int = 0
    lines: int = 0
    sha256: str = ""


class _ChainCheck:
    """Goes through the files in the order of their days; the first line may follow one of the hashes in `begin`."""

    def __init__(self, findings: list[LogFinding], begin: frozenset[str]) -> None:
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
        day = self.days[file.name.removesuffix(days.SUFFIX)] = _CheckedDay()
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
                raise Damaged("is incomplete")
            link = chain.read_link(data)
        except Damaged as exc:
            self._damaged.append((number, data.removesuffix(b"\n"), str(exc)))
            return
        gap = _read_gap(data)
        if gap is not None:
            self._explain(number, gap)
        for _, line, _ in self._damaged:
            self._expected |= set(chain.possible_hashes(line))
        if gap is None or gap.reason not in ("moved", "cut"):
            self._check_place(number, link)
        self._report_damaged()
        self.n, self.last, self._expected = link.n, link.hash, frozenset({link.hash})

    def _check_place(self, number: int, link: ChainLink) -> None:
        """Check that a line follows the one before it."""
        nearest = self.n + 1
        if link.prev in self._expected and nearest <= link.n <= nearest + len(self._damaged):
            return
        if link.n > nearest + len(self._damaged):
            missing = link.n - nearest
            verb = "is" if missing == 1 else "are"
            self._report("missing", number, f"{pluralize(missing, 'line')} before this one {verb} missing")
        elif link.n < nearest:
            self._report("changed", number, f"is line {link.n}, and does not belong here")
        elif number == 1:
            self._report("missing", number, "does not follow the last line of the day before")
        else:
            self._report("changed", number, "does not follow the line before it")

    def _explain(self, number: int, gap: _Gap) -> None:
        """Compare a gap line with what is before it."""
        match gap.reason:
            case "torn":
                if self._damaged and hashlib.sha256(self._damaged[-1][1]).hexdigest() == gap.sha256:
                    torn = self._damaged.pop()
                    self._report("gap", torn[0], "a line that was not written whole, as the log itself records")
                else:
                    self._report("changed", number, "the half line that this gap records is not before it")
            case "damaged":
                if len(self._damaged) < gap.lines:
                    self._report("missing", number, "the damaged lines that this gap records are not before it")
            case "moved" | "cut":
                how = "moved away" if gap.reason == "moved" else "cut off"
                what = f"lines up to {gap.last} were {how} while the log was written, as the log itself records"
                self._report("missing", number, what)
            case "lost":
                lost = pluralize(gap.lines, "line") if gap.lines else "lines"
                self._report("gap", number, f"{lost} could not be written, as the log itself records")
            case other:
                self._report("gap", number, f"the log itself records a gap: {other or 'without a reason'}")

    def _report_damaged(self) -> None:
        for number, _, why in self._damaged:
            self._report("changed", number, why)
        self._damaged = []

    def _report(self, kind: _FindingKind, line: int, what: str) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(LogFinding(kind, self._file, line, what))


def _read_gap(data: bytes) -> _Gap | None:
    if _GAP_EVENT not in data:
        return None
    try:
        line = chain.read_line(data)
        return decode_as(line.detail, _Gap) if line.event == GAP else None
    except (Damaged, msgspec.MsgspecError):
        return _Gap() if _GAP_EVENT in data[:200] else None
