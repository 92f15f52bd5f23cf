"""The page of a proxy with fake servers, and a browser in memory: cookies, forms, and what a page says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

from msgspec.structs import replace

from dynamic_mcp.config.auth import BearerAuth, NamedToken
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.location import identify
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.http.authenticator import PageRequest, StreamedPage
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.ui.links import PageLinks
from dynamic_mcp.ui.section import PageSection
from dynamic_mcp.ui.service import UiService
from tests.fakes import Opener, config_of

URL = "http://127.0.0.1:8808"
TOKENS = {"ann": "ann-0123456789abcdef", "bob": "bob-0123456789abcdef", "eve": "eve-0123456789abcdef"}
"""Ann is an operator, Bob an approver, and Eve neither."""
_ROLES: Mapping[str, tuple[str, ...]] = {"ann": ("admins",), "bob": ("checkers",), "eve": ("staff",)}


def bearer_http() -> Http:
    """Return the options of a server that takes the tokens of Ann, Bob and Eve."""
    tokens = tuple(NamedToken(token=token, subject=name, roles=_ROLES[name]) for name, token in TOKENS.items())
    return Http(auth=(BearerAuth(tokens=tokens),))


class Document(HTMLParser):
    """What a page says, and what is in it: texts, links, forms, and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._texts: list[str] = []
        self.feed(html)

    @property
    def text(self) -> str:
        """What a reader sees, with single spaces."""
        return " ".join("".join(self._texts).split())

    @property
    def raw_text(self) -> str:
        """The texts as they are, as in the fields of forms."""
        return "".join(self._texts)

    def find(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """Return the attributes of elements that have these."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [found for name, found in self.tags if name == tag and wanted.items() <= found.items()]

    @property
    def form_token(self) -> str:
        return self.find("input", name="csrf")[0]["value"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


class Answer:
    """The answer of the page to one request."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.status = response.status
        self.headers = {name.decode(): value.decode() for name, value in response.headers}
        self.document = Document(response.body.decode("utf-8", "replace"))

    @property
    def text(self) -> str:
        return self.document.text


class Browser:
    """A browser of one person, without JavaScript. It keeps cookies, and sends what browsers send of a site."""

    def __init__(self, service: UiService, *, host: str = "127.0.0.1:8808") -> None:
        self._service = service
        self._host = host
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, headers: Mapping[str, str] | None = None, *, site: str = "same-origin") -> Answer:
        return await self._send("GET", path, b"", {"sec-fetch-site": site, **(headers or {})})

    async def post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        """Send a form of this origin, with the token that the last page had."""
        own = {"origin": f"http://{self._host}", "sec-fetch-site": "same-origin"}
        return await self._send("POST", path, urlencode(fields).encode(), {**own, **(headers or {})})

    async def act(self, path: str, fields: Mapping[str, str] | None = None, *, on: str = "/ui") -> Answer:
        """Send a form of the page at `on`."""
        token = (await self.get(on)).document.form_token
        return await self.post(path, {**(fields or {}), "csrf": token})

    async def stream(self, path: str) -> StreamedPage:
        response = await self._respond("GET", path, b"", {"sec-fetch-site": "same-origin"})
        assert isinstance(response, StreamedPage)
        return response

    async def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return Answer(await self._respond(method, path, body, headers))

    def _keep_cookies(self, response: Response) -> None:
        for name, value in response.headers:
            if name == b"set-cookie":
                key, _, rest = value.decode().partition("=")
                content, _, attributes = rest.partition(";")
                if "Max-Age=0" in attributes:
                    self.cookies.pop(key, None)
                else:
                    self.cookies[key] = content

    async def _respond(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        sent = {"host": self._host, **headers}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        lines = {name.encode(): value.encode() for name, value in sent.items()}
        page = self._service.find_page(method, path.partition("?")[0].encode())
        assert page is not None, path
        response = await page(PageRequest(RequestHead(method, path.encode(), lines, peer="127.0.0.1"), body))
        self._keep_cookies(response)
        return response


class Site:
    """The page of one proxy. `now` is its clock."""

    def __init__(
        self, proxy: Proxy, config: Config, folder: Path, sections: Sequence[type[PageSection]] | None
    ) -> None:
        self.proxy = proxy
        self.config = config
        self.folder = folder
        self.now = 1_800_000_000.0
        self.service = UiService(proxy, folder, clock=lambda: self.now, sections=sections)
        self._providers = ProviderPool()

    def configure(self, config: Config | None = None, http: Http | None = None, base_url: str = URL) -> None:
        """Serve the page of this config; by default anybody who reaches it may use MCP."""
        self.config = config or self.config
        http = http or Http()
        authenticator = self._providers.make_authenticator(http, self.config.file)
        self.service.configure(self.config, http, authenticator, base_url)

    def browser(self) -> Browser:
        return Browser(self.service)

    def make_link(self) -> str:
        """Return the path of a link that the user of the terminal gets."""
        links = PageLinks(self.folder, lambda: self.now)
        return f"/ui/login?link={links.create(identify(self.config.file))}"

    async def local_user(self) -> Browser:
        """Return the browser of the local user, who has opened a link."""
        browser = self.browser()
        assert (await browser.get(self.make_link(), site="none")).status == 303
        return browser

    async def person(self, name: str) -> Browser:
        """Return the browser of a person who has shown a token."""
        browser = self.browser()
        assert (await browser.post("/ui/login", {"token": TOKENS[name]})).status == 303
        return browser


@contextlib.asynccontextmanager
async def site_of(
    folder: Path,
    config: Config | None = None,
    opener: Opener | None = None,
    sections: Sequence[type[PageSection]] | None = None,
    *,
    catalog_store: CatalogStore | None = None,
) -> AsyncIterator[Site]:
    """Run a proxy with its page, whose state is in this folder."""
    config = replace(config or config_of(), file=folder / "config.json")
    proxy = Proxy(config, opener=opener or Opener(), state_folder=folder, catalog_store=catalog_store)
    site = Site(proxy, config, folder, sections)
    site.configure()
    try:
        yield site
    finally:
        await site.service.close()
        await proxy.close()
