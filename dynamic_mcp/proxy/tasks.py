"""Tasks (MCP 2025-11-25): each belongs to the client that began it, and its requests go to the group that runs it.

For other clients a task does not exist. It keeps its id, unless the client has another one of that id from another
group: then it becomes `<group>__<id>`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import chain
from weakref import ref

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client, User
from dynamic_mcp.errors import METHOD_NOT_FOUND, DynamicMcpError, NotFound
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import EMPTY_ARRAY, EMPTY_OBJECT, NULL, Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.extension_tasks import ExtensionTasks
from dynamic_mcp.proxy.fanout import first_result
from dynamic_mcp.proxy.lists import WAIT_S, with_missing
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.subscriptions import Subscriptions
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.upstream.call import PROGRESS_EXTENDS_TO
from dynamic_mcp.upstream.handshake import result_of

log = logging.getLogger(__name__)

# Tasks that are remembered; the oldest is forgotten first.
_MAX_TASKS = 10_000
_RELATED = ("_meta", "io.modelcontextprotocol/related-task", "taskId")


class _Task(Struct, frozen=True):
    """A task of a client, by its own id on the instance that runs it."""

    group: GroupView
    instance: Instance
    own_id: str


class _Owner(Struct, frozen=True):
    """The owner of a task, and its id for that client. `client` None: it has disconnected."""

    group_name: str
    id: str
    client: Client | None


class Tasks:
    """The use cases of tasks; those of modern clients are an `extension`, with its own rules."""

    def __init__(self, chains: Chains, clients: Subscriptions) -> None:
        self.extension = ExtensionTasks(chains)
        self._chains = chains
        self._by_id: dict[tuple[Client, str], _Task] = {}
        # Weak references, because the tasks of clients that have gone outlive the instances that ran them.
        self._owners: BoundedDict[tuple[ref[Instance], str], _Owner] = BoundedDict(_MAX_TASKS, on_evict=self._forget)
        self._background = TaskSet()
        self._clients = clients

    def begin(self, request: Request, group: GroupView, instance: Instance, answer: Frame, *, tool: str) -> Frame:
        """Record the task that an instance has begun for a call of a tool, and give it the client's id."""
        self._chains.record_task(group, _id(wire.member(answer.result, "task", "taskId")), tool)
        return self._to_client(request.client, group, instance, answer, "task", "taskId")

    async def get(self, request: Request) -> Frame:
        """Answer `tasks/get` and `tasks/cancel`."""
        if request.revision.is_stateless:
            return await self.extension.ask(request)
        group, instance, answer = await self._send_to_owner(request, patience=1)
        return self._to_client(request.client, group, instance, answer, "taskId")

    async def update(self, request: Request) -> Frame:
        """Answer `tasks/update`, which only the extension has."""
        if request.revision.is_stateless:
            return await self.extension.ask(request)
        return wire.error_frame(METHOD_NOT_FOUND, f"method not found: `{request.method}`")

    async def result(self, request: Request) -> Frame:
        """Answer `tasks/result`, which the upstream answers when the task is over."""
        group, instance, answer = await self._send_to_owner(request, patience=PROGRESS_EXTENDS_TO)
        return self._to_client(request.client, group, instance, answer, *_RELATED)

    async def list_tasks(self, request: Request) -> Frame:
        """Answer `tasks/list` with the client's tasks of every group that lists them, all pages of each."""
        groups = [group for group in _up(request) if group.catalog and group.catalog.may("tasks", "list")]
        found: dict[str, list[Raw]] = {group.name: [] for group in groups}
        rest: dict[str, Raw] = {}
        complaints = await asyncio.gather(
            *(self._read_list(request, group, found[group.name], rest) for group in groups)
        )
        missing = {name: complaint for name, complaint in zip(found, complaints, strict=True) if complaint}
        return wire.result_frame({"tasks": list(chain.from_iterable(found.values())), **with_missing(rest, missing)})

    def pass_status_on(self, instance: Instance, frame: Frame, others: Iterable[Client]) -> bool:
        """Notify a task's client of a `notifications/tasks/status`; returns whether it does not concern `others`.

        One that comes before its task must not be taken for that of another group's task.
        """
        own_id = _id(wire.member(frame.params, "taskId"))
        owner = self._owners.get((ref(instance), own_id))
        if owner is not None and owner.client is not None:
            params = frame.params if owner.id == own_id else wire.with_member(frame.params, owner.id, "taskId")
            owner.client.notify(Frame(method=frame.method, params=params))
        if owner is not None or instance.users.has_been_shared:
            return True
        return any((client, own_id) in self._by_id for client in others)

    def owner(self, instance: Instance, frame: Frame) -> Client | None:
        """Return the client whose task a message of an upstream is about."""
        owner = self._owners.get((ref(instance), _id(wire.member(frame.params, *_RELATED))))
        return owner.client if owner is not None else None

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return who is asked a question of an upstream: `user`, or the client whose task it is about.

        None where the task has no owner, or may have another one.
        """
        own_id = _id(wire.member(frame.params, *_RELATED))
        if not own_id:
            return user
        owner = self._owners.get((ref(instance), own_id))
        if owner is None:
            return None if instance.users.has_been_shared else user
        return user if user is not None and user.client is owner.client else owner.client

    def with_client_task_id(self, instance: Instance, frame: Frame) -> Frame:
        """Return a message about a task with the id that the task has for its client."""
        own_id = _id(wire.member(frame.params, *_RELATED))
        owner = self._owners.get((ref(instance), own_id))
        if owner is None or owner.id == own_id:
            return frame
        return structs.replace(frame, params=wire.with_member(frame.params, owner.id, *_RELATED))

    def release(self, client: Client) -> None:
        """Cancel the tasks of a disconnected client; those that still run have no owner."""
        for key in [key for key in self._by_id if key[0] is client]:
            task = self._by_id.pop(key)
            self._owners[ref(task.instance), task.own_id] = _Owner(task.group.name, key[1], None)
            if task.instance in task.group.group.instances.values():
                self._background.create(_cancel(task))

    async def close(self) -> None:
        """Stop cancelling."""
        self._background.cancel_all()
        await self._background.wait()

    # --- owners ----------------------------------------------------------------------------------------

    async def _send_to_owner(self, request: Request, *, patience: float) -> tuple[GroupView, Instance, Frame]:
        id = _id(wire.member(request.params, "taskId"))
        if not id:
            raise wire.Malformed("`taskId` is missing")
        task = self._by_id.get((request.client, id))
        if task is not None:
            if not task.instance.may_serve(
                request.client
            ):  # the server that took its place may have given this id to another client
                raise NotFound("task", id)
            params = request.params
            if id != task.own_id:
                params = wire.with_member(params, task.own_id, "taskId")
            answer = await self._send(request, task.group, task.instance, params, patience)
            return task.group, task.instance, answer
        groups = [group for group in _up(request) if group.catalog and group.catalog.may("tasks")]
        instances = {group: group.group.instance_for(request.client) for group in groups}
        mine = [group for group in groups if self._may_own(request.client, group, instances[group], id)]
        found = await first_result(
            mine, lambda group: self._send(request, group, instances[group], request.params, patience)
        )
        # a server's own words are passed on only while there has been one client: all others are told the same,
        # whether a task is another client's or has no owner
        if found is None or (self._clients.have_been_several and len(found[1].error)):
            raise NotFound("task", id)
        return found[0], instances[found[0]], found[1]

    def _may_own(self, client: Client, group: GroupView, instance: Instance, own_id: str) -> bool:
        """Return whether a task that is not recorded as another client's can be this client's."""
        owner = self._owners.get((ref(instance), own_id))
        if owner is not None:
            return owner.client is client
        return group.group.is_alone(client, instance) and not self._is_of_another(client, group, own_id)

    def _is_of_another(self, client: Client, group: GroupView, own_id: str) -> bool:
        """Return whether another client began this task; a remote server shows it over all its connections."""
        owners = (owner for (_, id), owner in self._owners.items() if id == own_id)
        return any(owner.group_name == group.name and owner.client is not client for owner in owners)

    async def _send(
        self, request: Request, group: GroupView, instance: Instance, params: Raw, patience: float
    ) -> Frame:
        return await self._chains.send(
            request,
            group,
            request.method,
            wire.members(params),
            timeout_s=group.config.timeouts.tools_s * patience,
            instance=instance,
        )

    async def _read_list(self, request: Request, group: GroupView, tasks: list[Raw], rest: dict[str, Raw]) -> str:
        """Add the client's tasks of a group, page by page, and what else it says; returns what is missing and why."""
        params, cursors = EMPTY_OBJECT, {b"null"}
        instance = group.group.instance_for(request.client)
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    answer = await self._send(request, group, instance, params, 1)
                    page = result_of(answer, group.config, "tasks/list")
                    entries = wire.elements(page.pop("tasks", EMPTY_ARRAY))
                    tasks += self._own_tasks(request.client, group, instance, entries)
                    cursor = page.pop("nextCursor", NULL)
                    rest |= {name: value for name, value in page.items() if name not in rest}
                    if bytes(cursor) in cursors:
                        return ""
                    cursors.add(bytes(cursor))
                    params = Raw(wire.encode({"cursor": cursor}))
        except TimeoutError:
            return f"tasks/list was not answered within {WAIT_S:g} s"
        except DynamicMcpError as exc:
            return exc.message
        except wire.Malformed:
            return "answered tasks/list with something other than a list"

    def _own_tasks(self, client: Client, group: GroupView, instance: Instance, entries: Iterable[Raw]) -> list[Raw]:
        """Return those entries of an upstream's list that are the client's, with its ids."""
        ids = ((entry, _id(wire.member(entry, "taskId"))) for entry in entries)
        frames = (Frame(result=entry) for entry, id in ids if self._may_own(client, group, instance, id))
        return [self._to_client(client, group, instance, each, "taskId").result for each in frames]

    # --- ids -------------------------------------------------------------------------------------------

    def _to_client(self, client: Client, group: GroupView, instance: Instance, answer: Frame, *path: str) -> Frame:
        """Give the task that stands at `path` of a result the id that it has for its client."""
        own_id = _id(wire.member(answer.result, *path))
        if not own_id:
            return answer
        id = self._remember(client, group, instance, own_id)
        return answer if id == own_id else Frame(result=wire.with_member(answer.result, id, *path))

    def _remember(self, client: Client, group: GroupView, instance: Instance, own_id: str) -> str:
        """Record whose a task is; returns the id that it has for its client."""
        owner = self._owners.get((ref(instance), own_id))
        if owner is not None and owner.client is client:
            return owner.id
        if owner is not None and owner.client is not None:  # of the server's life before this one
            self._by_id.pop((owner.client, owner.id), None)
        id = own_id if (client, own_id) not in self._by_id else f"{group.name}__{own_id}"
        self._owners[ref(instance), own_id] = _Owner(group.name, id, client)
        self._by_id[client, id] = _Task(group, instance, own_id)
        return id

    def _forget(self, key: tuple[ref[Instance], str], owner: _Owner) -> None:
        if owner.client is not None:
            self._by_id.pop((owner.client, owner.id), None)


async def _cancel(task: _Task) -> None:
    params = {"taskId": Raw(wire.encode(task.own_id))}
    try:
        await task.instance.request("tasks/cancel", params, timeout_s=task.group.config.timeouts.tools_s)
    except DynamicMcpError as exc:
        group_logger(log, task.group.name).debug(
            "group %s: a task was not cancelled: %s", task.group.name, exc.message
        )


def _up(request: Request) -> Iterable[GroupView]:
    return (group for group in request.view if not group.is_down)


def _id(task: Raw) -> str:
    return wire.text(task) or ""
