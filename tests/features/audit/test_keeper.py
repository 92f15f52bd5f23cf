"""Days that have ended are sealed, signed, and removed in time."""

from __future__ import annotations

import base64
import hmac
import json
import subprocess
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.features.audit import arguments, chain, days, seals
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.keeper import Keeper, Keeping
from dynamic_mcp.features.audit.log import AuditLog
from tests.features.audit.test_log import DAY_S, Time, lines_of
from tests.program import BOUND_S
from tests.windows import is_private

FOR_EVER = 1e9


def write_days(directory: Path, now: Time, *, count: int = 3) -> None:
    """Write two lines on each of these days, the last of them today."""
    log = AuditLog(directory, now=now)
    for day in range(count):
        now.at += DAY_S if day else 0
        for n in range(2):
            log.append(AuditLine(v=VERSION, id=f"{day}-{n}", event="call"))
    log.close()


def keep(directory: Path, now: Time, keeping: Keeping) -> None:
    """Look after a log once."""
    keeper = Keeper(AuditLog(directory, now=now), keeping, now=now)
    keeper.start()
    keeper.close()


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    made = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)]
    try:
        subprocess.run(made, check=True, capture_output=True, timeout=BOUND_S)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return path


def test_ended_days_are_sealed_once(tmp_path: Path, now: Time) -> None:
    write_days(tmp_path, now)
    for _ in range(2):
        keep(tmp_path, now, Keeping(FOR_EVER))
    found = seals.read_seals(tmp_path)
    assert [(seal.day, seal.lines) for seal in found] == [("2026-11-23", 2), ("2026-11-24", 2)]
    for seal in found:
        lines = lines_of(days.file_of(tmp_path, seal.day))
        assert (seal.first, seal.last) == (lines[0]["hash"], lines[-1]["hash"])
    data = (tmp_path / days.SEALS).read_bytes().splitlines()
    assert [chain.check(each) for each in data] == [seal.hash for seal in found]
    assert [seal.prev for seal in found] == [chain.ZERO, found[0].hash]


def test_a_running_program_seals_a_day_with_the_first_line_of_the_next(tmp_path: Path, now: Time) -> None:
    log = AuditLog(tmp_path, now=now)
    keeper = Keeper(log, Keeping(FOR_EVER), now=now)
    log.append(AuditLine(v=VERSION, id="a", event="call"))
    now.at += DAY_S
    log.append(AuditLine(v=VERSION, id="b", event="call"))
    keeper.close()
    assert [seal.day for seal in seals.read_seals(tmp_path)] == ["2026-11-23"]


def test_a_seal_is_signed(tmp_path: Path, now: Time, key: Path) -> None:
    from dynamic_mcp.features.audit import signing

    write_days(tmp_path / "audit", now, count=2)
    keep(tmp_path / "audit", now, Keeping(FOR_EVER, seal_key=key))
    (data,) = (tmp_path / "audit" / days.SEALS).read_bytes().splitlines()
    seal, public = seals.read_seal(data), signing.load_verify_key(key)
    assert seal.key == public.fingerprint
    signed, signature = seals.split_signature(data)
    assert base64.b64encode(signature).decode() == seal.signature
    assert public.has_signed(signed, signature)
    assert not public.has_signed(signed + b" ", signature)


def test_without_its_key_no_day_is_sealed_and_none_removed(
    tmp_path: Path, now: Time, caplog: pytest.LogCaptureFixture
) -> None:
    write_days(tmp_path, now)
    (tmp_path / "key.pem").write_text("no key")
    keep(tmp_path, now, Keeping(0, seal_key=tmp_path / "key.pem"))
    assert seals.read_seals(tmp_path) == []
    assert len(days.list_days(tmp_path)) == 3
    assert "days are not sealed" in caplog.text


def test_days_are_removed_in_time_and_their_seals_stay(tmp_path: Path, now: Time) -> None:
    write_days(tmp_path, now, count=5)
    keep(tmp_path, now, Keeping(2 * DAY_S))
    assert days.list_days(tmp_path) == ["2026-11-25", "2026-11-26", "2026-11-27"]
    assert len(seals.read_seals(tmp_path)) == 4


def test_a_day_that_the_system_does_not_remove_stays_alone(
    tmp_path: Path, now: Time, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_days(tmp_path, now, count=5)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("2026-11-23"):
            raise PermissionError(13, "Access is denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    keep(tmp_path, now, Keeping(2 * DAY_S))
    assert days.list_days(tmp_path) == ["2026-11-23", "2026-11-25", "2026-11-26", "2026-11-27"]
    assert "the audit log of 2026-11-23 stays for now: access is denied" in caplog.text


def test_the_chain_goes_on_from_a_seal_where_all_days_are_removed(tmp_path: Path, now: Time) -> None:
    write_days(tmp_path, now)
    now.at += 10 * DAY_S
    keep(tmp_path, now, Keeping(DAY_S))
    assert days.list_days(tmp_path) == []
    line = AuditLog(tmp_path, now=now).append(AuditLine(v=VERSION, id="a", event="call"))
    assert line.prev == seals.read_seals(tmp_path)[-1].last


def test_half_a_seal_is_left_there(tmp_path: Path, now: Time) -> None:
    write_days(tmp_path, now, count=2)
    (tmp_path / days.SEALS).write_bytes(b'{"v":1,"da')
    keep(tmp_path, now, Keeping(FOR_EVER))
    torn, seal = (tmp_path / days.SEALS).read_bytes().splitlines()
    assert torn == b'{"v":1,"da'
    assert seals.read_seal(seal).day == "2026-11-23"


def test_the_key_of_digests_is_made_once_and_private(tmp_path: Path) -> None:
    key = arguments.load_key(tmp_path / "audit")
    assert arguments.load_key(tmp_path / "audit") == key
    assert len(key) == 32
    assert is_private(tmp_path / "audit" / "key")
    assert [each.name for each in (tmp_path / "audit").iterdir()] == ["key"]


def test_a_digest_is_an_hmac_of_the_arguments_in_canonical_form() -> None:
    record = arguments.ArgumentRecord("keys", lambda: b"k" * 32)
    described = json.loads(bytes(record.describe(Raw(b'{ "b": 2, "a": 1 }'))))
    digest = hmac.digest(b"k" * 32, b'{"a":1,"b":2}', "sha256").hex()
    assert described == {"names": ["b", "a"], "digest": f"hmac:{digest}"}
