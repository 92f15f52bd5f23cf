"""The page for people: finds out who it is, finds the section of each request, and sends what it answers.

Nothing of it is for other sites: each form has a token of its login, and comes from this origin. What it shows runs
no script but its own, whatever servers and clients have said.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
from msgspec import Struct, structs

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.location import identify
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.http.authenticator import Authenticator, AuthRejection, Page, PageRequest, StreamedPage
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import EVENTS, NO_STORE, Headers
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Replicas
from dynamic_mcp.ui.access import AccessSection
from dynamic_mcp.ui.clients import ClientsSection
from dynamic_mcp.ui.config_view import ConfigSection
from dynamic_mcp.ui.connect import ConnectSection
from dynamic_mcp.ui.cookies import Cookies, PageLogin, PageNotice, load_key
from dynamic_mcp.ui.links import PageLinks
from dynamic_mcp.ui.now import NowSection
from dynamic_mcp.ui.page_turns import PageTurns
from dynamic_mcp.ui.person import Persons
from dynamic_mcp.ui.rendering import Renderer
from dynamic_mcp.ui.section import PageRedirect, PageSection, PageView, Reply, UiContext, Visit
from dynamic_mcp.ui.single_sign_on import find_sign_on
from dynamic_mcp.ui.tools import ToolsSection

log = logging.getLogger(__name__)

PATH = "/ui"
_KERNEL_SECTIONS: tuple[type[PageSection], ...] = (
    NowSection,
    ToolsSection,
    ClientsSection,
    ConnectSection,
    AccessSection,
    ConfigSection,
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
_PROTECTION: Headers = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_HTML: Headers = ((b"content-type", b"text/html; charset=utf-8"), *_PROTECTION, *NO_STORE)
_FOR_GOOD: Headers = ((b"cache-control", b"public, max-age=31536000, immutable"),)
_LOOK_EVERY_S, _ALIVE_EVERY_S, _CHECK_LOGIN_EVERY_S, _STREAM_FOR_S = 1.0, 15.0, 10.0, 600.0
_RENEW_AFTER_S = 600.0


class _Identity(Struct, frozen=True):
    """Who sends a request, and the login that its forms belong to, which may have to be kept in a cookie."""

    authentication: Authentication
    login: PageLogin
    is_new: bool = False


class UiService:
    """The page of one proxy. `configure` must be called before the first request, and with each config."""

    def __init__(
        self,
        proxy: Proxy,
        state_folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        sections: Sequence[type[PageSection]] | None = None,
    ) -> None:
        self._proxy = proxy
        self._state_folder = state_folder
        self._clock = clock
        self._renderer = Renderer(clock)
        self._links = PageLinks(state_folder, clock)
        self._persons = Persons(proxy, clock)
        self._section_types = _list_sections() if sections is None else sections
        self._sections: dict[str, PageSection] = {}
        self._cookies: dict[tuple[Replicas | None, bool], Cookies] = {}
        self._streams = 0
        self._turns = PageTurns()
        self._is_served = False

    def configure(self, config: Config, http: Http, authenticator: Authenticator, base_url: str) -> None:
        """Serve this version of the config from now on; whoever is logged in stays so, if that still counts."""
        self._is_served = True
        self._authenticator = authenticator
        self._settings = config.ui or Ui()
        self._takes_tokens = bool(http.auth)
        self._sign_on = find_sign_on(http, authenticator, f"{base_url}{PATH}")
        self._endpoint = http.path.encode()
        self._base_url = base_url
        self._config_id = identify(config.file)
        root = urlsplit(base_url).path
        self._roots = [each.encode() for each in dict.fromkeys(("", root, http.root_path))]
        self._root = root or http.root_path
        if not self._sections:
            self._context = UiContext(self._proxy, config, http, base_url, self._state_folder, turns=self._turns)
            made = [make(self._context) for make in self._section_types]
            self._sections = {each.name: each for each in sorted(made, key=lambda each: each.rank)}
            self._context.sections = tuple(self._sections.values())
        else:
            self._context.config, self._context.http, self._context.base_url = config, http, base_url
        self._cookies.clear()

    def withdraw(self) -> None:
        """End the pages that are open: the config turns the page off, until `configure` is called again."""
        self._is_served = False

    @property
    def is_watched(self) -> bool:
        """Return whether a browser has the page open."""
        return self._streams > 0

    async def close(self) -> None:
        self._persons.close()
        for section in self._sections.values():
            await section.close()

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return what answers a request at a path of the page; None if it is not one."""
        for root in self._roots:
            below = path.removeprefix(root + PATH.encode())
            if len(below) < len(path) and path.startswith(root) and below[:1] in (b"", b"/"):
                break
        else:
            return None
        parts = tuple(unquote(each) for each in below.decode("latin-1").strip("/").split("/"))
        parts = () if parts == ("",) else parts
        if method == "GET":
            return partial(self._get, parts)
        return partial(self._post, parts) if method == "POST" else None

    # --- requests --------------------------------------------------------------------------------------

    async def _get(self, parts: tuple[str, ...], request: PageRequest) -> Response:
        head = request.head
        if parts[:1] == ("static",):
            return self._send_static("/".join(parts[1:]))
        query = _read_pairs(head.target.partition(b"?")[2])
        if query is None:
            return self._refuse_fields()
        if parts == ("login",) and "link" in query:
            return await self._open_link(head, query["link"])
        if parts == ("login", "sign-on"):
            return await self._begin_sign_on(head)
        if parts == ("login", "callback"):
            return await self._finish_sign_on(head, query)
        identity = await self._identify(head)
        if identity is None:
            return self._ask_to_log_in(head)
        visit = self._visit(identity, head, query)
        if parts == ("events",):
            return self._stream(visit, identity, head)
        if parts == ("login",):
            return self._redirect(head, PageRedirect(""), self._keep(identity, head))
        with self._turns.keep_brisk():
            return await self._show(parts, visit, identity, head)

    async def _show(self, parts: tuple[str, ...], visit: Visit, identity: _Identity, head: RequestHead) -> Response:
        name = parts[0] if parts else NowSection.name
        section = self._find_section(name, visit)
        await self._turns.take()
        try:
            reply = None if section is None else await section.show(visit, *parts[1:])
        except DynamicMcpError as exc:
            reply = PageView("error.html", "That did not work", {"error": exc.message, "hint": exc.hint}, 400)
        if reply is None:
            reply = PageView("error.html", "Not found", {"error": "there is no such page", "hint": ""}, 404)
        await self._turns.take()
        return await self._answer(reply, visit, identity, head, name)

    async def _post(self, parts: tuple[str, ...], request: PageRequest) -> Response:
        head = request.head
        refused = self._refuse_foreign(head)
        if refused is not None:
            return refused
        form, query = _read_pairs(request.body), _read_pairs(head.target.partition(b"?")[2])
        if form is None or query is None:
            return self._refuse_fields()
        if parts == ("login",):
            return await self._log_in(head, form.get("token", "").strip())
        identity = await self._identify(head)
        if identity is None:
            return self._ask_to_log_in(head)
        if not identity.login.may_act(form.get("csrf", "")):
            refused = self._refuse("the form is of another login; reload the page")
            return structs.replace(refused, headers=(*refused.headers, *self._keep(identity, head)))
        if parts == ("logout",):
            return _html(self._render_login(head, "You are logged out."), (self._cookies_for(head).forget_login(),))
        visit = self._visit(identity, head, query, form)
        section = self._find_section(parts[0] if parts else "", visit)
        try:
            reply = None if section is None else await section.act(visit, *parts[1:])
        except DynamicMcpError as exc:
            text = f"{exc.message}; {exc.hint}" if exc.hint else exc.message
            reply = PageRedirect(form.get("back", parts[0] if parts else ""), text, is_error=True)
        if reply is None:
            reply = PageView("error.html", "Not found", {"error": "there is no such action", "hint": ""}, 404)
        await self._turns.take()
        return await self._answer(reply, visit, identity, head, parts[0] if parts else "")

    def _find_section(self, name: str, visit: Visit) -> PageSection | None:
        section = self._sections.get(name)
        return section if section is not None and section.is_for(visit) else None

    # --- who it is -------------------------------------------------------------------------------------

    async def _identify(self, head: RequestHead, *, renews: bool = True) -> _Identity | None:
        """Return who sends a request, by its cookie or by what a reverse proxy says; None if that is not known.

        A login may be renewed by that: then it has to be kept, since the old one is worthless.
        """
        login = self._cookies_for(head).read_login(head)
        if login is not None and (login.config != self._config_id or not login.is_current(self._clock())):
            login = None
        if login is not None and login.kind == "local":
            return _Identity(LOCAL_USER, login)
        if self._authenticator.is_open:  # for MCP, who reaches the address is the local user; here, who has a link
            return None
        if login is not None and login.token:
            found = await self._authenticate(self._with_token(head, login.token))
            if found is not None:
                return _Identity(found, login)
            return await self._renew(head, login) if renews else None
        found = await self._authenticate(head)
        if found is None:
            return None
        return _Identity(found, login or self._new_login("header"), is_new=login is None)

    async def _renew(self, head: RequestHead, login: PageLogin) -> _Identity | None:
        """Return who has logged in by the login server, if that gives another access token."""
        if self._sign_on is None or not login.refresh_token:
            return None
        tokens = await self._sign_on.renew(head, login.refresh_token, login.client_id)
        found = None if tokens is None else await self._authenticate(self._with_token(head, tokens.access_token))
        if tokens is None or found is None:
            return None
        changes = {"token": tokens.access_token, "refresh_token": tokens.refresh_token or login.refresh_token}
        return _Identity(found, structs.replace(login, **changes), is_new=True)

    async def _authenticate(self, head: RequestHead) -> Authentication | None:
        outcome = self._authenticator.authenticate(head)
        found = await outcome if isinstance(outcome, Future) else outcome
        return found if isinstance(found, Authentication) else None

    async def _open_link(self, head: RequestHead, link: str) -> Response:
        """Log in by a link from the terminal, which stands for the local user."""
        if not await asyncio.to_thread(self._links.take, link, self._config_id):
            text = "This link was used, or is older than five minutes. Run `dynamic-mcp ui` again."
            return _html(self._render_login(head, text, is_error=True), status=403)
        return self._begin(head, self._new_login("local"))

    async def _log_in(self, head: RequestHead, token: str) -> Response:
        if not token or not self._takes_tokens or not token.isascii() or not token.isprintable():
            return _html(self._render_login(head, "That is not a token of this server.", is_error=True), status=403)
        outcome = self._authenticator.authenticate(self._with_token(head, token))
        found = await outcome if isinstance(outcome, Future) else outcome
        if isinstance(found, Authentication):
            return self._begin(head, structs.replace(self._new_login("token"), token=token))
        why = found.why if isinstance(found, AuthRejection) else "it cannot be checked now"
        refused = _html(self._render_login(head, f"The token is refused: {why}.", is_error=True), status=403)
        return AuthRejection.of(refused, why, found.provider) if isinstance(found, AuthRejection) else refused

    def _begin(self, head: RequestHead, login: PageLogin) -> Response:
        cookie = self._cookies_for(head).keep_login(login)
        if cookie is None:
            return _html(self._render_login(head, "The token is too long for a cookie.", is_error=True), status=403)
        log.info("a person has logged in to the page by %s", _KINDS[login.kind])
        return Response(303, ((b"location", f"{self._root}{PATH}".encode()), cookie, *_PROTECTION, *NO_STORE))

    async def _begin_sign_on(self, head: RequestHead) -> Response:
        """Send a browser to the login server."""
        if self._sign_on is None:
            return self._ask_to_log_in(head)
        try:
            url, pending = await self._sign_on.begin(head)
        except DynamicMcpError as exc:
            return _html(self._render_login(head, exc.message, is_error=True), status=502)
        cookie = self._cookies_for(head).keep_pending(pending)
        assert cookie is not None  # it is short
        return Response(303, ((b"location", url.encode()), cookie, *_PROTECTION, *NO_STORE))

    async def _finish_sign_on(self, head: RequestHead, query: Mapping[str, str]) -> Response:
        """Log in a browser that comes back from the login server."""
        cookies = self._cookies_for(head)
        pending = cookies.read_pending(head)
        if self._sign_on is None or pending is None:
            body = self._render_login(head, "The login was not begun in this browser.", is_error=True)
            return _html(body, status=403)
        try:
            tokens = await self._sign_on.finish(head, query, pending)
        except DynamicMcpError as exc:
            body = self._render_login(head, f"{exc.message}.", is_error=True)
            return _html(body, (cookies.forget_pending(),), status=403)
        login = structs.replace(
            self._new_login("sign-on"),
            token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            client_id=pending.client_id,
        )
        return self._begin(head, login)

    def _with_token(self, head: RequestHead, token: str) -> RequestHead:
        """Return the head as if a client had sent this token to the MCP endpoint, which tokens are for."""
        headers = {**head.headers, b"authorization": f"Bearer {token}".encode()}
        repeated = head.repeated - {b"authorization"}
        return structs.replace(head, headers=headers, repeated=repeated, target=self._endpoint)

    def _new_login(self, kind: str) -> PageLogin:
        now = self._clock()
        return PageLogin(config=self._config_id, kind=kind, secret=secrets.token_urlsafe(32), since=now, seen=now)

    def _ask_to_log_in(self, head: RequestHead) -> Response:
        if head.headers.get(b"sec-fetch-site") == b"cross-site" and head.method == "GET":
            # the cookie does not come along with a link of another site, but does when our own page goes on
            return _html(self._renderer.render("continue.html", self._plain_values()))
        return _html(self._render_login(head), status=401)

    def _render_login(self, head: RequestHead, text: str = "", *, is_error: bool = False) -> bytes:
        values = {"text": text, "is_error": is_error, "takes_tokens": self._takes_tokens}
        values["signs_on"] = self._sign_on is not None
        return self._renderer.render("login.html", {**self._plain_values(), **values})

    def _refuse_foreign(self, head: RequestHead) -> Response | None:
        """Refuse a form of another origin; browsers that say nothing of the site send an Origin with it."""
        site, origin = head.headers.get(b"sec-fetch-site"), head.headers.get(b"origin", b"")
        if site not in (None, b"same-origin"):
            return self._refuse("a form of another site cannot act here")
        authority = origin.partition(b"://")[2]
        own = (head.headers.get(b"host", b""), urlsplit(self._base_url).netloc.encode())
        if (origin or site is None) and (not authority or authority not in own):
            return self._refuse("a form of another origin cannot act here")
        return None

    def _refuse(self, why: str) -> Response:
        return AuthRejection.of(self._show_refusal(why, 403), why)

    def _refuse_fields(self) -> Response:
        return self._show_refusal("it has too many fields", 400)

    def _show_refusal(self, why: str, status: int) -> Response:
        return _html(self._renderer.render("refused.html", {**self._plain_values(), "error": why}), status=status)

    # --- answers ---------------------------------------------------------------------------------------

    def _visit(
        self, identity: _Identity, head: RequestHead, query: Mapping[str, str], form: Mapping[str, str] = {}
    ) -> Visit:
        who = identity.authentication
        roles = frozenset(self._proxy.roles_of(who)) | frozenset(who.roles)
        is_operator = who.is_local or bool(roles & {*self._settings.operators})
        return Visit(
            authentication=who,
            roles=tuple(sorted(roles)),
            is_operator=is_operator,
            is_approver=is_operator or bool(roles & {*self._settings.approvers}),
            client=self._persons.find(who, head.peer),
            base=f"{self._root}{PATH}",
            now=self._clock(),
            query=query,
            form=form,
        )

    async def _answer(
        self, reply: Reply, visit: Visit, identity: _Identity, head: RequestHead, name: str
    ) -> Response:
        cookies, kept = self._cookies_for(head), self._keep(identity, head)
        match reply:
            case PageRedirect():
                return self._redirect(head, reply, kept)
            case Response():
                return Response(reply.status, (*reply.headers, *kept, *_PROTECTION, *NO_STORE), reply.body)
        notice = cookies.read_notice(head)
        if notice is not None:
            kept.append(cookies.forget_notice())
        values = self._values(reply, visit, identity.login, notice, name)
        block = head.headers.get(b"x-fragment", b"").decode("latin-1")
        if block:
            if notice is not None:
                mark = "!" if notice.is_error else ""
                kept.append((b"x-notice", quote(mark + notice.text).encode()))
            pieces = self._renderer.generate_block(reply.template, block, values)
            if pieces is None:
                return Response(204, (*_HTML, *kept))
        else:
            pieces = self._renderer.generate(reply.template, values)
        text = "".join([piece async for piece in self._turns.split(pieces)])
        return _html(text.encode("utf-8", "replace"), kept, reply.status)

    def _keep(self, identity: _Identity, head: RequestHead) -> list[tuple[bytes, bytes]]:
        """Return the header that keeps a login, if the browser does not have it like this."""
        now = self._clock()
        if not identity.is_new and now - identity.login.seen <= _RENEW_AFTER_S:
            return []
        cookie = self._cookies_for(head).keep_login(structs.replace(identity.login, seen=now))
        return [] if cookie is None else [cookie]

    def _redirect(
        self, head: RequestHead, redirect: PageRedirect, kept: Sequence[tuple[bytes, bytes]] = ()
    ) -> Response:
        path = redirect.path.lstrip("/")
        location = f"{self._root}{PATH}" + (f"/{quote(path, safe=_URL_CHARACTERS)}" if path else "")
        notice = None
        if redirect.notice:
            text = (
                redirect.notice
                if len(redirect.notice) <= _LONGEST_NOTICE
                else redirect.notice[:_LONGEST_NOTICE] + "…"
            )
            notice = self._cookies_for(head).keep_notice(PageNotice(text, redirect.is_error))
        cookies = (*kept, *(() if notice is None else (notice,)))
        return Response(303, ((b"location", location.encode()), *cookies, *_PROTECTION, *NO_STORE))

    def _values(
        self, view: PageView, visit: Visit, login: PageLogin, notice: PageNotice | None, name: str
    ) -> Mapping[str, object]:
        counts = self._count(visit)
        nav = [(each, counts.get(each.name, 0)) for each in self._sections.values() if each.is_for(visit)]
        return {
            **self._plain_values(),
            "title": view.title,
            "visit": visit,
            "nav": nav,
            "section": name,
            "csrf": login.form_token,
            "notice": notice,
            "waiting": sum(counts.values()),
            "may_log_out": login.kind != "header",
            "config_name": Path(self._context.config.file).name,
            **view.values,
        }

    def _plain_values(self) -> Mapping[str, object]:
        base = f"{self._root}{PATH}"
        return {"base": base, "static": f"{base}/static", "version": self._renderer.version}

    def _count(self, visit: Visit) -> dict[str, int]:
        sections = (each for each in self._sections.values() if each.is_for(visit))
        return {each.name: count for each in sections if (count := each.count(visit))}

    def _send_static(self, name: str) -> Response:
        found = self._renderer.static.get(name)
        if found is None:
            return Response(404, _PROTECTION)
        content, kind = found
        return Response(200, ((b"content-type", kind), *_PROTECTION, *_FOR_GOOD), content)

    def _cookies_for(self, head: RequestHead) -> Cookies:
        is_secure = head.is_secure or self._base_url.startswith("https:")
        place = (self._proxy.replicas, is_secure)
        cookies = self._cookies.get(place)
        if cookies is None:
            replicas = self._proxy.replicas
            key = load_key(self._state_folder) if replicas is None else replicas.derive_key(_COOKIES)
            cookies = self._cookies[place] = Cookies(key, self._config_id, f"{self._root}{PATH}", is_secure=is_secure)
        return cookies

    # --- events ----------------------------------------------------------------------------------------

    def _stream(self, visit: Visit, identity: _Identity, head: RequestHead) -> StreamedPage:
        # a page that is only open is no use of it, so a login that is not new is not kept for longer
        kept = self._keep(identity, head) if identity.is_new else ()
        return StreamedPage(200, (*EVENTS, *_PROTECTION, *kept), pieces=self._events(visit, head))

    async def _events(self, visit: Visit, head: RequestHead) -> AsyncIterator[bytes]:
        """Say how much waits for a person, and when what a section shows may have changed, for some minutes."""
        self._streams += 1
        try:
            async for event in self._watch(visit, head):
                yield event
        finally:
            self._streams -= 1

    async def _watch(self, visit: Visit, head: RequestHead) -> AsyncIterator[bytes]:
        section = self._find_section(visit.query.get("section", ""), visit)
        before: object = None
        began = alive = checked = time.monotonic()
        changes = 0
        while self._is_served and (now := time.monotonic()) - began < _STREAM_FOR_S:
            await self._turns.take()
            counts, stamp = self._count(visit), None if section is None else section.stamp(visit)
            if (counts, stamp) != before:
                changes += before is not None
                before, alive = (counts, stamp), now
                data = {"counts": counts, "waiting": sum(counts.values()), "changes": changes}
                yield b"event: state\ndata: " + msgspec.json.encode(data) + b"\n\n"
            elif now - alive > _ALIVE_EVERY_S:
                alive = now
                yield b": alive\n\n"
            if now - checked > _CHECK_LOGIN_EVERY_S:
                checked = now
                identity = await self._identify(head, renews=False)
                if identity is None:
                    return
                visit = self._visit(identity, head, visit.query)  # rights may have changed, and time has
                section = self._find_section(visit.query.get("section", ""), visit)
            await asyncio.sleep(_LOOK_EVERY_S)


_URL_CHARACTERS = "/?=&%:+,~!*'();@$-_."
_LONGEST_NOTICE = 1000
_MOST_FIELDS = 1000
_COOKIES = b"cookies of the page"
_KINDS = {"local": "a link", "token": "a token", "sign-on": "the login server"}


def _list_sections() -> list[type[PageSection]]:
    """Return the sections of the kernel and of all features."""
    of_features = (each.load(each.page).list_sections() for each in FEATURES if each.page)
    return [*_KERNEL_SECTIONS, *(section for sections in of_features for section in sections)]


def _html(body: bytes, more: Sequence[tuple[bytes, bytes]] = (), status: int = 200) -> Response:
    return Response(status, (*_HTML, *more), body)


def _read_pairs(text: bytes) -> dict[str, str] | None:
    """Return the last value of each name; None if there are more than any form of the page has."""
    try:
        return dict(parse_qsl(text.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return None
