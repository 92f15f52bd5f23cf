"""The cookie that keeps a person logged in: sealed, so that it says nothing, and no process has to remember it.

The key is in a private file of the state directory, which all processes of the user share, or replicas have the same
one; with another key, all cookies are worthless. A person who has shown a token is asked for it with each request
again, inside of the cookie: one that is revoked or expires ends the login with it.
"""

from __future__ import annotations

import contextlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_private
from dynamic_mcp.ui.links import FOLDER
from dynamic_mcp.ui.single_sign_on import SignOnAttempt

# How long somebody stays logged in who does nothing, and altogether.
IDLE_S, LONGEST_S = 12 * 3600.0, 7 * 24 * 3600.0
# Browsers keep 4096 bytes of a cookie with its name and attributes.
_MOST_CHARS = 3800
_NONCE_BYTES, _KEY_BYTES = 12, 32

T = TypeVar("T", bound=Struct)


class PageLogin(Struct, frozen=True, kw_only=True):
    """What a cookie says. Times are seconds since 1970.

    Its `kind` is `local`, who has opened a link from the terminal; `token`, who has shown this one; `sign-on`, who
    has got this one from the login server, which renews it by `refresh_token` for `client_id`; or `header`, who is
    named with each request, by a reverse proxy. `secret` is of this login alone: form tokens follow from it.
    `config` is whose page it is for.
    """

    config: str
    kind: str
    token: str = ""
    refresh_token: str = ""
    client_id: str = ""
    secret: str = ""
    since: float = 0.0
    seen: float = 0.0

    def is_current(self, now: float) -> bool:
        return 0 <= now - self.since < LONGEST_S and now - self.seen < IDLE_S

    @property
    def form_token(self) -> str:
        """What every form of this login must have."""
        return sha256(f"form {self.secret}".encode()).hexdigest()

    def may_act(self, form_token: str) -> bool:
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


class PageNotice(Struct, frozen=True):
    """What came of an action, for the next page."""

    text: str
    is_error: bool = False


class Cookies:
    """Seals and opens the cookies of the page of one config; `is_secure` says whether it is reached over HTTPS.

    `path` is that of the page. Browsers send cookies to all ports of a host, so what else runs there gets them only
    at this path.
    """

    def __init__(self, key: bytes, config: str, path: str, *, is_secure: bool) -> None:
        self._cipher = AESGCM(key)
        self._is_secure = is_secure
        self._path = "/" if is_secure else path  # the prefix is for no other
        # cookies do not tell ports apart, and with this prefix, other hosts of the domain cannot set one
        # (RFC 6265bis, section 4.1.3.2)
        mark = sha256(config.encode("utf-8", "replace")).hexdigest()[:8]
        prefix = "__Host-" if is_secure else ""
        self._login, self._notice, self._pending = (
            f"{prefix}dynamic-mcp-{name}-{mark}" for name in ("ui", "notice", "sign-on")
        )

    def read_login(self, head: RequestHead) -> PageLogin | None:
        return self._read(head, self._login, PageLogin)

    def read_notice(self, head: RequestHead) -> PageNotice | None:
        return self._read(head, self._notice, PageNotice)

    def read_pending(self, head: RequestHead) -> SignOnAttempt | None:
        return self._read(head, self._pending, SignOnAttempt)

    def keep_login(self, login: PageLogin) -> tuple[bytes, bytes] | None:
        """Return the header that keeps a login; None if its token is too long for a cookie."""
        return self._set(self._login, login, f"Max-Age={LONGEST_S:.0f}")

    def keep_notice(self, notice: PageNotice) -> tuple[bytes, bytes] | None:
        return self._set(self._notice, notice, "Max-Age=60")

    def keep_pending(self, pending: SignOnAttempt) -> tuple[bytes, bytes] | None:
        return self._set(self._pending, pending, "Max-Age=900")

    def forget_pending(self) -> tuple[bytes, bytes]:
        return self._header(self._pending, "", "Max-Age=0")

    def forget_login(self) -> tuple[bytes, bytes]:
        return self._header(self._login, "", "Max-Age=0")

    def forget_notice(self) -> tuple[bytes, bytes]:
        return self._header(self._notice, "", "Max-Age=0")

    def _set(self, name: str, value: Struct, lifetime: str) -> tuple[bytes, bytes] | None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, msgspec.msgpack.encode(value), name.encode())
        text = urlsafe_b64encode(sealed).decode().rstrip("=")
        return self._header(name, text, lifetime) if len(text) <= _MOST_CHARS else None

    def _header(self, name: str, text: str, lifetime: str) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._is_secure else ""
        return (
            b"set-cookie",
            f"{name}={text}; Path={self._path}; {lifetime}; HttpOnly; SameSite=Strict{secure}".encode(),
        )

    def _read(self, head: RequestHead, name: str, kind: type[T]) -> T | None:
        text = head.headers.get(b"cookie", b"").decode("latin-1")
        pairs = (each.strip().partition("=") for each in re.split("[;,]", text))
        value = next((value for key, _, value in pairs if key == name), "")
        try:
            sealed = urlsafe_b64decode(value + "=" * (-len(value) % 4))
            data = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
            return msgspec.msgpack.decode(data, type=kind)
        except (ValueError, InvalidTag, msgspec.DecodeError):
            return None


def load_key(state_folder: Path) -> bytes:
    """Return the key of this user's cookies, which is made with the first page. Raises OSError."""
    file = state_folder / FOLDER / "key"
    with contextlib.suppress(FileNotFoundError):
        key = read_private(file)
        if len(key) == _KEY_BYTES:
            return key
    paths.claim_private_dir(file.parent)
    lock = paths.FileLock(file.parent / "lock")
    with lock.held(5.0):
        with contextlib.suppress(FileNotFoundError):
            key = read_private(file)
            if len(key) == _KEY_BYTES:
                return key
        key = secrets.token_bytes(_KEY_BYTES)
        paths.write_private(file, key)
    return key
