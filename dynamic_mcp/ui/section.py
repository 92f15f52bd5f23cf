"""The interface between the page and its sections: the kernel's are in `ui`, those of features in their rooms.

A section has the paths below its name, such as `/ui/calls/…`, and a template for each view. It never writes HTML:
what servers, clients and people say is text in every template.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from msgspec import Raw, Struct, field

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.identity import Authentication
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event
from dynamic_mcp.proxy.search import SearchExplanation
from dynamic_mcp.ui.page_turns import PageTurns


class UiContext(Struct):
    """What sections work with. `config` and `http` change with each version of the config.

    `base_url` is the URL of all paths of this server, without a slash at its end, as far as it is known; empty in
    another application, or at a Unix socket. `state_folder` is the state directory of the user. `sections` are all
    sections, in their order. `turns` keep the calls of others going while a page goes through long lists.
    """

    proxy: Proxy
    config: Config
    http: Http
    base_url: str
    state_folder: Path
    sections: tuple[PageSection, ...] = ()
    turns: PageTurns = field(default_factory=PageTurns)


class UiClient(Protocol):
    """A person as a client of the proxy: all that they do passes the rules, and is recorded, as with any client."""

    @property
    def groups(self) -> Sequence[ViewedGroup]:
        """The groups that this person may see."""
        ...

    def group(self, name: str) -> ViewedGroup:
        """Return a group that this person may see. Raises NotFound."""
        ...

    async def begin(self) -> None:
        """Begin the session, if it has not: until then, the catalogs of groups may not be known."""
        ...

    async def explain_search(self, query: str, *, group: str = "") -> SearchExplanation:
        """Return what a model with the rights of this person would find, and why. Raises DynamicMcpError."""
        ...

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        ...


class Visit(Struct, frozen=True):
    """A request of an authenticated person for a page, or for one of its actions.

    An operator sees and does everything; an approver also decides about calls of others. `query` and `form` have the
    last value of each name. `base` is the path of the page, `/ui`, as the browser sees it; `now` is in seconds
    since 1970.
    """

    authentication: Authentication
    roles: tuple[str, ...]
    is_operator: bool
    is_approver: bool
    client: UiClient
    base: str
    now: float
    query: Mapping[str, str] = {}
    form: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """The name of the person, as records have it."""
        return "you" if self.authentication.is_local else self.authentication.principal.subject

    def owns(self, issuer: str, subject: str) -> bool:
        """Return whether something that has this issuer and subject is this person's."""
        principal = self.authentication.principal
        return (principal.issuer, principal.subject) == (issuer, subject)


class PageView(Struct, frozen=True):
    """A page: the template that shows these values.

    In it, what may change while it is open is in blocks: `{% block rows %}<div id="rows" …>…</div>{% endblock %}`.
    Each is fetched by the name of its block, which is the `id` of its element.
    """

    template: str
    title: str
    values: Mapping[str, object] = {}
    status: int = 200


class PageRedirect(Struct, frozen=True):
    """After an action: the path below the page to go on at, such as `approvals?all=1`, and a notice shown once."""

    path: str
    notice: str = ""
    is_error: bool = False


Reply = PageView | PageRedirect | Response
"""A `Response` is for downloads: its headers replace none of those that protect the page."""


def find_page(visit: Visit, pages: int) -> int:
    """Return the page of a list that a visit asks for, of so many."""
    text = visit.query.get("page", "1")
    return min(max(int(text), 1), max(pages, 1)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


class Need(Struct, frozen=True):
    """Something that waits for this person: shown first on the first page, by a template of the section.

    The template gets `need.values` as its variables. `weight` orders: the largest first.
    """

    weight: int
    template: str
    values: Mapping[str, object] = {}


class UsagePoint(Struct, frozen=True):
    """The calls in one step of time, beginning at `at` (seconds since 1970), and how many of them failed."""

    at: float
    calls: int
    errors: int


class UsageCount(Struct, frozen=True):
    """The calls of one tool or client, how many failed, and the bytes of the results."""

    name: str
    calls: int
    errors: int
    bytes: int = 0


class Usage(Struct, frozen=True):
    """What was called in some span of time: over time, and the most used tools and clients, the most used first."""

    points: tuple[UsagePoint, ...]
    tools: tuple[UsageCount, ...]
    clients: tuple[UsageCount, ...]


class PageSection:
    """A part of the page with a place in its navigation. Subclasses override what they have.

    No method blocks the event loop: files and databases are read in threads, and long lists split into turns.
    """

    name: ClassVar[str]
    """The first part of its paths."""
    title: ClassVar[str]
    icon: ClassVar[str]
    """The name of a symbol in `templates/icons.svg`."""
    rank: ClassVar[int]
    """Its place in the navigation, from 0; features leave room to each other in tens."""

    def __init__(self, context: UiContext) -> None:
        self.context = context

    def is_for(self, visit: Visit) -> bool:
        """Return whether this person may open it; else it is not there."""
        return True

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        """Return the page at a path, `rest` being the parts after the section's name; None if there is none.

        A DynamicMcpError becomes a page that shows it.
        """
        return None

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Do what a form at a path asks for. A DynamicMcpError becomes a notice on the page with the form."""
        return None

    def count(self, visit: Visit) -> int:
        """Return how much in it waits for this person, shown in the navigation and in the title. Cheap."""
        return 0

    def stamp(self, visit: Visit) -> Hashable:
        """Return a value that changes when what it shows may have changed. Cheap: it is asked every second."""
        return None

    async def find_needs(self, visit: Visit) -> Sequence[Need]:
        """Return what waits for this person."""
        return ()

    async def find_usage(self, visit: Visit, span_s: float, steps: int) -> Usage | None:
        """Return what this person may see of the calls of the last `span_s` seconds; None if it is not known."""
        return None

    def note(self, visit: Visit, event: str, members: Mapping[str, object]) -> None:
        """Record what a person has done that is no request of a client, as the commands record it."""
        who, principal = visit.authentication, visit.authentication.principal
        identity = {"issuer": principal.issuer, "subject": principal.subject, "provider": who.provider}
        self.context.proxy.note(Event(event, {**members, **identity}))

    async def close(self) -> None:
        """Release what it has opened."""
