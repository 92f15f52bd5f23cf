"""What is found wrong with an audit log before somebody needs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.chain import VERSION, AuditLine
from dynamic_mcp.features.audit.check import check_audit
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.system import acl
from tests.windows import grant


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with one line."""
    written = AuditLog(tmp_path / "audit")
    written.append(AuditLine(v=VERSION, id="1", event="call"))
    written.close()
    return written.directory


def problems(audit: Audit, state: Path) -> list[Finding]:
    return [each for each in check_audit(audit, state) if each.level is not Level.OK]


def pem(path: Path, key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, mode: int = 0o600) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(mode)
    acl.make_private(path)
    return path


def test_a_sound_log_is_said_to_be_one(log: Path, tmp_path: Path) -> None:
    (found,) = check_audit(Audit(), tmp_path)

    assert (found.level, found.what) == (Level.OK, f"written to {log}, kept 180 days")


def test_without_an_audit_log_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(check_audit(None, tmp_path)) == []


def test_a_log_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    assert problems(Audit(path=tmp_path / "new" / "audit"), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix_only("Windows has access control lists")
def test_a_log_that_others_may_read_is_a_warning(log: Path, tmp_path: Path) -> None:
    log.chmod(0o755)
    (found,) = problems(Audit(), tmp_path)

    assert (found.level, found.hint) == (Level.WARNING, f"`chmod 700 {log}`")


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("")
    (found,) = problems(Audit(), tmp_path)

    assert (found.level, found.exit_code) == (Level.ERROR, 2)


def test_a_log_whose_last_line_was_changed_is_found(log: Path, tmp_path: Path) -> None:
    file = days.file_of(log, days.list_days(log)[-1])
    file.write_bytes(file.read_bytes().replace(b'"call"', b'"read"'))
    (found,) = problems(Audit(), tmp_path)

    assert found.what.startswith(f"{file.name} ends with a damaged line")


def test_half_a_line_at_the_end_is_found(log: Path, tmp_path: Path) -> None:
    file = days.file_of(log, days.list_days(log)[-1])
    file.write_bytes(file.read_bytes() + b'{"v":1,"n":2')

    assert [each.level for each in problems(Audit(), tmp_path)] == [Level.WARNING]


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
def test_a_day_that_is_a_link_is_not_followed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("secret")
    days.file_of(log, "9999-01-01").symlink_to(tmp_path / "elsewhere")
    (found,) = problems(Audit(), tmp_path)

    assert found.what.startswith("the log cannot be read")


def test_an_ed25519_key_seals(log: Path, tmp_path: Path) -> None:
    key = pem(tmp_path / "key.pem", ed25519.Ed25519PrivateKey.generate())

    assert problems(Audit(seal_key=key), tmp_path) == []


def test_keys_that_cannot_seal_are_errors(log: Path, tmp_path: Path) -> None:
    other = pem(tmp_path / "rsa.pem", rsa.generate_private_key(65537, 2048))
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN PRIVATE KEY-----\n")
    for key in (other, broken, tmp_path / "missing.pem"):
        (found,) = problems(Audit(seal_key=key), tmp_path)
        assert (found.level, found.where) == (Level.ERROR, "settings.audit.seal_key")


@pytest.mark.skipif(sys.platform != "win32", reason="access control lists of Windows")
def test_what_others_may_use_by_an_access_control_list_is_a_warning(log: Path, tmp_path: Path) -> None:
    key = pem(tmp_path / "key.pem", ed25519.Ed25519PrivateKey.generate())
    acl.make_private(log)
    acl.make_private(key)
    assert problems(Audit(seal_key=key), tmp_path) == []
    grant(log, "(OI)(CI)RX")
    grant(key, "RX")
    in_log, in_key = problems(Audit(seal_key=key), tmp_path)
    assert (in_log.what, in_log.level) == (f"{log} is open to Everyone", Level.WARNING)
    assert in_key.what == "the key can be used by Everyone"
    assert in_key.hint.startswith(f'`icacls "{key}" /inheritance:r ')


@pytest.mark.posix_only("Windows has access control lists")
def test_a_key_that_others_may_read_is_a_warning(log: Path, tmp_path: Path) -> None:
    key = pem(tmp_path / "key.pem", ed25519.Ed25519PrivateKey.generate(), 0o644)
    (found,) = problems(Audit(seal_key=key), tmp_path)

    assert found.hint == f"`chmod 600 {key}`"


def test_whole_arguments_are_a_warning(log: Path, tmp_path: Path) -> None:
    (found,) = problems(replace(Audit(), arguments="full"), tmp_path)

    assert found.where == "settings.audit.arguments"
