"""The certificate of the HTTP server, which can be replaced while it serves."""

from __future__ import annotations

import ssl

from dynamic_mcp.config.http import Tls
from dynamic_mcp.errors import ListenError
from dynamic_mcp.system.text import os_reason


class Certificate:
    """A certificate and its key. Connections opened after `replace` use the new one."""

    def __init__(self, tls: Tls) -> None:
        """Read the files. Raises ListenError."""
        self.context = self._current = _load(tls)
        # a context keeps every certificate ever loaded into it, so each gets a new context
        self.context.sni_callback = self._choose_context

    def replace(self, tls: Tls) -> None:
        """Read the files again, or other files. Raises ListenError, which keeps the old certificate."""
        self._current = _load(tls)

    def _choose_context(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current


def _load(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_refuse_passphrase)
    except ssl.SSLError as exc:
        why = (exc.reason or str(exc)).lower().replace("_", " ")
        raise ListenError(
            f"`{tls.cert}` with the key `{tls.key}` cannot be used for TLS: {why}",
            hint="both must be PEM files that belong together, the key without a passphrase",
        ) from exc
    except OSError as exc:
        why = os_reason(exc)
        raise ListenError(f"the certificate `{tls.cert}` or its key `{tls.key}` cannot be read: {why}") from exc
    return context


def _refuse_passphrase() -> str:
    """Prevent OpenSSL from asking for the passphrase on the terminal."""
    return ""
