"""The Python SDK's client with its OAuth, as programs use it, and the person who logs in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.headless_browser import HeadlessBrowser
from tests.login_program import REDIRECT
from tests.program import BOUND_S
from tests.web import web_client


class Storage:
    """What a client keeps of its login."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class SdkClient:
    """The Python SDK's client with its OAuth, and the person who uses it."""

    def __init__(self, url: str, browser: HeadlessBrowser, document: str | None = None) -> None:
        self.url = url
        self.browser = browser
        self.storage = Storage()
        self.logins: list[str] = []
        self.metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="SDK <b>client</b>")
        self.document = document

    @contextlib.asynccontextmanager
    async def connected(self, *, is_expired: bool = False) -> AsyncIterator[Client]:
        provider = OAuthClientProvider(
            self.url,
            self.metadata,
            self.storage,
            redirect_handler=self._redirect,
            callback_handler=self._call_back,
            client_metadata_url=self.document,
        )
        if is_expired:
            await provider._initialize()  # noqa: SLF001 - the SDK reads its storage so, and nothing else expires it
            provider.context.token_expiry_time = 1
        async with (
            web_client(auth=provider, trust_env=False, timeout=BOUND_S) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client

    async def _redirect(self, url: str) -> None:
        self.logins.append(await self.browser.visit(url))

    async def _call_back(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(self.logins[-1]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])
