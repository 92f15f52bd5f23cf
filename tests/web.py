"""A client of HTTP for what is on this machine: it loads no certificate authorities, which takes some time."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from tests.program import BOUND_S


def web_client(**options: Any) -> httpx2.AsyncClient:  # Any: the options of an AsyncClient
    """Return a client that trusts nobody over TLS, and gives up no sooner than other tests do."""
    return httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), **{"timeout": BOUND_S, **options})
