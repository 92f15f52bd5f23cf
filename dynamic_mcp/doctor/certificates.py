"""Checks the certificate that clients of a URL see: whether it is trusted, names the host, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from urllib.parse import urlsplit

from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.system.text import os_reason

_WITHIN_S = 10.0
_DAY_S = 86_400.0
_SOON_DAYS = 14
# Of X.509 verification (openssl-verification-options(1)), and what each is for an operator.
_REASONS = {
    10: ("it has expired", "renew it, and reload what serves it"),
    9: ("it is not valid yet", "is the clock of this machine right?"),
    18: ("it is signed by itself", "clients must be given it as a certificate authority, or take a public one"),
    19: ("its chain ends in an authority that this machine does not trust", "take one of a public authority"),
    20: ("its chain is not whole", "serve the intermediate certificates with it (`fullchain.pem`)"),
    21: ("its chain is not whole", "serve the intermediate certificates with it (`fullchain.pem`)"),
    62: ("it is for another host", "it must name the host of the URL (`subjectAltName`)"),
    64: ("it is for another address", "it must name the address of the URL (`subjectAltName`)"),
}


async def check_certificate(
    where: str, url: str, *, context: ssl.SSLContext | None = None, now: float | None = None
) -> list[Finding]:
    """Return the findings about the certificate of a URL with https; none for others."""
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme != "https" or host is None:
        return []
    try:
        async with asyncio.timeout(_WITHIN_S):
            seconds = await _read_end(host, parts.port or 443, context or ssl.create_default_context())
    except ssl.SSLCertVerificationError as exc:
        what, hint = _REASONS.get(exc.verify_code, (exc.verify_message, ""))
        return [warning(where, f"clients refuse the certificate of `{host}`: {what}", hint)]
    except TimeoutError:
        return [warning(where, f"`{host}` does not answer within {_WITHIN_S:.0f} s")]
    except (OSError, UnicodeError) as exc:  # the latter for a label that is empty, or too long
        return [warning(where, f"no connection with TLS to `{host}`: {os_reason(exc)}")]
    days = (seconds - (time.time() if now is None else now)) / _DAY_S
    if days < _SOON_DAYS:
        hint = "does what renews it run?"
        return [warning(where, f"the certificate of `{host}` expires in {days:.0f} days", hint)]
    return [Finding(Level.OK, where, f"the certificate of `{host}` is trusted, and valid for {days:.0f} days")]


async def _read_end(host: str, port: int, context: ssl.SSLContext) -> float:
    """Return when the certificate expires, in seconds since 1970. Raises OSError."""
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        certificate = writer.get_extra_info("peercert")
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
