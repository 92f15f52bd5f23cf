"""The tasks of the server of full.py: a call that becomes one works until the tool `finish` ends it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import full_offers as offers
else:  # started by its path, as an upstream is
    import full_offers as offers

if TYPE_CHECKING:
    from .full import Request, Server

Json = Any  # what a peer sent, of any shape
_ENDED = ("completed", "failed", "cancelled")


class Task:
    """One task; `token` is the progress token of the call that it came from."""

    def __init__(self, id: str, token: Json, ttl: Json) -> None:
        self.id = id
        self.token = token
        self.ttl = ttl
        self.status = "working"
        self.waiting: list[Request] = []


class Tasks:
    """All tasks of a server, and what the client may ask about them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._prefix = server.options.task_ids or f"{server.options.name}-task"
        self._tasks: dict[str, Task] = {}

    def __getitem__(self, id: str) -> Task:
        return self._tasks[id]

    def begin(self, request: Request) -> None:
        """Make a task of a call."""
        task = Task(f"{self._prefix}-{len(self._tasks) + 1}", request.token, request.params["task"].get("ttl"))
        self._tasks[task.id] = task
        self._server.answer(request, offers.TASK_BEGAN, shown=self._shown(task))

    def end(self, task: Task, status: str) -> None:
        """End a task, say so, and answer whoever waits for its result."""
        task.status = status
        self._server.notify("notifications/tasks/status", self._shown(task))
        for request in task.waiting:
            self._answer_result(request, task)

    def related(self, task: Task) -> bytes:
        """Return the member of a `_meta` that says which task a message is about."""
        return self._server.filled(offers.RELATED, task=json.dumps(task.id).encode())

    def get(self, request: Request) -> None:
        """Answer `tasks/get`."""
        if task := self._task(request):
            self._server.answer(request, self._shown(task))

    def cancel(self, request: Request) -> None:
        """Answer `tasks/cancel`."""
        task = self._task(request)
        if task and task.status in _ENDED:
            self._server.refuse(request, -32602, "the task is over")
        elif task:
            task.status = "cancelled"
            self._server.answer(request, self._shown(task))

    def result(self, request: Request) -> None:
        """Answer `tasks/result`, when the task is over."""
        task = self._task(request)
        if task and task.status in _ENDED:
            self._answer_result(request, task)
        elif task:
            task.waiting.append(request)

    def list_all(self, request: Request) -> None:
        """Answer `tasks/list`."""
        self._server.answer_list(request, "tasks", [self._shown(task) for task in self._tasks.values()])

    def _task(self, request: Request) -> Task | None:
        task = self._tasks.get(str(request.params.get("taskId")))
        if task is None:
            self._server.refuse(request, -32602, "no such task")
        return task

    def _shown(self, task: Task) -> bytes:
        values = {"task": task.id, "status": task.status, "ttl": task.ttl}
        encoded = {name: json.dumps(value).encode() for name, value in values.items()}
        return self._server.filled(offers.TASK, **encoded)

    def _answer_result(self, request: Request, task: Task) -> None:
        self._server.answer(request, offers.TASK_RESULT, related=self.related(task))
