"""`audit verify`: whatever is done to the files is found, but for lines that are cut off at the very end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from dynamic_mcp.features.audit import chain, days, seals, signing
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.features.audit.verify import LogFinding, Verification, Verifier
from tests.examples import examples
from tests.features.audit.written import NOON, calls, line, write_log

TODAY = "2026-11-25"
DAYS = ("2026-11-23", "2026-11-24", TODAY)
EACH = 4
# What a log is: the bytes of its files.
Files = dict[str, bytes]


def write_three_days(directory: Path) -> None:
    """Write three days, of which two are sealed."""
    prev = chain.ZERO
    for number in range(len(DAYS)):
        prev = write_log(directory, calls(EACH, begin=NOON + timedelta(days=number)), prev=prev)
    seals.seal_days(directory, TODAY, now=lambda: (NOON + timedelta(days=2)).timestamp())


def verify(
    directory: Path, *, today: str = TODAY, since: str = "", elsewhere: list[bytes] | None = None
) -> Verification:
    return Verifier(directory, today=today, elsewhere=elsewhere or []).verify(since)


def kinds(found: Verification) -> list[str]:
    return [each.kind for each in found.findings]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_three_days(tmp_path)
    return tmp_path


def make_files() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write_three_days(Path(folder))
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


FILES = make_files()
LOG_FILES = [f"{day}.jsonl" for day in DAYS]


def lines_of(name: str) -> list[bytes]:
    return FILES[name].splitlines(keepends=True)


# --- what may be done to the files --------------------------------------------------------------------------------


def names() -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(FILES))


@st.composite
def changed_byte(draw: st.DrawFn) -> Files:
    name = draw(names())
    data = bytearray(FILES[name])
    place = draw(st.integers(0, len(data) - 1))
    data[place] = draw(st.integers(0, 255).filter(lambda byte: byte != data[place]))
    return {**FILES, name: bytes(data)}


@st.composite
def removed_bytes(draw: st.DrawFn) -> Files:
    name = draw(names())
    data = FILES[name]
    start = draw(st.integers(0, len(data) - 1))
    return {**FILES, name: data[:start] + data[draw(st.integers(start + 1, len(data))) :]}


@st.composite
def added_bytes(draw: st.DrawFn) -> Files:
    name = draw(names())
    data = FILES[name]
    place = draw(st.integers(0, len(data)))
    return {**FILES, name: data[:place] + draw(st.binary(min_size=1, max_size=20)) + data[place:]}


@st.composite
def removed_lines(draw: st.DrawFn) -> Files:
    name = draw(names())
    lines = lines_of(name)
    gone = draw(st.sets(st.integers(0, len(lines) - 1), min_size=1))
    return {**FILES, name: b"".join(each for number, each in enumerate(lines) if number not in gone)}


@st.composite
def moved_lines(draw: st.DrawFn) -> Files:
    name = draw(names())
    return {**FILES, name: b"".join(draw(st.permutations(lines_of(name))))}


@st.composite
def copied_line(draw: st.DrawFn) -> Files:
    source, target = draw(names()), draw(names())
    copied, lines = draw(st.sampled_from(lines_of(source))), lines_of(target)
    lines.insert(draw(st.integers(0, len(lines))), copied)
    return {**FILES, target: b"".join(lines)}


@st.composite
def forged_line(draw: st.DrawFn) -> Files:
    """A line that is right by itself, and takes the place of another or comes between two; not the last of all."""
    name = draw(st.sampled_from(LOG_FILES))
    lines = lines_of(name)
    place = draw(st.integers(0, len(lines) - (2 if name == LOG_FILES[-1] else 1)))
    before = chain.read_link(lines[place - 1]) if place else chain.read_link(lines_of(LOG_FILES[0])[-1])
    forged, _ = chain.finish(chain.encode(structs.replace(line(name="forged"), n=place + 1, prev=before.hash)))
    lines[place : place + draw(st.integers(0, 1))] = [forged]
    return {**FILES, name: b"".join(lines)}


@st.composite
def swapped_files(draw: st.DrawFn) -> Files:
    one, other = draw(st.permutations(sorted(FILES)))[:2]
    return {**FILES, one: FILES[other], other: FILES[one]}


@st.composite
def removed_file(draw: st.DrawFn) -> Files:
    gone = draw(names())
    return {name: data for name, data in FILES.items() if name != gone}


MUTATIONS = st.one_of(
    changed_byte(),
    removed_bytes(),
    added_bytes(),
    removed_lines(),
    moved_lines(),
    copied_line(),
    forged_line(),
    swapped_files(),
    removed_file(),
)


def is_cut_off(files: Files) -> bool:
    """Return whether nothing was done but to cut off whole lines or seals at the very end."""
    log = b"".join(files.get(name, b"") for name in LOG_FILES)
    told = files.get(days.SEALS, b"")
    is_start = FILES[days.SEALS].startswith(told) and (not told or told.endswith(b"\n"))
    return b"".join(FILES[name] for name in LOG_FILES[:2]) in log and is_start and _ends_a_line(log)


def _ends_a_line(log: bytes) -> bool:
    return b"".join(FILES[name] for name in LOG_FILES).startswith(log) and log.endswith(b"\n")


@examples(600)
@given(MUTATIONS)
@example({**FILES, days.SEALS: FILES[days.SEALS][:-1]})
@example({**FILES, LOG_FILES[-1]: FILES[LOG_FILES[-1]][:-1]})
def test_whatever_is_done_to_the_files_is_found_but_for_a_tail_that_is_cut_off(files: Files) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        found = verify(Path(folder))
    unharmed = files == FILES or is_cut_off(files) or is_oldest_day_removed(files)
    assert found.is_intact == unharmed, found.findings


def is_oldest_day_removed(files: Files) -> bool:
    """Return whether nothing was done but what is done with days that were kept long enough."""
    return files == {name: data for name, data in FILES.items() if name != LOG_FILES[0]}


@examples(200)
@given(MUTATIONS)
def test_with_the_seals_kept_elsewhere_a_cut_off_tail_is_found_too(files: Files) -> None:
    kept = [*lines_of(days.SEALS), seal_of_today()]
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        found = verify(Path(folder), elsewhere=kept)
    assert found.is_intact == (files == FILES or is_oldest_day_removed(files)), found.findings


def seal_of_today() -> bytes:
    """Return a seal of the day that has not ended, as somebody may keep one elsewhere."""
    link = chain.read_link(lines_of(LOG_FILES[-1])[-1])
    first = chain.read_link(lines_of(LOG_FILES[-1])[0]).hash
    now = seals.DaySeal(v=1, day=TODAY, lines=link.n, first=first, last=link.hash, at=f"{TODAY}T13:00:00.000Z")
    return chain.finish(chain.encode(now))[0]


# --- what is said -------------------------------------------------------------------------------------------------


def test_a_log_as_it_was_written_is_intact_and_says_where_it_ends(log: Path) -> None:
    found = verify(log)

    last = chain.read_link(days.file_of(log, TODAY).read_bytes().splitlines()[-1])
    assert (found.is_intact, found.findings) == (True, ())
    assert (found.days, found.lines, found.seals) == (3, 3 * EACH, 2)
    assert (found.end_day, found.end_line, found.end_hash) == (TODAY, last.n, last.hash)
    assert not found.is_anchored


def change(file: Path, edit: Callable[[list[bytes]], object]) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    edit(lines)
    file.write_bytes(b"".join(lines))


def test_a_changed_line_is_named_and_the_others_are_not(log: Path) -> None:
    def edit(lines: list[bytes]) -> None:
        lines[1] = lines[1].replace(b"bob", b"eve")

    change(log / LOG_FILES[1], edit)
    assert verify(log).findings == (LogFinding("changed", LOG_FILES[1], 2, "does not match its hash"),)


def test_removed_lines_are_counted_where_they_were(log: Path) -> None:
    change(log / LOG_FILES[2], lambda lines: lines.__delitem__(slice(1, 3)))
    assert verify(log).findings == (LogFinding("missing", LOG_FILES[2], 2, "2 lines before this one are missing"),)


def test_half_a_line_at_the_end_is_found(log: Path) -> None:
    file = log / LOG_FILES[2]
    file.write_bytes(file.read_bytes()[:-20])
    assert verify(log).findings == (LogFinding("changed", LOG_FILES[2], EACH, "is incomplete"),)


def test_days_that_were_removed_are_known_by_their_seals(log: Path) -> None:
    (log / LOG_FILES[0]).unlink()
    assert verify(log).findings == (LogFinding("removed", LOG_FILES[0], 0, "the day was removed; its seal was kept"),)


def test_a_day_that_is_gone_before_its_time_is_missing(log: Path) -> None:
    (log / LOG_FILES[0]).unlink()
    verifier = Verifier(log, today=TODAY, keep_s=180 * 86_400.0)
    assert [str(each) for each in verifier.verify().findings] == [
        f"{LOG_FILES[0]}: the file is missing, and there is a seal of it"
    ]
    assert kinds(Verifier(log, today="2027-11-25", keep_s=180 * 86_400.0).verify())[0] == "removed"


def test_a_day_without_a_seal_is_worth_a_note(log: Path) -> None:
    (log / days.SEALS).unlink()
    found = verify(log)
    assert (found.is_intact, kinds(found)) == (True, ["note", "note"])
    assert [(each.file, each.line) for each in found.findings] == [(name, 0) for name in LOG_FILES[:2]]
    assert [each.file for each in verify(log, since=DAYS[1]).findings] == [LOG_FILES[1]]


def test_the_end_of_the_log_is_anchored_by_a_seal_of_its_day_that_was_kept_elsewhere(log: Path) -> None:
    kept = lines_of(days.SEALS)
    assert not verify(log, elsewhere=kept).is_anchored
    assert verify(log, elsewhere=[*kept, seal_of_today()]).is_anchored


def test_a_seal_that_is_another_than_the_one_kept_elsewhere_is_named_and_so_is_one_that_is_gone(log: Path) -> None:
    first, second = lines_of(days.SEALS)
    (log / days.SEALS).write_bytes(first)
    [gone] = [each for each in verify(log, elsewhere=[first, second]).findings if each.kind == "missing"]
    assert (gone.file, gone.line, gone.what) == (days.SEALS, 0, f"the seal of {DAYS[1]} is missing")

    other = structs.replace(seals.read_seal(first), last=chain.ZERO)
    (log / days.SEALS).write_bytes(chain.finish(chain.encode(other))[0])
    said = [each.what for each in verify(log, elsewhere=[first]).findings]
    assert f"the seal of {DAYS[0]} is not the one that was kept elsewhere" in said


def test_a_log_that_was_written_anew_as_a_whole_is_found_by_its_seals(log: Path) -> None:
    prev = chain.ZERO
    for number, name in enumerate(LOG_FILES):
        (log / name).unlink()
        forged = line(name="forged", at=NOON + timedelta(days=number))
        prev = write_log(log, [forged] * EACH, prev=prev)

    what = "the seal has another hash of this line"
    expected = {LogFinding("changed", name, number, what) for name in LOG_FILES[:2] for number in (1, EACH)}
    assert set(verify(log).findings) == expected


def test_lines_that_were_cut_off_at_the_very_end_are_missing_by_a_seal_that_was_kept_elsewhere(log: Path) -> None:
    change(log / LOG_FILES[-1], lambda lines: lines.pop())
    assert verify(log).is_intact

    assert not verify(log, since=TODAY, elsewhere=[seal_of_today()]).is_intact
    found = verify(log, elsewhere=[seal_of_today()])

    what = f"the seal that was kept elsewhere has {EACH} lines, and the file ends with line {EACH - 1}"
    assert LogFinding("missing", LOG_FILES[-1], EACH - 1, what) in found.findings
    assert not found.is_intact


def test_a_day_that_has_not_ended_is_missing_if_only_a_seal_of_it_is_left(tmp_path: Path) -> None:
    found = verify(tmp_path, elsewhere=[seal_of_today()])
    assert (found.is_intact, kinds(found)) == (False, ["missing"])


def test_a_removed_day_is_told_of_once_however_many_seals_of_it_there_are(log: Path) -> None:
    (log / LOG_FILES[0]).unlink()
    found = verify(log, elsewhere=lines_of(days.SEALS))
    assert (found.is_intact, kinds(found)) == (True, ["removed"])


def test_who_waits_is_told_how_much_was_read_of_how_much_there_is(log: Path) -> None:
    told: list[tuple[int, int]] = []
    Verifier(log, today=TODAY).verify(progress=lambda read, size: told.append((read, size)))
    sizes = [len(FILES[name]) for name in LOG_FILES]
    assert told == [(sum(sizes[:number]), sum(sizes)) for number in (1, 2, 3)]


def test_verifying_since_a_day_goes_on_from_the_day_before(log: Path) -> None:
    change(log / LOG_FILES[0], lambda lines: lines.__delitem__(1))
    assert not verify(log).is_intact
    assert verify(log, since=DAYS[1]).findings == verify(log, since=TODAY).findings == ()
    change(log / LOG_FILES[1], lambda lines: lines.__delitem__(0))
    assert not verify(log, since=DAYS[1]).is_intact


def test_nothing_is_nothing(tmp_path: Path) -> None:
    found = verify(tmp_path / "none")
    assert (found.is_intact, found.lines, found.end_hash) == (True, 0, "")


# --- gaps that the log tells of -----------------------------------------------------------------------------------


def append(directory: Path, *, count: int = 1) -> None:
    log = AuditLog(directory, now=lambda: NOON.timestamp())
    for each in calls(count):
        log.append(each)
    log.close()


def test_a_line_that_was_not_written_whole_is_a_gap_that_the_log_tells_of(tmp_path: Path) -> None:
    append(tmp_path, count=2)
    file = tmp_path / LOG_FILES[0]
    file.write_bytes(file.read_bytes() + b'{"v":1,"n":3,"at":"2026')
    append(tmp_path)

    found = verify(tmp_path, today=DAYS[0])
    assert (found.is_intact, kinds(found)) == (True, ["gap"])
    change(file, lambda lines: lines.__setitem__(2, b'{"v":1,"n":3,"at":"2025\n'))
    assert not verify(tmp_path, today=DAYS[0]).is_intact


@pytest.mark.posix_only("Windows lets nobody rename a file that is open, as the log has that of its day")
def test_lines_that_were_moved_away_or_cut_off_meanwhile_are_missing_and_the_log_says_so(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, now=lambda: NOON.timestamp())
    file = tmp_path / LOG_FILES[0]
    for _ in range(2):
        log.append(line())
    file.rename(tmp_path / "elsewhere")
    log.append(line())
    log.append(line())
    change(file, lambda lines: lines.pop())
    log.append(line())
    log.close()

    found = verify(tmp_path, today=DAYS[0])
    assert not found.is_intact
    assert kinds(found) == ["missing", "missing"]
    assert all("the log itself records" in each.what for each in found.findings)


# --- signatures ---------------------------------------------------------------------------------------------------


def make_key(folder: Path, name: str) -> tuple[signing.SealSigningKey, signing.SealVerifyKey]:
    key = Ed25519PrivateKey.generate()
    raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(key.private_bytes(*raw))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / f"{name}.pub").write_bytes(public)
    return signing.load_signing_key(folder / f"{name}.pem"), signing.load_verify_key(folder / f"{name}.pub")


def findings_with(directory: Path, *keys: signing.SealVerifyKey) -> list[str]:
    return [each.what for each in Verifier(directory, today=TODAY, keys=keys).verify().findings]


def test_seals_are_checked_with_the_key_that_signed_them(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    private, public = make_key(folder := tmp_path_factory.mktemp("keys"), "ours")
    _, other = make_key(folder, "other")
    assert findings_with(log, public) == ["is not signed"] * 2
    (log / days.SEALS).unlink()
    seals.seal_days(log, TODAY, signer=private, now=lambda: (NOON + timedelta(days=2)).timestamp())

    assert findings_with(log) == findings_with(log, public) == findings_with(log, other, public) == []
    assert findings_with(log, other) == [f"is signed with another key, {public.fingerprint[:16]}…"] * 2


def test_a_seal_with_somebody_elses_words_behind_its_signature_is_refused(
    log: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    private, public = make_key(tmp_path_factory.mktemp("keys"), "ours")
    (log / days.SEALS).unlink()
    seals.seal_days(log, TODAY, signer=private, now=lambda: (NOON + timedelta(days=2)).timestamp())
    first, *_ = (log / days.SEALS).read_bytes().splitlines()
    for forged in (first.replace(b'"lines":4', b'"lines":3'), first.replace(b'","hash"', b'","lines":3,"hash"')):
        end = forged.index(b',"hash":')
        (log / days.SEALS).write_bytes(chain.finish(forged[:end] + b"}")[0])
        assert findings_with(log, public)[0] in ("has a wrong signature", "is not signed")
