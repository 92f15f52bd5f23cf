"""One configured server: its config, its whole catalog, and its instances, one for each audience."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from dynamic_mcp.client import Client, ClientInfo, User
from dynamic_mcp.config.resolved import GroupConfig, Share
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.audience import Sharing, audience_of, find_joinable, hello_for
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.gate import GatedCatalog
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.groups.lifecycle import LinkCounts, State
from dynamic_mcp.groups.live_catalog import ALL_LISTS, LiveCatalog
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.open import OpenLink, open_link

log = logging.getLogger(__name__)

# A group with several instances is as well as the best of them.
_BEST_FIRST = (State.READY, State.CONNECTING, State.COLD, State.WAITING, State.NEEDS_LOGIN, State.FAILED)


class Phase(Enum):
    """The phase of a group's life, independent of its links."""

    NEW = "no client has been served"
    SERVING = "serving"
    RETIRED = "taking no more calls"
    CLOSED = "ended"


# From each phase to those that may follow; an absent entry is a bug.
PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.SERVING, Phase.RETIRED, Phase.CLOSED}),
    Phase.SERVING: frozenset({Phase.RETIRED, Phase.CLOSED}),
    Phase.RETIRED: frozenset({Phase.CLOSED}),
    Phase.CLOSED: frozenset(),
}


class GroupObserver(Protocol):
    """Receives changes of the groups, and shows them to clients."""

    def shows(self, group: Group, client: Client) -> bool:
        """Return whether a client sees a group; for hidden groups, nothing is started."""

    def group_changed(self, group: Group) -> None:
        """Called when a group's state or catalog has changed."""

    def link_opened(self, group: Group, instance: Instance) -> None:
        """Called when an instance has a new link, whose upstream knows nothing of the clients' earlier requests."""

    def client_moved(self, group: Group, client: Client, before: Instance) -> None:
        """Called when a client is served by another instance of its group from now on."""

    def client_dismissed(self, group: Group, client: Client, before: Instance) -> None:
        """Called when a client is served by another group from now on, while other clients still use this one."""

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return the client that gets a question of the upstream; the calls in flight suggest `user`."""

    def recheck(self, group: Group, caller: User, method: str, params: Mapping[str, Raw] | None) -> None:
        """Decide again about a request that has waited, by its client's current rights. Raises DynamicMcpError."""

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        """Return a request of the upstream in the form that its client receives."""

    def receive_notification(
        self, group: Group, instance: Instance, frame: Frame, recipients: Sequence[User]
    ) -> None:
        """Called with a notification of an upstream and its recipients."""


class Group:
    """A server by its name in the config. `start` it for a client, use it by `request`, `close` it.

    `instances` are its running copies by audience, `questions` counts what they ask. `find_current` finds the group
    that serves a client now: after a reload that may be another one, and not the same one for all clients.
    """

    def __init__(
        self,
        config: GroupConfig,
        observer: GroupObserver,
        *,
        lists: frozenset[ListKind] = ALL_LISTS,
        opener: OpenLink = open_link,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        catalog_store: CatalogStore | None = None,
        find_current: Callable[[Client], Group | None] | None = None,
        link_counts: LinkCounts | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.instances: dict[Hashable, Instance] = {}
        self.has_advice, self.questions = False, 0
        self._advice = set[str]()
        self._observer, self._find_current = observer, find_current
        self._create = partial(Instance, opener=opener, clock=clock, jitter=jitter, link_counts=link_counts)
        self._catalog = LiveCatalog(config, catalog_store, lists, clock)
        self.admission, self.sharing = GatedCatalog(self._catalog), Sharing(self._catalog)
        self._instance_of: dict[Client, Instance] = {}
        self._phase = Phase.NEW
        self._ended_calls = self._ended_failures = 0
        self._lingering, self._ending = set[Instance](), set[Instance]()
        self._end_tasks = TaskSet(group_logger(log, self.name))

    def __repr__(self) -> str:
        statuses = "; ".join(instance.status for instance in self.instances.values())
        return f"<Group {statuses or f'{self.name} {self.state.name}'}>"

    # --- questions -------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog | None:
        return self._catalog.current

    @property
    def is_catalog_from_disk(self) -> bool:
        """True if the catalog is that of an earlier start, and the upstream has not been asked since."""
        return self._catalog.is_from_disk

    @property
    def asks(self) -> bool:
        """True if the upstream has asked a client something."""
        return self._catalog.asks

    @property
    def knows_sessions(self) -> bool:
        """True if the upstream knows the session of each client, so that what it says may depend on that."""
        share = self.config.share
        return share is Share.SESSION or (share is Share.AUTO and self.asks)

    @property
    def changes(self) -> int:
        """The number of times that the upstream has reported changed tools or resources."""
        return self._catalog.changes

    @property
    def state(self) -> State:
        """The best state of its instances; COLD while there is none."""
        if self._phase is Phase.CLOSED:
            return State.CLOSED
        states = {instance.state for instance in self.instances.values()}
        return next((state for state in _BEST_FIRST if state in states), State.COLD)

    @property
    def reason(self) -> str:
        """The reason why the group is down, in one line; empty otherwise."""
        state = self.state
        return next((each.reason for each in self.instances.values() if each.state is state), "")

    @property
    def in_flight(self) -> int:
        return sum(instance.activity.in_flight for instance in self.instances.values())

    @property
    def calls(self) -> int:
        return self._ended_calls + sum(each.activity.calls for each in self._all())

    @property
    def failures(self) -> int:
        """The number of calls that had no result."""
        return self._ended_failures + sum(each.activity.failures for each in self._all())

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Return which of these lists are incomplete and why; empty if none is."""
        complaint = self._catalog.complaint(kinds)
        if complaint is not None:
            return complaint
        is_connected = any(each.is_connected for each in self.instances.values())
        return self.reason or ("not read yet" if is_connected else "not connected yet")

    def _knows_tools(self) -> bool:
        wanted = [ListKind.TOOLS] if ListKind.TOOLS in self._catalog.wanted else []
        return self._catalog.knows(wanted)

    def wanted_for_s(self) -> float:
        """Return the seconds since the missing lists were asked of the upstream; 0 if they were not."""
        return max((each.wanted_for_s() for each in self.instances.values()), default=0.0)

    def current_for(self, client: Client) -> Group | None:
        """Return the group that serves a client now; None if this one was removed."""
        return self if self._find_current is None else self._find_current(client)

    def successor_for(self, client: Client) -> Group | None:
        """Return the group that serves a client instead of this one; None if there is none."""
        current = self.current_for(client)
        return None if current is self else current

    def is_alone(self, client: Client, instance: Instance) -> bool:
        """Return whether an instance has only ever served one client."""
        return not instance.users.has_been_shared and self._instance_of.get(client) is instance

    # --- use -------------------------------------------------------------------------------------------

    def start(self, client: Client) -> None:
        """Begin to serve a client; a group whose catalog is not known connects in the background to read it."""
        if self._phase is Phase.NEW:
            self._enter(Phase.SERVING)
            self._catalog.load()
        self._advise(client)
        if client.is_command:  # it connects what it uses
            return
        instance = self._instance_of.get(client)
        if instance is not None:  # it called before it said hello, or says another one
            self._greet_again(client, instance)
        is_learning = any(each.state is State.CONNECTING for each in self.instances.values())
        if self.config.eager or not (self._catalog.is_fresh or self._knows_tools() or is_learning):
            self.instance_for(client).start(wanted=True)
        elif not self._catalog.is_fresh and not is_learning:
            self._catalog.is_fresh = True
            self.instance_for(client).start(wanted=True)

    def instance_for(self, client: Client) -> Instance:
        """Return the instance that serves a client; it changes only if the upstream turns out to ask questions."""
        instance = self._instance_of.get(client)
        return instance if instance is not None else self._assign(client)

    def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        timeout_s: float,
        caller: User,
        label: str = "",
    ) -> Coroutine[Any, Any, Frame]:  # Any: as `async def` has it
        instance = self._instance_of.get(caller.client) or self._assign(caller.client)
        return instance.request(method, params, timeout_s, caller, label)

    def notify(self, client: Client, method: str, params: Raw) -> None:
        """Send a notification of a client to its instance, if there is one."""
        if (instance := self._instance_of.get(client)) is not None:
            instance.notify(method, params)

    async def tell(self, instance: Instance, method: str, params: Mapping[str, Raw]) -> None:
        """Send a request of the proxy itself and discard its result; a failure is logged."""
        try:
            await instance.request(method, params, timeout_s=self.config.timeouts.resources_s)
        except DynamicMcpError as exc:
            group_logger(log, self.name).warning("group %s: %s: %s", self.name, method, exc.message)

    async def learn_hello(self, client: Client) -> Mapping[str, Raw] | None:
        """Return the upstream's `initialize` result, connecting if need be; None if a reload interfered."""
        return await self._catalog.learn_hello(lambda: self.reread(client, ()))

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return the catalog, connecting only if it is not known. Raises UpstreamError."""
        if (successor := self.successor_for(client)) is not None:
            return await successor.learn_catalog(client, kinds)
        if self.catalog is not None and self._catalog.knows(kinds) and not self._catalog.expired(kinds):
            return self.catalog
        return await self.instance_for(client).learn_catalog(client, kinds)

    async def reread(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists again, to look for a name that is not among them. Raises UpstreamError."""
        if (successor := self.successor_for(client)) is not None:
            return await successor.reread(client, kinds)
        return await self.instance_for(client).reread(client, kinds)

    async def connect_again(self, client: Client) -> None:
        """Connect at once, also right after a failure that would not be retried. Raises DynamicMcpError."""
        if (successor := self.successor_for(client)) is not None:
            return await successor.connect_again(client)
        return await self.instance_for(client).connect_again(client)

    def release(self, client: Client) -> None:
        """Stop serving a client, and close an instance that no other client may use."""
        for each in self._all():
            each.forget(client)
        for each in [each for each in self._lingering if not each.users.former]:
            self._lingering.discard(each)
            self._end(each)
        instance = self._instance_of.pop(client, None)
        if instance is not None and self.instances.get(client) is instance:
            self._leave(client, instance)
        elif instance is not None:
            self._end_if_unused(instance)

    # --- the config ------------------------------------------------------------------------------------

    def reconfigure(self, config: GroupConfig, lists: frozenset[ListKind]) -> None:
        """Switch to another config with the same upstream, and to other lists to read."""
        self.config = config
        self._catalog.config = config
        wanted = self._catalog.want(lists)
        best_first = sorted(self.instances.values(), key=lambda each: _BEST_FIRST.index(each.state))
        for number, instance in enumerate(best_first):  # one of them reads what is wanted, for all
            own = config.at_home_for(instance.config.user_at_home)
            instance.reconfigure(own, wanted if number == 0 else frozenset())
        self._observer.group_changed(self)

    def dismiss_strangers(self) -> None:
        """Stop serving the clients that have another group since a reload, except for calls that were sent."""
        strangers = [client for client in self._instance_of if self.current_for(client) is not self]
        for instance in self._all() if strangers else ():
            instance.screen()
        for client in strangers:
            instance = self._instance_of.pop(client)
            instance.users.move(client)
            self._observer.client_dismissed(self, client, instance)
            if not instance.users:
                self.instances = {key: each for key, each in self.instances.items() if each is not instance}
                self._end(instance)

    def retire(self) -> None:
        """Stop accepting calls: new ones go to the client's current group, or fail if there is none."""
        if not self._is_over():
            self._enter(Phase.RETIRED)
        for instance in self.instances.values():
            instance.retire()

    async def drain(self, within_s: float) -> bool:
        """Wait until a retired group has no calls, at most `within_s`; return whether it has none."""
        drained = await asyncio.gather(*(instance.drain(within_s) for instance in self.instances.values()))
        return all(drained)

    async def close(self) -> None:
        """End all instances and their links, for good."""
        self._enter(Phase.CLOSED)
        self._instance_of.clear()
        running = (*self.instances.values(), *self._lingering)
        for instance in (*running, *self._ending):
            instance.stop()
        await asyncio.gather(*(instance.close() for instance in running), self._end_tasks.wait())
        for instance in running:
            self._count_ended(instance)
        self.instances.clear()  # and with them the clients, which may live on or not
        self._lingering.clear()
        if not running:
            self._observer.group_changed(self)

    def _enter(self, phase: Phase) -> None:
        """Enter another phase, which the table must allow; closing twice does nothing."""
        before = self._phase
        assert phase is before or phase in PHASES[before], f"{before.name} does not lead to {phase.name}"
        self._phase = phase

    def _is_over(self) -> bool:
        return self._phase in (Phase.RETIRED, Phase.CLOSED)

    # --- Owner: what an instance says ------------------------------------------------------------------

    def recheck(self, caller: User, method: str, params: Mapping[str, Raw] | None) -> None:
        self._observer.recheck(self, caller, method, params)

    def instance_changed(self, instance: Instance) -> None:
        self._observer.group_changed(self)
        if instance.state is State.COLD:
            self._regroup(instance)
            self._end_if_unused(instance)

    def link_opened(self, instance: Instance) -> None:
        self._catalog.is_fresh = True
        self._observer.link_opened(self, instance)

    async def compare_offer(self, instance: Instance, hello: ClientInfo, offer: Catalog) -> None:
        """Compare the offer of a link with others, which decides which clients may share an instance."""
        await self.sharing.compare(hello, offer)
        if self._is_over():
            return
        if hello.is_common and not self._catalog.asks:  # else its clients are apart already
            self._disband(instance)
        for each in [*self.instances.values()]:
            self._end_if_unused(each)

    def learn_asking(self, client: Client | None) -> None:
        """Give each client its own instance from now on, because the upstream asks its clients questions."""
        self.questions += 1
        if self._catalog.asks:
            return
        self._catalog.asks = True
        if self.config.share is Share.AUTO and not self._is_over():
            group_logger(log, self.name).info(
                "group %s: the server sends requests to its client; each session now has its own instance",
                self.name,
            )
            self._split(client)

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        return self._observer.choose_user(instance, frame, user)

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        self.questions += 1
        return self._observer.prepare_question(instance, frame, user)

    def receive_notification(self, instance: Instance, frame: Frame, recipients: Sequence[User]) -> None:
        self._observer.receive_notification(self, instance, frame, recipients)

    # --- instances -------------------------------------------------------------------------------------

    def _all(self) -> Sequence[Instance]:
        """Return every instance, including those that accept no new calls."""
        return (*self.instances.values(), *self._lingering, *self._ending)

    def _advise(self, client: Client) -> None:
        """Log once which variables are not set, and what to do about it with a client like this."""
        advice = client.hello.advice(self.config)
        if advice and advice not in self._advice:
            self._advice.add(advice)
            group_logger(log, self.name).warning("group %s: %s", self.name, advice)
        self.has_advice = bool(self._advice)

    def _assign(self, client: Client) -> Instance:
        """Choose the instance for a client, and create it if there is none."""
        audience, hello = self._place(client)
        if client.is_command:
            audience = find_joinable(audience, self.instances)
        is_foreign = self.current_for(client) is not self and not self._is_over()
        instance = None if client.is_closed or is_foreign else self.instances.get(audience)
        if instance is None or instance.state is State.CLOSED:
            instance = self._create(self.config.at_home_for(client.principal), self, self._catalog, hello)
            if self._is_over() or client.is_closed or is_foreign:
                instance.retire()
            if self._phase is Phase.CLOSED or client.is_closed or is_foreign:
                return instance
            self.instances[audience] = instance
        self._instance_of[client] = instance
        instance.users.add(client, others_called_at=instance.activity.last_use)
        return instance

    def _place(self, client: Client) -> tuple[Hashable, ClientInfo]:
        """Return the audience of a client, and the hello that its server receives."""
        share, common = self.config.share, self.sharing.common_hello(client)
        audience = audience_of(client, share, asks=self._catalog.asks, common=common)
        return audience, hello_for(client, share, common)

    def _greet_again(self, client: Client, instance: Instance) -> None:
        """Stop sharing with clients that send another hello; a client with an instance for itself keeps it."""
        audience, hello = self._place(client)
        fits = self.instances.get(audience) is instance
        if len(instance.users) == 1:
            instance.hello = hello
            if not fits:
                self.instances = {key: each for key, each in self.instances.items() if each is not instance}
                self.instances[client] = instance
        elif not fits:
            self._move(client, instance)

    def _move(self, client: Client, instance: Instance) -> None:
        instance.users.move(client)
        del self._instance_of[client]
        self._observer.client_moved(self, client, instance)

    def _regroup(self, instance: Instance) -> None:
        """Move the clients of an instance without a process to a shared one, once that is known to be possible."""
        for client in [] if self._is_over() else [*instance.users]:
            audience, hello = self._place(client)
            if hello.is_common and self.instances.get(audience) is not instance:
                del self._instance_of[client]
                instance.users.forget(client)
                self._observer.client_moved(self, client, instance)

    def _disband(self, instance: Instance) -> None:
        """Move clients to separate instances if the server of their common one turns out to make a difference."""
        for client in [*instance.users]:
            if not (client.is_command or self._place(client)[1].is_common):
                self._move(client, instance)
        if not instance.users:
            for audience in [key for key, each in self.instances.items() if each is instance]:
                self._leave(audience, instance)

    def _split(self, client: Client | None) -> None:
        """Give each instance to one client: the one that was `asked`, else the first; commands come last."""
        before, self.instances = list(self.instances.values()), {}
        for instance in before:
            clients = sorted(instance.users, key=lambda each: (each.is_command, each is not client))
            keeper = clients[0] if clients else None
            self.instances[keeper or instance] = instance
            if keeper is not None:
                instance.hello = hello_for(keeper, self.config.share)
            for client in clients:
                if client is not keeper:
                    self._move(client, instance)

    def _end_if_unused(self, instance: Instance) -> None:
        """Close an instance without clients, unless it stays warm for the next ones."""
        is_warm = instance.state in (State.READY, State.CONNECTING) and not self.sharing.is_superseded(instance.hello)
        if not (instance.users or is_warm):
            for audience in [key for key, each in self.instances.items() if each is instance]:
                self._leave(audience, instance)

    def _leave(self, audience: Hashable, instance: Instance) -> None:
        """Close an instance once the clients that moved away, with calls and tasks left there, have disconnected."""
        del self.instances[audience]
        if instance.users.former:
            self._lingering.add(instance)
        else:
            self._end(instance)

    def _end(self, instance: Instance) -> None:
        instance.retire()
        self._ending.add(instance)
        self._end_tasks.create(self._finish(instance), name=f"end of an instance of group {self.name}")

    async def _finish(self, instance: Instance) -> None:
        """Close an instance once the calls that clients had in flight when they moved away have ended."""
        try:
            await instance.drain(self.config.timeouts.tools_s)
            await instance.close()
        finally:
            self._ending.discard(instance)
            self._count_ended(instance)

    def _count_ended(self, instance: Instance) -> None:
        self._ended_calls += instance.activity.calls
        self._ended_failures += instance.activity.failures
        instance.users.clear()
