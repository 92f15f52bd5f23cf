"""The `requestState` of a parked call: sealed, so that a client can only hand back what it was given.

A state is `dynamic-mcp.<process>.<nonce and ciphertext>`, AES-256-GCM with a key that lives as long as the process. A
call that is kept on disk has its name behind that, by which another process goes on with it.
The ciphertext is bound to the process, the principal and the request, so a state that another principal presents
or for another request cannot be told from one that was tampered with (MCP 2026-07-28, basic/patterns/mrtr).
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from importlib import import_module

import msgspec

from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.system.decoding import decode_as

_PREFIX = "dynamic-mcp"
# Before a state of an upstream that would look like one of ours.
_UPSTREAM = "upstream:"
_NONCE_BYTES = 12
# A state of ours is short; whatever is longer is not one.
_MAX_STATE_CHARS = 1024


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a state: the parked call, and its round."""

    call: int
    round: int


def load_cipher() -> None:
    """Import what seals, which takes a while."""
    import_module("cryptography.hazmat.primitives.ciphers.aead")


class StateSeal:
    """Seals and opens states with its own key."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.process = secrets.token_hex(8)
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=256))

    def seal(self, ticket: Ticket, binding: bytes, kept: str = "") -> str:
        """Return the state for a ticket, which only this `binding` opens again."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, msgspec.json.encode(ticket), self._bound(binding))
        state = f"{_PREFIX}.{self.process}.{urlsafe_b64encode(nonce + sealed).decode()}"
        return f"{state}.{kept}" if kept else state

    def is_of_other_process(self, state: str) -> bool:
        """Return whether another process has given a state."""
        return not state.startswith(f"{_PREFIX}.{self.process}.")

    def open(self, state: str, binding: bytes) -> Ticket:
        """Return the ticket that was sealed. Raises StateRefused."""
        from cryptography.exceptions import InvalidTag

        process, _, rest = state.removeprefix(f"{_PREFIX}.").partition(".")
        sealed = rest.partition(".")[0]
        if len(state) > _MAX_STATE_CHARS:
            raise StateRefused("invalid")
        if process != self.process:
            raise StateRefused("restarted" if len(process) == len(self.process) and process.isalnum() else "invalid")
        try:
            data = urlsafe_b64decode(sealed.encode())
            if urlsafe_b64encode(data).decode() != sealed:  # the decoder skips what does not belong there
                raise StateRefused("invalid")
            opened = self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._bound(binding))
        except (ValueError, InvalidTag):
            raise StateRefused("invalid") from None
        return decode_as(opened, Ticket)

    def _bound(self, binding: bytes) -> bytes:
        return sha256(self.process.encode() + binding).digest()


def process_of(state: str) -> str:
    """Return the process that a state says to be of; empty if it does not claim to be one of ours."""
    return state.split(".", 2)[1] if is_ours(state) and len(state) <= _MAX_STATE_CHARS else ""


def of_upstream(state: str) -> str:
    """Return what a client gets for the state of an upstream, which may be a dynamic-mcp, too."""
    return f"{_UPSTREAM}{state}" if is_ours(state) or state.startswith(_UPSTREAM) else state


def for_upstream(state: str) -> str:
    """Return the state that an upstream has given, of one that a client sends."""
    return state.removeprefix(_UPSTREAM)


def is_ours(state: str) -> bool:
    """Return whether a state claims to be one of ours; any other one is an upstream's."""
    return state.startswith(f"{_PREFIX}.")


def find_kept(state: str) -> str:
    """Return the name of the call on disk that a state of ours has; empty if it has none."""
    return state.split(".", 3)[3] if state.count(".") == 3 and len(state) <= _MAX_STATE_CHARS else ""
