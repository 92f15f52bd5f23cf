"""Encrypts a stream with a passphrase in the format of age, version 1, so that `age --decrypt` opens it too.

https://c2sp.org/age: a header with a random key, wrapped by scrypt, then chunks of ChaCha20-Poly1305, of which the
last one is marked. So a stream that was cut off or changed is not taken for a whole one.
"""

from __future__ import annotations

import binascii
import hmac
import io
import os
import re
from base64 import b64decode, b64encode
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

INTRO = b"age-encryption.org/v1\n"
_SCRYPT_LABEL = b"age-encryption.org/v1/scrypt"
# The base-2 logarithm of scrypt's cost: 128 MiB, which OWASP names as the least. Others may have taken more.
COST, _MOST_COST = 17, 20
_CHUNK, _TAG, _KEY, _NONCE = 64 * 1024, 16, 16, 16
_STANZA = re.compile(rb"-> scrypt ([A-Za-z0-9+/]{22}) ([1-9][0-9]?)\n([A-Za-z0-9+/]{43})\n--- ([A-Za-z0-9+/]{43})\n")
# Of a header with one passphrase, as its format has it: no other is as long.
_MOST_HEADER = 256


class AgeError(Exception):
    """The stream cannot be decrypted; the text says why."""


class WrongPassphrase(AgeError):
    """The passphrase is not that of the stream."""


class Encryptor(io.RawIOBase):
    """Encrypts what is written. Only a stream that was finished is whole."""

    def __init__(self, target: BinaryIO, passphrase: str) -> None:
        key, salt, nonce = os.urandom(_KEY), os.urandom(16), os.urandom(_NONCE)
        wrapped = _wrapping(passphrase, salt, COST).encrypt(bytes(12), key, None)
        head = INTRO + b"-> scrypt %s %d\n%s\n---" % (_encode(salt), COST, _encode(wrapped))
        target.write(head + b" " + _encode(_mac(key, head)) + b"\n" + nonce)
        self._target, self._payload = target, ChaCha20Poly1305(_derive(key, nonce, b"payload"))
        self._buffer, self._count = bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        piece = memoryview(data)  # type: ignore[arg-type]  # whatever has bytes
        self._buffer += piece
        while len(self._buffer) > _CHUNK:  # the last chunk may be full, and is never empty
            self._seal(bytes(self._buffer[:_CHUNK]), is_last=False)
            del self._buffer[:_CHUNK]
        return len(piece)

    def finish(self) -> None:
        """Write the last chunk."""
        self._seal(bytes(self._buffer), is_last=True)

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        self._target.write(self._payload.encrypt(_chunk_nonce(self._count, is_last=is_last), chunk, None))
        self._count += 1


class Decryptor(io.RawIOBase):
    """The content of an encrypted stream. Raises AgeError where it is read, and at once for a wrong passphrase."""

    def __init__(self, source: BinaryIO, passphrase: str) -> None:
        key = _open_header(source, passphrase)
        nonce = source.read(_NONCE)
        if len(nonce) < _NONCE:
            raise AgeError("it is cut off")
        self._source, self._payload = source, ChaCha20Poly1305(_derive(key, nonce, b"payload"))
        self._count, self._chunk, self._ahead = 0, b"", source.read(_CHUNK + _TAG)
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        room = memoryview(buffer)  # type: ignore[arg-type]  # whatever has room for bytes
        if not self._chunk and not self._is_over:
            self._open_next()
        taken = min(len(room), len(self._chunk))
        room[:taken] = self._chunk[:taken]
        self._chunk = self._chunk[taken:]
        return taken

    def _open_next(self) -> None:
        sealed, self._ahead = self._ahead, self._source.read(_CHUNK + _TAG)
        self._is_over = not self._ahead
        try:
            self._chunk = self._payload.decrypt(_chunk_nonce(self._count, is_last=self._is_over), sealed, None)
        except (InvalidTag, ValueError):
            raise AgeError("it is damaged or cut off") from None
        self._count += 1


def _open_header(source: BinaryIO, passphrase: str) -> bytes:
    """Return the key of the file. Raises AgeError."""
    lines = [source.readline(_MOST_HEADER) for _ in range(4)]
    match = _STANZA.fullmatch(b"".join(lines[1:]))
    if lines[0] != INTRO:
        raise AgeError("it is not encrypted with age")
    if match is None:
        raise AgeError("it is damaged, or was not encrypted with a passphrase alone")
    cost = int(match[2])
    if cost > _MOST_COST:
        raise AgeError(f"opening it would take {1 << (cost - 20)} GiB of memory" if cost < 40 else "it is damaged")
    try:
        salt, wrapped, mac = map(_decode, (match[1], match[3], match[4]))
        key = _wrapping(passphrase, salt, cost).decrypt(bytes(12), wrapped, None)
    except InvalidTag:
        raise WrongPassphrase("the passphrase is wrong") from None
    except (binascii.Error, ValueError):
        raise AgeError("it is damaged") from None
    head = b"".join(lines)
    if not hmac.compare_digest(_mac(key, head[: head.rindex(b"---") + 3]), mac):
        raise AgeError("it is damaged")
    return key


def _wrapping(passphrase: str, salt: bytes, cost: int) -> ChaCha20Poly1305:
    scrypt = Scrypt(salt=_SCRYPT_LABEL + salt, length=32, n=1 << cost, r=8, p=1)
    return ChaCha20Poly1305(scrypt.derive(passphrase.encode("utf-8", "surrogateescape")))


def _derive(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, purpose).derive(key)


def _mac(key: bytes, head: bytes) -> bytes:
    return hmac.digest(_derive(key, b"", b"header"), head, "sha256")


def _chunk_nonce(count: int, *, is_last: bool) -> bytes:
    return count.to_bytes(11, "big") + bytes([is_last])


def _encode(data: bytes) -> bytes:
    return b64encode(data).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    """Return what a text encodes. Raises ValueError; each content has one text alone."""
    data = b64decode(text + b"=" * (-len(text) % 4), validate=True)
    if _encode(data) != text:
        raise ValueError("not canonical")
    return data
