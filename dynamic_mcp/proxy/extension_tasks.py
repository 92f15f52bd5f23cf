"""Tasks of the extension `io.modelcontextprotocol/tasks`, which modern servers begin by themselves.

A task keeps no session: any request with its id may ask for it. Where several groups are one server, its id is
`<group>__<id>`, so nothing has to be remembered to find it. What is remembered is who began it. Where several
processes serve the same clients, ids are signed (`IdSigner`), since any of them may be asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.errors import MISSING_CAPABILITY, NotFound
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.bounded import BoundedDict

EXTENSION = "io.modelcontextprotocol/tasks"
_TASK = "task"
# Tasks whose owner is remembered; the oldest is forgotten first.
_MAX_TASKS = 10_000
_REQUIRED: dict[str, object] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


class ExtensionTasks:
    """The tasks of modern clients."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._owners: BoundedDict[tuple[str, str], Principal] = BoundedDict(_MAX_TASKS)

    def adopt(self, request: Request, group: GroupView, answer: Frame, *, tool: str) -> Frame:
        """Record whose task an answer to a call of a tool begins, if it begins one, and give it the client's id."""
        if envelope.result_type(answer.result) != _TASK:
            return answer
        own_id = wire.text(wire.member(answer.result, "taskId"))
        if not own_id:
            return answer
        self._owners[group.name, own_id] = request.principal
        self._chains.record_task(group, own_id, tool)
        id, ids = _client_id(request, group, own_id), self._chains.services.task_ids
        return _with_id(answer, id if ids is None else ids.sign(id, request.client))

    async def ask(self, request: Request) -> Frame:
        """Answer a request about a task. Raises NotFound."""
        if not len(wire.member(request.client.hello.capabilities, "extensions", EXTENSION)):
            why = f"`{request.method}` needs a client that declares the extension `{EXTENSION}`"
            return wire.error_frame(MISSING_CAPABILITY, why, _REQUIRED)
        params = wire.members(request.params)
        id = wire.text(params.get("taskId"))
        if not id:
            raise wire.Malformed("`taskId` is missing")
        group, own_id = self._find(request, id)
        answer = await self._send(request, group, {**params, "taskId": Raw(wire.encode(own_id))})
        has_id = len(wire.member(answer.result, "taskId")) > 0
        return _with_id(answer, id) if has_id else answer

    def _find(self, request: Request, id: str) -> tuple[GroupView, str]:
        """Return the group of a task and its id there. Raises NotFound, also for other clients' tasks."""
        ids = self._chains.services.task_ids
        opened = id if ids is None else ids.open(id, request.client)
        found = _candidates(request, id if opened is None else opened)
        owned = [(group, own_id) for group, own_id in found if (group.name, own_id) in self._owners]
        # an id without a signature may be of the time before ids were signed, and of another process
        for group, own_id in owned or (found if opened is not None else ()):
            if self._owners.get((group.name, own_id), request.principal) == request.principal:
                return group, own_id
        raise NotFound("task", id)

    async def _send(self, request: Request, group: GroupView, params: Mapping[str, Raw]) -> Frame:
        return await self._chains.send(
            request, group, request.method, params, timeout_s=group.config.timeouts.tools_s
        )


def _candidates(request: Request, id: str) -> list[tuple[GroupView, str]]:
    """Return the groups that may have a task, and its id there."""
    view = request.view
    if request.client.only is not None:
        return [(group, id) for group in view]
    names = [name for name in view.names if id.startswith(f"{name}__")]
    return [(view[name], id.removeprefix(f"{name}__")) for name in names]


def _client_id(request: Request, group: GroupView, own_id: str) -> str:
    return own_id if request.client.only is not None else f"{group.name}__{own_id}"


def _with_id(answer: Frame, id: str) -> Frame:
    return Frame(result=wire.with_member(answer.result, id, "taskId"))
