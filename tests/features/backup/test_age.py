"""The encryption of backups: the format of age, as its own program reads and writes it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path

import pytest

from dynamic_mcp.features.backup.age import AgeError, Decryptor, Encryptor, WrongPassphrase

PASSPHRASE = "secret"
CHUNK = 64 * 1024


def encrypt(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    target = io.BytesIO()
    encryptor = Encryptor(target, passphrase)
    for start in range(0, len(data), 10_000):
        encryptor.write(data[start : start + 10_000])
    encryptor.finish()
    return target.getvalue()


def decrypt(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    return io.BufferedReader(Decryptor(io.BytesIO(data), passphrase)).read()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5])
def test_what_was_encrypted_is_decrypted(size: int) -> None:
    data = os.urandom(size)
    assert decrypt(encrypt(data)) == data


def test_a_passphrase_that_is_guessed_takes_128_mib_for_each_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert encrypt(b"x").splitlines()[1].endswith(b" 17")


def test_the_same_content_is_never_encrypted_the_same() -> None:
    assert encrypt(b"x") != encrypt(b"x")


def test_another_passphrase_opens_nothing() -> None:
    with pytest.raises(WrongPassphrase):
        decrypt(encrypt(b"x"), "secret2")


@pytest.mark.parametrize("left", [0, 10, 60, 150, CHUNK + 16, CHUNK + 200, 2 * CHUNK + 100])
def test_a_stream_that_was_cut_off_is_not_whole(left: int) -> None:
    with pytest.raises(AgeError):
        decrypt(encrypt(bytes(2 * CHUNK))[:left])


def test_a_stream_that_ends_with_a_whole_chunk_is_not_whole() -> None:
    whole = encrypt(bytes(2 * CHUNK + 1))
    with pytest.raises(AgeError):
        decrypt(whole[: -(1 + 16)])


def test_each_byte_that_is_changed_is_noticed() -> None:
    whole = encrypt(b"content")
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(AgeError):
            decrypt(bytes(damaged))


def test_chunks_that_change_places_are_noticed() -> None:
    whole = encrypt(os.urandom(3 * CHUNK))
    sealed = CHUNK + 16
    body = len(whole) - 3 * sealed
    first, second = whole[body : body + sealed], whole[body + sealed : body + 2 * sealed]
    with pytest.raises(AgeError):
        decrypt(whole[:body] + second + first + whole[body + 2 * sealed :])


def test_a_header_that_wants_all_memory_is_refused() -> None:
    whole = encrypt(b"x").replace(b" 10\n", b" 30\n", 1)
    with pytest.raises(AgeError, match="memory"):
        decrypt(whole)


@pytest.mark.full
def test_the_program_age_reads_what_is_written_and_is_read(tmp_path: Path) -> None:
    if shutil.which("age") is None:
        pytest.skip("age is not installed")
    content = os.urandom(3 * CHUNK + 1)
    ours, theirs, out = tmp_path / "ours", tmp_path / "theirs", tmp_path / "out"
    ours.write_bytes(encrypt(content))
    (tmp_path / "plain").write_bytes(content)
    _run_age(["--decrypt", "-o", str(out), str(ours)], "secret", times=1)
    assert out.read_bytes() == content
    _run_age(["--passphrase", "-o", str(theirs), str(tmp_path / "plain")], "their secret", times=2)
    assert decrypt(theirs.read_bytes(), "their secret") == content


def _run_age(arguments: list[str], passphrase: str, *, times: int) -> None:
    """Run it on a terminal, where alone it takes a passphrase."""
    import pty  # which Windows has not

    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("age", ["age", *arguments])  # noqa: S606 - a shell is of no use to it
    shown = b""
    for number in range(1, times + 1):
        while shown.lower().count(b"passphrase") < number or not shown.rstrip().endswith(b":"):
            shown += os.read(terminal, 4096)
        os.write(terminal, passphrase.encode() + b"\n")
        shown += os.read(terminal, 4096)
    with contextlib.suppress(OSError):  # it has ended, and so has its terminal
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
