"""Tasks (MCP 2025-11-25): every request about a task goes to the group that runs it.

A task keeps its id, unless a task of another group has the same one: then it becomes `<group>__<id>`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import chain

from msgspec import Raw, Struct, structs

from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.groups.lifecycle import DOWN
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import EMPTY_ARRAY, EMPTY_OBJECT, NULL, Frame
from dynamic_mcp.proxy.fanout import first_result
from dynamic_mcp.proxy.lists import WAIT_S, with_missing
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.upstream.call import PROGRESS_EXTENDS_TO
from dynamic_mcp.upstream.open import result_of

log = logging.getLogger(__name__)

# Tasks that are remembered; the oldest is forgotten first, and found again by asking.
_MAX_TASKS = 10_000
_RELATED = ("_meta", "io.modelcontextprotocol/related-task", "taskId")


class _Task(Struct, frozen=True):
    """A task that a group runs for a session, under its own id there."""

    group: Group
    own_id: str
    session: Session


class Tasks:
    """The use cases of tasks."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._tasks: dict[str, _Task] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def began(self, session: Session, group: Group, answer: Frame) -> Frame:
        """Note the task that an answer to a task-augmented request speaks of, and give it its id here."""
        return self._renamed(session, group, answer, "task", "taskId")

    async def get(self, session: Session, frame: Frame) -> Frame:
        """Answer `tasks/get` and `tasks/cancel`."""
        group, answer = await self._to_owner(session, frame, patience=1)
        return self._renamed(session, group, answer, "taskId")

    async def result(self, session: Session, frame: Frame) -> Frame:
        """Answer `tasks/result`, which the upstream answers when the task is over."""
        group, answer = await self._to_owner(session, frame, patience=PROGRESS_EXTENDS_TO)
        return self._renamed(session, group, answer, *_RELATED)

    async def list_all(self, session: Session, frame: Frame) -> Frame:
        """Answer `tasks/list` with the tasks of every group that lists them, all pages of each."""
        groups = [group for group in self._running() if group.known and group.known.may("tasks", "list")]
        found: dict[str, list[Raw]] = {group.name: [] for group in groups}
        rest: dict[str, Raw] = {}
        complaints = await asyncio.gather(
            *(self._add_all(session, group, found[group.name], rest) for group in groups)
        )
        missing = {name: complaint for name, complaint in zip(found, complaints, strict=True) if complaint}
        return wire.result_frame({"tasks": list(chain.from_iterable(found.values())), **with_missing(rest, missing)})

    def status(self, group: Group, frame: Frame) -> tuple[Session, Frame] | None:
        """Return for whom a `notifications/tasks/status` is, and what that session hears."""
        own_id = _id(wire.member(frame.params, "taskId"))
        id = self._ids.get((group.name, own_id))
        if id is None:
            return None
        params = frame.params if id == own_id else wire.with_member(frame.params, id, "taskId")
        return self._tasks[id].session, Frame(method=frame.method, params=params)

    def named(self, group: Group, frame: Frame) -> Frame:
        """Return a request or notification about a task with the id that the task has here."""
        own_id = _id(wire.member(frame.params, *_RELATED))
        id = self._ids.get((group.name, own_id), own_id)
        if id == own_id:
            return frame
        return structs.replace(frame, params=wire.with_member(frame.params, id, *_RELATED))

    # --- owners ----------------------------------------------------------------------------------------

    async def _to_owner(self, session: Session, frame: Frame, *, patience: float) -> tuple[Group, Frame]:
        id = _id(wire.member(frame.params, "taskId"))
        if not id:
            raise wire.Malformed("`taskId` is missing")
        task = self._tasks.get(id)
        if task is not None:
            params = frame.params if id == task.own_id else wire.with_member(frame.params, task.own_id, "taskId")
            return task.group, await self._send(session, task.group, frame.method, params, patience)
        groups = [group for group in self._running() if group.known and group.known.may("tasks")]
        found = await first_result(
            groups, lambda group: self._send(session, group, frame.method, frame.params, patience)
        )
        if found is None:  # nobody remembers it, and nobody has it
            raise NotFound("task", id)
        return found

    async def _send(self, session: Session, group: Group, method: str, params: Raw, patience: float) -> Frame:
        return await group.request(
            method,
            wire.members(params),
            timeout_s=group.config.timeouts.tools_s * patience,
            caller=session,
            what=method,
        )

    async def _add_all(self, session: Session, group: Group, tasks: list[Raw], rest: dict[str, Raw]) -> str:
        """Add a group's tasks, page by page, and what else it says; returns what is missing and why."""
        params, seen = EMPTY_OBJECT, {b"null"}
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    answer = await self._send(session, group, "tasks/list", params, 1)
                    page = result_of(answer, group.config, "tasks/list")
                    shown = (Frame(result=task) for task in wire.elements(page.pop("tasks", EMPTY_ARRAY)))
                    tasks += [self._renamed(session, group, task, "taskId").result for task in shown]
                    cursor = page.pop("nextCursor", NULL)
                    rest |= {name: value for name, value in page.items() if name not in rest}
                    if bytes(cursor) in seen:
                        return ""
                    seen.add(bytes(cursor))
                    params = Raw(wire.encode({"cursor": cursor}))
        except TimeoutError:
            return f"tasks/list was not answered within {WAIT_S:g} s"
        except DynamicMcpError as exc:
            return exc.message
        except wire.Malformed:
            return "answered tasks/list with something other than a list"

    def _running(self) -> Iterable[Group]:
        return (group for group in self._groups if group.state not in DOWN)

    # --- ids -------------------------------------------------------------------------------------------

    def _renamed(self, session: Session, group: Group, answer: Frame, *path: str) -> Frame:
        """Give the task that stands at `path` of a result its id here."""
        own_id = _id(wire.member(answer.result, *path))
        if not own_id:
            return answer
        id = self._noted(session, group, own_id)
        return answer if id == own_id else Frame(result=wire.with_member(answer.result, id, *path))

    def _noted(self, session: Session, group: Group, own_id: str) -> str:
        key = (group.name, own_id)
        if key not in self._ids:
            id = own_id if own_id not in self._tasks else f"{group.name}__{own_id}"
            self._ids[key] = id
            self._tasks[id] = _Task(group, own_id, session)
            if len(self._tasks) > _MAX_TASKS:
                oldest = self._tasks.pop(next(iter(self._tasks)))
                del self._ids[oldest.group.name, oldest.own_id]
        return self._ids[key]


def _id(task: Raw) -> str:
    return wire.text(task) or ""
