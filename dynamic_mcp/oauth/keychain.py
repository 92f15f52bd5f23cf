"""The system's keychain, by the package `keyring`. Each function raises OSError.

`python -m dynamic_mcp.oauth.keychain NAME` prints a secret, for `${keyring:NAME}` in a config: a keychain may wait
for its owner, and a process can be ended.

Windows' Credential Manager takes 2,560 bytes for a secret (`CRED_MAX_CREDENTIAL_BLOB_SIZE`), which are 1,280
characters, and tokens are often longer. There a long secret is kept in parts, and the entry with its name says which.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Iterator

_SERVICE = "dynamic-mcp"
_MOST_CHARACTERS = 1200
# How often to begin again if another process replaces the secret while it is read.
_MOST_READS = 3


def read(name: str) -> str | None:
    """Return a secret; None if there is none."""
    for _ in range(_MOST_READS):
        head = _call("get_password", name)
        parts = [_call("get_password", part) for part in _list_parts(name, head)]
        if not parts:
            return head
        if None not in parts:
            return "".join(part or "" for part in parts)
    return None


def write(name: str, secret: str, *, platform: str = sys.platform) -> None:
    """Store a secret of ASCII characters, in place of the previous one."""
    previous = [*_list_parts(name, _call("get_password", name))] if platform == "win32" else []
    head = secret
    if platform == "win32" and len(secret) > _MOST_CHARACTERS:
        texts = [secret[start : start + _MOST_CHARACTERS] for start in range(0, len(secret), _MOST_CHARACTERS)]
        head = json.dumps({"parts": len(texts), "of": secrets.token_hex(4)})
        for part, text in zip(_list_parts(name, head), texts, strict=True):
            _call("set_password", part, text)
    _call("set_password", name, head)  # from now on the new parts are read
    for part in previous:
        with contextlib.suppress(OSError):
            _call("delete_password", part)


def delete(name: str) -> None:
    """Delete a secret."""
    for part in _list_parts(name, _call("get_password", name)):
        _call("delete_password", part)
    _call("delete_password", name)


def _list_parts(name: str, head: str | None) -> Iterator[str]:
    """Yield the names of the parts of a secret that is kept in parts."""
    if head is not None and head.startswith('{"parts": '):
        value = json.loads(head)
        for number in range(value["parts"]):
            yield f"{name}.{value['of']}.{number}"


def _call(action: str, name: str, *secret: str) -> str | None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        from dynamic_mcp.system.extras import install_hint

        raise OSError(f"the keychain requires a package; {install_hint('keyring')}") from None
    try:
        password: str | None = getattr(keyring, action)(_SERVICE, name, *secret)
        return password
    except KeyringError as exc:
        raise OSError(f"the keychain did not work: {str(exc) or type(exc).__name__}") from exc
    except Exception as exc:
        if not hasattr(exc, "winerror"):  # `pywintypes.error`, which keyring passes on
            raise
        raise OSError(f"the keychain did not work: {exc}") from exc


def main(name: str) -> str:
    """Print a secret. Return the reason if there is none."""
    try:
        secret = read(name)
    except OSError as exc:
        return str(exc)
    if secret is None:
        return f"the keychain has no entry `{name}` of `{_SERVICE}`"
    sys.stdout.buffer.write(secret.encode() + b"\n")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or 0)
