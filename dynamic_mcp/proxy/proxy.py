"""The use cases of MCP in front of many groups, put together: who answers what, and who hears what."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.client import OURSELVES, Client, User
from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.features.table import FEATURES, Feature
from dynamic_mcp.groups.assignment import Place
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import SUPPORTED
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.capabilities import capabilities
from dynamic_mcp.proxy.chain import Chains, MakeStep, Services
from dynamic_mcp.proxy.gates import GateContext, Gates
from dynamic_mcp.proxy.log_levels import LogLevels
from dynamic_mcp.proxy.request import (
    ApprovalCounts,
    Event,
    Observers,
    Replicas,
    Request,
    group_changed,
    link_opened,
)
from dynamic_mcp.proxy.resource_subscriptions import ResourceSubscriptions
from dynamic_mcp.proxy.router import Extensions, Router, UseCase, list_use_cases
from dynamic_mcp.proxy.subscriptions import Snapshot, Subscriptions, take_snapshot
from dynamic_mcp.proxy.tools import Tools
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.proxy.views import Views
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.upstream.open import OpenLink, open_link

if TYPE_CHECKING:  # loaded with the first request, message or server that needs them
    from dynamic_mcp.config.resolved import Embeddings
    from dynamic_mcp.groups.shared_catalogs import SharedCatalogs
    from dynamic_mcp.mcp.mirrored_headers import HeaderParameters
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.proxy.apps import OpenApps
    from dynamic_mcp.proxy.cache_hints import CacheHint
    from dynamic_mcp.proxy.connected_users import ConnectedUsers
    from dynamic_mcp.proxy.direct_listing import ToolUses
    from dynamic_mcp.proxy.elicitations import Elicitations
    from dynamic_mcp.proxy.logins import LoginOffers
    from dynamic_mcp.proxy.own_tools import OwnTool
    from dynamic_mcp.proxy.parked_calls import ParkedCalls
    from dynamic_mcp.proxy.resources import Resources
    from dynamic_mcp.proxy.result_store import ResultStore
    from dynamic_mcp.proxy.search import SearchExplanation, ToolSearch
    from dynamic_mcp.proxy.skills import Skills
    from dynamic_mcp.proxy.surface import Surface
    from dynamic_mcp.proxy.tasks import Tasks
    from dynamic_mcp.proxy.transparent import Transparent
    from dynamic_mcp.proxy.upstream_messages import UpstreamMessages
    from dynamic_mcp.system.shared_store import SharedStore

# Servers start first: what is not needed for that begins this long after a client was greeted; if no client says
# hello, it begins after the other time.
_SERVERS_FIRST_S = 0.5
_HELLO_WITHIN_S = 5.0


class Proxy:
    """Answers every client from the groups of one config, and tells each what it wants to hear of them.

    Where each client has a workspace, `has_base` is False: nothing is started in the proxy's own environment. It may
    become true before a config is applied. `steps` replaces those of features. `open_logins` is called for the first
    remote server. What not every client or server needs is made when it is first needed.
    """

    def __init__(
        self,
        config: Config,
        *,
        opener: OpenLink | None = None,
        catalog_store: CatalogStore | None = None,
        vectors: Path | None = None,
        open_logins: Callable[[], Logins] | None = None,
        clock: Clock | None = None,
        state_folder: Path | None = None,
        has_base: bool = True,
        steps: Mapping[str, MakeStep] | None = None,
    ) -> None:
        self.has_base, self._clock = has_base, clock or LoopClock()
        base = self._base = self._base_of(config)
        self._catalog_store = catalog_store
        self._shared_catalogs: SharedCatalogs | None = None
        self._open_logins, self._vectors = open_logins, vectors
        self._embeddings: Embeddings | None = None
        # parts that are created on first use: how each is closed, and how it releases a client
        self._parts, self._releases = AsyncExitStack(), list[Callable[[Client], None]]()
        self._logins = cache(self._create_logins)
        self._login_offers = cache(self._create_login_offers)
        self._elicitations = cache(self._create_elicitations)
        self._tasks, self._results = cache(self._create_tasks), cache(self._create_results)
        self._search, self._resources = cache(self._create_search), cache(self._create_resources)
        self._open_apps = cache(self._create_open_apps)
        self._skills = cache(self._create_skills)
        opener = opener or partial(open_link, logins=self._logins)
        self.groups = Groups(base, self, opener=opener, catalog_store=catalog_store)
        self.is_initialized = asyncio.Event()  # a client has been greeted
        self.changed = asyncio.Event()  # its clients, or the state of a group; who waits for it clears it
        self._subscriptions = Subscriptions(self.view_for, self._surface_for, self._snapshot)
        self._gates = Gates(GateContext(self.note, self._subscriptions.announce_soon))
        self._views = Views({None: base}, self.groups, self._gates)
        self._log_levels = LogLevels(self._subscriptions, self.groups.that_may_serve)
        self._resource_subscriptions = ResourceSubscriptions()
        self._set_embeddings(config)
        self._services = Services(
            self.view_for, self.roles_of, self.note, self._on_lists_changed, base, self._clock, state_folder
        )
        self._chains = chains = Chains(self._services, steps)
        uses = cache(self._read_uses)
        self._tools = Tools(chains, self._tasks, self._search, self._results, self._open_apps, uses)
        self._services.own_tools = self._tools.own_tools
        use_cases = list_use_cases(
            chains, self._tools, self._log_levels, resources=self._resources, skills=self._skills, tasks=self._tasks
        )
        extensions = Extensions(chains, self._tools.direct_listing)
        self._router = Router(use_cases, self._login_offers, self._elicitations, extensions.answer)
        self._answer_of_one: UseCase | None = None
        self._govern(base, [base])

    def _create_skills(self) -> Skills:
        from dynamic_mcp.proxy.skills import Skills

        return Skills(self._chains)

    def _create_resources(self) -> Resources:
        from dynamic_mcp.proxy.resources import Resources

        return Resources(self._chains, self._results(), self._resource_subscriptions, self._open_apps)

    def _create_open_apps(self) -> OpenApps:
        from dynamic_mcp.proxy.apps import OpenApps

        return OpenApps(self._services)

    def find_opened_apps(self, key: str) -> list[str]:
        """Return the groups of which a client without a session has read a page here; `key` says who it is."""
        return self._open_apps().groups_of(key)

    @property
    def shared_store(self) -> SharedStore | None:
        """What this process shares with other replicas; None if its config names no store."""
        return self._services.shared_store

    def set_shared_store(self, store: SharedStore | None) -> None:
        if store is not self._services.shared_store:
            self._chains.share(store)
            if (logins := self._logins()) is not None:
                logins.share(store)
            self._gates.share(store)
            self._share_catalogs(store)

    def _share_catalogs(self, store: SharedStore | None) -> None:
        if self._shared_catalogs is not None:
            self._shared_catalogs.end()
            self._shared_catalogs = None
        if store is not None and self._catalog_store is not None:
            from dynamic_mcp.groups.shared_catalogs import SharedCatalogs

            self._shared_catalogs = SharedCatalogs(store, self._catalog_store)

    async def wait_for_shared(self, within_s: float) -> None:
        """Wait until it is known what other replicas hold back, and what servers offer, for so long each at most."""
        await self._gates.wait_for_shared(within_s)
        if self._shared_catalogs is not None:
            await self._shared_catalogs.fetch([group.config for group in self.groups], within_s)

    def count_with(self, open_counts: Callable[[], SharedStore]) -> None:
        """Count calls for limits in a store, which is opened once a limit wants it. To be called before any call."""
        self._services.open_counts = open_counts

    @cached_property
    def _transparent(self) -> Transparent:
        from dynamic_mcp.proxy.transparent import Transparent

        return Transparent(
            self._chains,
            self._tasks(),
            self._resources(),
            self._skills,
            self._subscriptions,
            self._login_offers,
            self._elicitations,
        )

    def _create_search(self) -> ToolSearch:
        from dynamic_mcp.proxy.search import ToolSearch

        search = ToolSearch(self._group_views, self._vectors)
        self._parts.push_async_callback(search.close)
        return search

    def _create_tasks(self) -> Tasks:
        from dynamic_mcp.proxy.tasks import Tasks

        tasks = Tasks(self._chains, self._subscriptions)
        self._parts.push_async_callback(tasks.close)
        self._releases.append(tasks.release)
        return tasks

    def _create_elicitations(self) -> Elicitations:
        from dynamic_mcp.proxy.elicitations import Elicitations

        elicitations = Elicitations()
        self._releases.append(elicitations.release)
        return elicitations

    @cached_property
    def _messages(self) -> UpstreamMessages:
        from dynamic_mcp.proxy.upstream_messages import UpstreamMessages

        return UpstreamMessages(
            self._views,
            self._chains,
            self._tasks(),
            self._elicitations(),
            self._subscriptions,
            self._resource_subscriptions,
        )

    @cached_property
    def _users(self) -> ConnectedUsers:
        from dynamic_mcp.proxy.connected_users import ConnectedUsers

        return ConnectedUsers(self._add_user, self._remove_user)

    def _create_login_offers(self) -> LoginOffers:
        from dynamic_mcp.proxy.logins import LoginOffers

        offers = LoginOffers(self._logins(), self._subscriptions)
        self._parts.callback(offers.close)
        self._releases.append(offers.release)
        return offers

    @property
    def logins(self) -> Logins | None:
        """The logins at servers, if there are any."""
        return self._logins()

    def _create_logins(self) -> Logins | None:
        logins = None if self._open_logins is None else self._open_logins()
        if logins is not None:
            logins.on_login = self._note_login
            logins.link_mark = lambda: "" if self.replicas is None else self.replicas.link_mark
            if self._services.shared_store is not None:
                logins.share(self._services.shared_store)
        return logins

    @property
    def result_store(self) -> ResultStore:
        """The results that were too long for their answers."""
        return self._results()

    def _create_results(self) -> ResultStore:
        from dynamic_mcp.proxy.result_store import ResultStore

        results = ResultStore(self._services)
        self._releases.append(results.release)
        self._parts.push_async_callback(results.close)
        return results

    def _read_uses(self) -> ToolUses:
        """Return how often tools were called before this proxy began, so that listings keep their order."""
        from dynamic_mcp.proxy.tool_uses import read_uses

        return read_uses(self._services.state_folder)

    @cached_property
    def parked_calls(self) -> ParkedCalls:
        """The calls that wait for their modern clients, of all faces."""
        from dynamic_mcp.proxy.parked_calls import ParkedCalls

        return ParkedCalls()

    def join_replicas(self, replicas: Replicas | None) -> None:
        """Be one of several replicas from now on; None is alone."""
        self._services.replicas = replicas
        self._subscriptions.has_replicas = replicas is not None

    def find_wishes(self, client: Client) -> tuple[str, tuple[str, ...]] | None:
        """Return the log level and the resources that a client has asked for.

        None if a server of it knows its session, so that no other process can go on with that.
        """
        if not all(_is_same_elsewhere(group.group) for group in self.view_for(client)):
            return None
        return self._subscriptions.level_of(client), self._resource_subscriptions.uris_of(client)

    @property
    def replicas(self) -> Replicas | None:
        """The processes that serve the same clients; None if this one is alone."""
        return self._services.replicas

    @property
    def approvals(self) -> ApprovalCounts | None:
        """The counts of approval questions; None while no rule has wanted any."""
        return self._services.approvals

    @property
    def observers(self) -> Observers | None:
        return self._services.observers

    @observers.setter
    def observers(self, observers: Observers | None) -> None:
        self._services.observers = observers
        self._services.has_been_observed |= observers is not None
        self._chains.reset()
        self._compile_answers()

    @property
    def clients(self) -> Iterable[Client]:
        """The clients that have been greeted."""
        return self._subscriptions

    def apply(self, config: Config, by_workspace: Mapping[Workspace, Config] | None = None) -> None:
        """Serve another config from now on; the clients hear of the lists that this changes.

        `by_workspace` has the config for each workspace that is to be known from now on.
        """
        base = self._base = self._base_of(config)
        configs: dict[Place, Config] = {None: base, **dict((by_workspace or {}).items())}
        if base.has_user_logins:
            configs |= {each: base.for_user(each) for each in self._users.adopt(self._subscriptions)}
        elif self.groups.has_user_logins:
            self._users.forget()
        before = {client: self.view_for(client) for client in self._subscriptions}
        self.groups.apply(configs, partial(self._views.apply, configs))
        self._govern(base, configs.values())
        self._set_embeddings(config)
        self._resource_subscriptions.reopen(partial(self._find_new_group, before))
        self._learn_vectors()
        self._subscriptions.announce_soon()

    def _set_embeddings(self, config: Config) -> None:
        """Find tools by this config's endpoint, too, or by words alone."""
        if config.embeddings != self._embeddings:
            self._embeddings = config.embeddings
            self._search().configure(config.embeddings)

    def _learn_vectors(self) -> None:
        """Learn vectors for all known tools in the background, where the config asks for that."""
        if self._embeddings is not None:
            self._search().learn()

    async def prepare(self, config: Config) -> None:
        """Open what a config needs that is to be applied. Raises ConfigError, and then nothing has changed."""
        await self._chains.prepare(config)

    async def open(self, config: Config) -> None:
        """Open what the config needs that is served: until then, what passes a plug-in is refused.

        Raises ConfigError.
        """
        if await self._chains.prepare(config):
            self._chains.apply([config])
            self._compile_answers()

    def _govern(self, config: Config, configs: Iterable[Config]) -> None:
        """Have requests decided as this config says, and those of all places."""
        services = self._services
        services.config = config
        services.has_access_rules = self._views.are_governed
        if services.approvals is None and config.asks:
            services.approvals = ApprovalCounts()
        self._chains.apply(configs)
        self._add_own_tools(config)
        self._compile_answers()

    def _add_own_tools(self, config: Config) -> None:
        """Offer the tools of features, those that any config has wanted so far, as this one says."""
        own_tools = self._tools.own_tools
        for feature in FEATURES:
            if feature.own_tools and feature.is_wanted(config):
                for name in feature.own_tools.keys() - own_tools.keys():
                    own_tools[name] = self._make_own_tool(feature, name)
        for tool in own_tools.values():
            tool.apply(config)

    def _make_own_tool(self, feature: Feature, name: str) -> OwnTool:
        from dynamic_mcp.proxy.own_tools import OwnToolContext  # with the first such tool

        context = OwnToolContext(
            self.view_for,
            self.answer,
            self._tools.finder_for,
            self._results,
            self._clock,
            self._chains.ask_ahead,
            self._services.state_folder,
            lambda: self._services.shared_store,
        )
        tool: OwnTool = feature.load(feature.own_tools[name]).make_tool(context)
        self._parts.push_async_callback(tool.close)
        return tool

    def _on_lists_changed(self) -> None:
        """Called when a step shows other lists."""
        self._compile_answers()
        self._subscriptions.announce_soon()

    def _compile_answers(self) -> None:
        """Put together by what requests are answered, of clients of all groups and of one alone."""
        self._list_changers = self._chains.find_list_changers()
        self._answer = self._compile_answer(self._router.answer)
        self._answer_of_one = None

    def _compile_answer(self, answer: UseCase) -> UseCase:
        services = self._services
        for changer in self._list_changers:
            answer = partial(changer.answer, answer)
        if services.observers is None:
            return answer
        if services.has_access_rules:
            from dynamic_mcp.proxy.hidden import HiddenThings

            answer = partial(HiddenThings(self._views, self.note).answer, answer)
        return partial(services.observers.answer, answer)

    def note(self, event: Event) -> None:
        """Send observers an event that is no request."""
        if self.observers is not None:
            self.observers.note(event)

    def _note_login(self, group: str, user: Principal | None) -> None:
        if self.observers is not None:
            from dynamic_mcp.proxy.client_events import event_of_login

            self.note(event_of_login(group, user))

    def add_workspace(self, workspace: Workspace, config: Config) -> None:
        """Serve a workspace from now on, with the groups that this config has for it."""
        self.groups.add(workspace, config)
        self._views.add(workspace, config)

    def remove_workspace(self, workspace: Workspace) -> None:
        """Forget a workspace that no client has any more, and end the groups that no other one uses."""
        self._views.remove(workspace, self.groups.remove(workspace))

    def _add_user(self, user: Principal) -> None:
        """Add groups for a user: the common ones, and one for each server that it logs in to."""
        config = self._base.for_user(user)
        self.groups.add(user, config)
        self._views.add(user, config)

    def _remove_user(self, user: Principal) -> None:
        self._views.remove(user, self.groups.remove(user))
        self._login_offers().forget(user)

    def complain(self, text: str, *, level: str = "error") -> None:
        """Send every client a log message of the proxy itself, unless it asked for worse only."""
        self._subscriptions.complain(text, level)

    async def close(self) -> None:
        """End every group."""
        self._subscriptions.close()
        self._log_levels.close()
        self._resource_subscriptions.close()
        await self._parts.aclose()
        await self._chains.close()
        await self.groups.close()
        if self._shared_catalogs is not None:
            await self._shared_catalogs.close()
        await self._gates.close()

    def has_place(
        self, authentication: Authentication, only: str | None, profile: str | None, *, may_be_empty: bool = False
    ) -> bool:
        """Return whether clients without a workspace may see this group alone, or choose this profile.

        Unless it `may_be_empty`, a profile that the access rules leave empty for a client does not exist for it.
        """
        if profile is not None and not self._views.has_profile(profile):
            return False
        if only is None and (profile is None or may_be_empty or not self._views.have_rules):
            return True
        view = self._views.view_of(authentication, profile)
        return bool(view.names) if only is None else view.get(only) is not None

    def header_parameters(
        self, tool: str, authentication: Authentication, only: str | None, profile: str | None
    ) -> HeaderParameters:
        """Return which parameters of a tool are repeated in headers, as far as it is known.

        `tool` is its listed name, for clients without a workspace that see all groups, or `only` one.
        """
        view = self._views.view_of(authentication, profile, place=self.groups.place_for(authentication))
        return self._tools.header_parameters(view if only is None else view.single(only), tool)

    # --- what a client asks ----------------------------------------------------------------------------

    def roles_of(self, authentication: Authentication) -> tuple[str, ...]:
        """Return a principal's roles, by the current config."""
        return self._views.roles_of(authentication)

    def view_for(self, client: Client) -> View:
        """Return what a client may see."""
        if self.groups.has_user_logins:
            self._users.note(client)
        return self._views.view_for(client)

    async def explain_search(self, client: Client, query: str, *, group: str = "") -> SearchExplanation:
        """Return what a query would find for the model of a client, in all groups or in one, and why.

        Raises NotFound and Disabled.
        """
        view = self.view_for(client)
        return await self._search().explain(client, view, query, group=view.group(group, "tools") if group else None)

    def answer(self, request: Request) -> Awaitable[Frame]:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        if request.client.only is None:
            return self._answer(request)
        if self._answer_of_one is None:
            self._answer_of_one = self._compile_answer(self._transparent.answer)
        return self._answer_of_one(request)

    def notify(self, request: Request) -> None:
        (self._router if request.client.only is None else self._transparent).notify(request)

    async def initialize(self, client: Client) -> dict[str, object]:
        """Begin to serve a client that has said what it is; returns the members of the `initialize` result.

        Raises DynamicMcpError if the one group that the client sees cannot be reached.
        """
        self.groups.start(client)
        initialize_result = {} if client.only is None else await self._transparent.initialize(client, self.view_for)
        self._add(client)
        return initialize_result or {"protocolVersion": client.hello.revision.name, **self._describe(client)}

    def _add(self, client: Client) -> None:
        if self.observers is not None and client not in self._subscriptions:
            from dynamic_mcp.proxy.client_events import events_of_beginning

            for event in events_of_beginning(client):
                self.note(event)
        self._subscriptions.add(client)
        self.is_initialized.set()
        self.changed.set()

    async def wait_for_greeting(self, within_s: float) -> None:
        """Wait until a client was greeted, for so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.is_initialized.wait()

    async def wait_for_first_client(self) -> None:
        """Wait until the first client has its answer, or for a while if none says hello.

        What servers do not need begins after it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_WITHIN_S):
                await self.is_initialized.wait()
                await asyncio.sleep(_SERVERS_FIRST_S)

    def _describe(self, client: Client) -> dict[str, object]:
        """Return what all groups together are for a client."""
        view = self.view_for(client)
        self._learn_vectors()
        return {
            "capabilities": capabilities(view, client.hello.revision),
            "serverInfo": OURSELVES,
            "instructions": self._tools.instructions(view, client),
        }

    def release(self, client: Client) -> None:
        """Called when a client disconnects: forget it, and withdraw its requests of upstreams."""
        if self.observers is not None and client in self._subscriptions:
            from dynamic_mcp.proxy.client_events import event_of_end

            self.note(event_of_end(client))
        self._resource_subscriptions.release(client, self.groups.of(self.groups.place_of(client)).values())
        self._subscriptions.remove(client)
        self._chains.release(client)
        shared = [each for each in self._log_levels.instances_of(client) if len(each[1].users) > 1]
        self.groups.release(client)
        for release in self._releases:
            release(client)
        for group, instance in shared:
            self._log_levels.tell(group, instance)
        if self.groups.has_user_logins:
            self._users.release(client)
        self.changed.set()

    def _base_of(self, config: Config) -> Config:
        """Return what is served to clients without a workspace."""
        return config if self.has_base else structs.replace(config, groups=(), presentations={})

    def _group_views(self) -> Iterator[GroupView]:
        """Yield the group views of all workspaces, each once; those that share a group share its view."""
        return iter(dict.fromkeys(group for view in self._views for group in view))

    def _find_new_group(self, before: Mapping[Client, View], client: Client, name: str) -> Group | None:
        """Return the group of this name that a client has, if it had another one before."""
        found, view = self.view_for(client).get(name), before.get(client)
        return None if found is None or (view is not None and view.has_group(found.group)) else found.group

    # --- modern clients --------------------------------------------------------------------------------

    def admit(self, client: Client) -> None:
        """Begin to serve a modern client, which needs no greeting."""
        self.groups.start(client)
        self._add(client)

    async def discover(self, client: Client) -> Frame:
        """Answer `server/discover`. Raises DynamicMcpError if the one group of the client cannot be reached."""
        if client.only is None:
            initialize_result = self._describe(client)
        else:
            initialize_result = await self._transparent.initialize(client, self.view_for)
        described = {
            name: value for name, value in initialize_result.items() if name not in ("protocolVersion", "serverInfo")
        }
        return wire.result_frame({"supportedVersions": SUPPORTED, **described})

    def server_info(self, client: Client) -> Raw:
        """Return the name and version of the server that a client sees."""
        for group in self.view_for(client) if client.only is not None else ():
            initialize_result = group.catalog.hello if group.catalog else None
            return (initialize_result or {}).get("serverInfo", OURSELVES)
        return OURSELVES

    def cache_hint(self, client: Client, method: str) -> CacheHint | None:
        """Return how long a client may keep the result of a method; None where that is not said."""
        from dynamic_mcp.proxy.cache_hints import CACHEABLE, cache_hint  # for modern clients

        if method not in CACHEABLE:
            return None
        view = self.view_for(client)
        is_private = (
            view.differs_by_surface
            or (method == "tools/list" and self._tools.differ_by_client(view))
            or any(group.catalog and group.catalog.app_tools for group in view)  # listed to some clients only
            or self._views.are_governed
            or bool(self._list_changers)
            or self.groups.place_of(client) is not None
        )
        return cache_hint(view, method, self._clock.now(), is_private=is_private)

    def may_announce(self, client: Client, method: str) -> bool:
        """Return whether a client may be sent a notification of this method that no request has caused."""
        feature = method.split("/")[1]
        if client.only is None:
            return feature in capabilities(self.view_for(client), client.hello.revision)
        return any(group.catalog is None or group.catalog.may(feature) for group in self.view_for(client))

    def want_level(self, client: Client, level: str) -> None:
        """See to it that servers send log messages of this level, before the client's next request."""
        self._log_levels.want(client, level)

    # --- Observer: what a group does -------------------------------------------------------------------

    def shows(self, group: Group, client: Client) -> bool:
        return (client.profile is None and not self._views.are_governed) or self.view_for(client).has_group(group)

    def group_changed(self, group: Group) -> None:
        """Notify clients if the result of a list has changed."""
        group_changed(self.observers, group)
        self.changed.set()
        self._subscriptions.announce_soon(group)
        if group.state is State.NEEDS_LOGIN:
            self._login_offers().open_browser_if_needed(group)

    def recheck(self, group: Group, caller: User, method: str, params: Mapping[str, Raw] | None) -> None:
        if self._services.has_access_rules and isinstance(caller, Request):
            self._chains.recheck(caller, group.name, method, params)

    def link_opened(self, group: Group, instance: Instance) -> None:
        """Restore the log level and the subscriptions of clients on a new link."""
        link_opened(self.observers, group, instance)
        self.changed.set()
        self._log_levels.renew(group, instance)
        self._resource_subscriptions.renew(group, instance)

    def client_moved(self, group: Group, client: Client, before: Instance) -> None:
        """Move a client's subscriptions and log level to its new instance."""
        self._log_levels.tell(group, before)
        self._resource_subscriptions.move(client, group, before)

    def client_dismissed(self, group: Group, client: Client, before: Instance) -> None:
        """Withdraw a client's requests of an instance, because another group serves it now."""
        self._log_levels.tell(group, before)
        self._resource_subscriptions.withdraw(client, group, before)

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        return self._messages.choose_user(instance, frame, user)

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        return self._messages.prepare_question(instance, frame, user)

    def receive_notification(
        self, group: Group, instance: Instance, frame: Frame, recipients: Sequence[User]
    ) -> None:
        self._messages.pass_on(group, instance, frame, recipients, self._may_read)

    def _may_read(self, group: Group, client: Client, uri: str) -> bool:
        found = self.view_for(client).get(group.name) if self._views.are_governed else None
        return not self._views.are_governed or (found is not None and found.may_read(uri))

    def _surface_for(self, view: View, client: Client) -> Surface | None:
        return self._tools.surface_for(view, client)

    def _snapshot(self, view: View, client: Client) -> Snapshot:
        """Return objects that are the same as long as the lists of a view answer a client the same."""
        if not view.scope.is_single:
            self._learn_vectors()
        snapshot, changers = take_snapshot(view, client, self._tools.snapshot), self._list_changers
        if not changers:
            return snapshot
        return {name: None if each is None else [*each, *changers] for name, each in snapshot.items()}


def _is_same_elsewhere(group: Group) -> bool:
    """Return whether a session can use a server over another process as it does over this one."""
    return not group.knows_sessions and not isinstance(group.config.upstream, Program)
