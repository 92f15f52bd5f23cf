"""A client of HTTP for what is on this machine: it loads no certificate authorities, which takes some time."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2


def web_client(**options: Any) -> httpx2.AsyncClient:  # Any: the options of an AsyncClient
    """Return a client that trusts nobody over TLS."""
    return httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), **options)
