"""What a request over HTTP raises. Imports httpx2: load this only where requests are made."""

from __future__ import annotations

import ssl

import httpx2

# httpx2 turns errors of TLS into its own only until the handshake is over. A server with TLS 1.3 that wants a
# certificate of the client says so afterwards, in place of the answer.
REQUEST_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError)
