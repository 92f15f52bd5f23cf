"""The extension `io.modelcontextprotocol/tasks` of conformance_modern.py: tools that answer with a task.

A client without the extension gets the result itself, where a tool can do without asking, and else an error.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .conformance_offers import form_with
    from .modern_questions import NAME, ask, elicitation, is_answer
    from .modern_request import INVALID_PARAMS, META, MISSING_CAPABILITY, Json, Refusal, Request
    from .modern_tools import said
else:  # started by its path, as an upstream is
    from conformance_offers import form_with
    from modern_questions import NAME, ask, elicitation, is_answer
    from modern_request import INVALID_PARAMS, META, MISSING_CAPABILITY, Json, Refusal, Request
    from modern_tools import said

EXTENSION = f"{META}tasks"
TTL_MS = 600_000
POLL_MS = 100
_QUESTIONS = {
    "confirm_delete": {"confirm": elicitation("Delete the file?", form_with("confirm", "boolean"))},
    "multi_input": {"first": NAME, "second": elicitation("Sure?", form_with("confirm", "boolean"))},
}
# Tools that work in a task only; `slow_compute` also works without.
_REQUIRED = ("failing_job", "protocol_error_job", "confirm_delete", "multi_input", "test_tool_with_task")
TOOLS = ("slow_compute", *_REQUIRED)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")


class Task:
    """Work that goes on after its call was answered; `on_change` hears of every change."""

    def __init__(self, id: str, questions: dict[str, Json], on_change: Callable[[Task], None]) -> None:
        self.id = id
        self.answers: dict[str, Json] = {}
        self._pending = dict(questions)
        self._outcome: Json = {"status": "input_required" if questions else "working"}
        self._created = self._updated = _now()
        self._on_change = on_change
        self._answered = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def start(self, arguments: dict[str, Json], tool: str) -> None:
        self._work = asyncio.create_task(self._run(arguments, tool))

    def summary(self) -> Json:
        """Return what a task always tells of itself."""
        times = {"createdAt": self._created, "lastUpdatedAt": self._updated}
        return {
            "taskId": self.id,
            "status": self._outcome["status"],
            **times,
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
        }

    def details(self) -> Json:
        """Return the task as it is now, with its questions, its result or its error."""
        questions = {"inputRequests": self._pending} if self._outcome["status"] == "input_required" else {}
        return {**self.summary(), **self._outcome, **questions}

    def answer(self, answers: dict[str, Json]) -> None:
        """Take answers to questions that are open; ignore all others."""
        for key, answer in answers.items():
            if key in self._pending and is_answer(self._pending[key]["method"], answer):
                self.answers[key] = answer
                del self._pending[key]
        if not self._pending and self._outcome["status"] == "input_required":
            self._become({"status": "working"})
            self._answered.set()

    def cancel(self) -> None:
        """End the task, unless it has ended."""
        if self._outcome["status"] in ("working", "input_required"):
            self._become({"status": "cancelled"})
            if self._work is not None:
                self._work.cancel()

    async def _run(self, arguments: dict[str, Json], tool: str) -> None:
        if self._pending:
            await self._answered.wait()
        outcome = await work(tool, arguments, self.answers)
        self._become(outcome)

    def _become(self, outcome: Json) -> None:
        self._outcome = outcome
        self._updated = _now()
        self._on_change(self)


async def work(tool: str, arguments: dict[str, Json], answers: dict[str, Json]) -> Json:
    """Do what a tool does, and return how it ends."""
    if tool == "slow_compute":
        await asyncio.sleep(arguments.get("seconds", 0))
        return {"status": "completed", "result": said(f"computed {arguments.get('label', '')}")}
    if tool == "failing_job":
        await asyncio.sleep(0.2)
        return {"status": "completed", "result": {**said("the job has failed"), "isError": True}}
    if tool == "protocol_error_job":
        return {"status": "failed", "error": {"code": -32603, "message": "the job has crashed"}}
    return {"status": "completed", "result": said(f"answered {answers}")}


class Tasks:
    """All tasks of the server; `on_change` hears of every change of any."""

    def __init__(self, on_change: Callable[[Task], None]) -> None:
        self._tasks: dict[str, Task] = {}
        self._numbers = itertools.count(1)
        self._on_change = on_change

    async def call(self, request: Request) -> Json:
        """Answer a call of one of the tools with a task, or without if the client knows no tasks."""
        tool = request.params["name"]
        if not request.has_extension(EXTENSION):
            if tool in _REQUIRED:
                raise needs_extension()
            return (await work(tool, request.arguments, {}))["result"]
        if tool in _QUESTIONS or tool == "test_tool_with_task":
            request.require("elicitation")
        answers = ask(request, {"user_name": NAME}, keeps_state=True) if tool == "test_tool_with_task" else {}
        task = Task(f"task-{next(self._numbers)}", _QUESTIONS.get(tool, {}), self._on_change)
        task.answers.update(answers)
        self._tasks[task.id] = task
        created = {"resultType": "task", **task.summary()}
        task.start(request.arguments, tool)
        return created

    async def get(self, request: Request) -> Json:
        return self._find(request).details()

    async def update(self, request: Request) -> Json:
        answers = request.params.get("inputResponses")
        if not isinstance(answers, dict):
            raise Refusal(INVALID_PARAMS, "inputResponses is an object")
        self._find(request).answer(answers)
        return {}

    async def cancel(self, request: Request) -> Json:
        self._find(request).cancel()
        return {}

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _find(self, request: Request) -> Task:
        if not request.has_extension(EXTENSION):
            raise needs_extension()
        task = self._tasks.get(request.params.get("taskId", ""))
        if task is None:
            raise Refusal(INVALID_PARAMS, "there is no such task")
        return task


def needs_extension() -> Refusal:
    """Return the error for a client that would need the extension."""
    data: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return Refusal(MISSING_CAPABILITY, "the client knows no tasks", data)
