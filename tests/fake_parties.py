"""Our own stand-ins for what surrounds an instance: its link's listener, its clients, its observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Raw

from dynamic_mcp.client import Caller, Client, ClientInfo, Transport, User
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import LinkLost
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.identity import LOCAL_USER, Principal
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import IdSigner, ReplicaStatus
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.link import Link, LinkOwner
from tests.fakes import BOUND_S, FakeUpstream, PresentedGroup


def link_to(upstream: FakeUpstream, *, listener: LinkOwner | None = None, home: Caller | None = None) -> Link:
    """Return an open link to this upstream, without a handshake."""
    upstream.link = Link("up", upstream, listener or Ear(home))
    return upstream.link


class Ear:
    """Stands where an instance would listen to its link; `home` is its only client."""

    def __init__(self, home: Caller | None = None) -> None:
        self.frames: list[Frame] = []
        self.losses: list[LinkLost] = []
        self.home = home

    def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
        return frame

    def choose_caller(self, frame: Frame, callers: Sequence[Caller]) -> Caller | None:
        return callers[0] if callers else self.home

    def receive_notification(
        self, frame: Frame, callers: Sequence[Caller] | None, *, may_be_late: bool = False
    ) -> None:
        self.frames.append(frame)

    def link_lost(self, link: AnyLink, error: LinkLost) -> None:
        self.losses.append(error)


class FakeCaller:
    """Stands where a session would: keeps what it is told, and answers what it is asked when `answer` is set."""

    def __init__(self) -> None:
        self.id = f"{id(self):x}"
        self.address = ""
        self.authentication = LOCAL_USER
        self.profile: str | None = None
        self.workspace: Workspace | None = None
        self.only: str | None = None
        self.transport: Transport = "stdio"
        self.hello = ClientInfo()
        self.is_initialized = True
        self.is_command = False
        self.is_closed = False
        self.since = 0.0
        self.shared_id = ""
        self.requests = 0
        self.calls = 0
        self.told: list[Frame] = []
        self.asked: list[Frame] = []
        self.answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    @property
    def principal(self) -> Principal:
        return self.authentication.principal

    @property
    def client(self) -> FakeCaller:
        return self

    @property
    def recipient(self) -> FakeCaller:
        return self

    @property
    def stream(self) -> FakeCaller:
        return self

    log_level = ""
    is_parked = False
    port = 0

    def has_room(self, frame: Frame) -> bool:
        return True

    def notify(self, frame: Frame) -> None:
        self.told.append(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        self.asked.append(frame)
        return await self.answer


class Watcher:
    """Sees what a group does."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.frames: list[Frame] = []
        self.opened_links = 0
        self.moved: list[Client] = []
        self.dismissed: list[Client] = []
        self.concerned: list[list[Client]] = []
        self._change = asyncio.Event()

    def shows(self, group: Group, client: Client) -> bool:
        return True

    def group_changed(self, group: Group) -> None:
        if not self.states or self.states[-1] != group.state.name:
            self.states.append(group.state.name)
        self._change.set()
        self._change = asyncio.Event()

    def link_opened(self, group: Group, instance: Instance) -> None:
        self.opened_links += 1

    def client_moved(self, group: Group, client: Client, before: Instance) -> None:
        self.moved.append(client)

    def client_dismissed(self, group: Group, client: Client, before: Instance) -> None:
        self.dismissed.append(client)

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        return user

    def recheck(self, group: Group, caller: User, method: str, params: Mapping[str, Raw] | None) -> None:
        pass

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        return frame

    def receive_notification(self, group: Group, instance: Instance, frame: Frame, concerned: Sequence[User]) -> None:
        self.frames.append(frame)
        self.concerned.append([user.client for user in concerned])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change after which the condition holds."""
        async with asyncio.timeout(BOUND_S):
            while not condition():
                await self._change.wait()


class LoneGroup(Group):
    """A group with one client, as a proxy on stdio has it."""

    def __init__(self, config: PresentedGroup, observer: Watcher, **options: Any) -> None:  # Any: arguments of Group
        features = config.presentation.features
        lists = frozenset(kind for kind in ListKind if features.allows(kind.capability))
        super().__init__(config, observer, lists=lists, **options)
        self.client = FakeCaller()

    @property
    def instance(self) -> Instance:
        return self.instance_for(self.client)

    def begin(self) -> None:
        self.start(self.client)

    async def send(self, method: str, params: Mapping[str, Raw] | None = None, *, timeout_s: float) -> Frame:
        return await self.request(method, params, timeout_s=timeout_s, caller=self.client)

    async def read_catalog(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        return await self.learn_catalog(self.client, kinds)

    async def read_again(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        return await self.reread(self.client, kinds)


class OtherReplicas:
    """Replicas that leave ids as they are."""

    link_mark = ""

    @property
    def task_ids(self) -> IdSigner:
        return self

    @property
    def result_ids(self) -> IdSigner:
        return self

    async def find_opened_apps(self, key: str) -> list[str]:
        return []

    def derive_key(self, purpose: bytes) -> bytes:
        return sha256(purpose).digest()

    def describe(self) -> ReplicaStatus:
        raise NotImplementedError

    def sign(self, id: str, client: Client) -> str:
        return id

    def open(self, id: str, client: Client) -> str | None:
        return id
