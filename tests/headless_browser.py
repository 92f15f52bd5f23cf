"""A browser without a window, whose person logs in and presses a button of the page that asks."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlsplit

from tests.web import web_client


class HeadlessBrowser:
    """`user` is whom a reverse proxy would name; without one, the person logs in at an identity provider."""

    def __init__(self, user: str = "", *, decision: str = "allow") -> None:
        self._headers = {"x-forwarded-user": user} if user else {}
        self._decision = decision
        self.pages: list[str] = []

    async def visit(self, url: str) -> str:
        """Open the page where a login begins, decide, and return where the browser is sent."""
        async with web_client(headers=self._headers, follow_redirects=True, trust_env=False) as web:
            page = await web.get(url)
            assert page.status_code == 200, page.text
            self.pages.append(page.text)
            form = _Form(page.text)
            origin = "{0.scheme}://{0.netloc}".format(urlsplit(form.action))
            fields = {**form.fields, "decision": self._decision}
            answer = await web.post(form.action, data=fields, headers={"origin": origin}, follow_redirects=False)
            assert answer.status_code == 303, answer.text
            return str(answer.headers["location"])


class _Form(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = given["action"]
        elif tag == "input":
            self.fields[given["name"]] = given["value"]
