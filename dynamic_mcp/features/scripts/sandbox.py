"""Runs Python in Monty, an interpreter without files, network and environment, in a worker process for each script.

Only this module and `workers.py` know Monty. Values cross the border as JSON, which a script's worker reads and
writes within its own bounds of time and memory. A worker ends with its script. A script that waits for its calls for
more than a moment gives its worker up: its state is kept here, and goes on in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any

import msgspec
import pydantic_monty as monty
from msgspec import Raw, Struct

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.workers import Worker, WorkerKind, WorkerPool
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.decoding import decode_as

# What a script can do besides computing, by names: each takes the number of its call, and texts, and returns JSON.
Functions = Mapping[str, Callable[..., Awaitable[bytes]]]

# A script keeps its worker while it waits for its calls so long, and not as long if others wait for one.
_PATIENCE_S, _SHORT_PATIENCE_S = 0.5, 0.01
# The longest pause of one `sleep`.
_LONGEST_SLEEP_S = 10.0
MOST_WAITING_BYTES = 256_000_000
"""The bound on the states of all scripts that wait without a worker."""
# How often a script may stop for something else than its calls, such as a pause or a name that is not there.
_OTHER_STOPS = 1000
_SLEEPS = ("system.async_sleep", "system.sleep")
# The names of the texts that a worker reads, in messages and tracebacks: the second is the script.
_SCRIPT = "<python-input-1>"

# What a script finds. Exceptions of this language have no attributes, and no classes of their own.
_PRELUDE = """
import json as _json
ToolError = OSError
_errors = []
def _read(text):
    answer = _json.loads(text)
    if "error" not in answer:
        return answer["value"]
    code, message, data = answer["error"]
    error = ToolError(message)
    _errors.append([error, {"code": code, "message": message, "data": data}])
    raise error
def details(error):
    for known, found in _errors:
        if known is error:
            return found
    return {"code": None, "message": str(error), "data": None}
async def call(group, name, args=None):
    return _read(await _call(group, name, _json.dumps({} if args is None else args)))
async def tools(group=None, query=None):
    return _read(await _tools(group or "", query or ""))
def _encode(value):
    return _json.dumps(value, ensure_ascii=False, allow_nan=False)
input = _json.loads(_input)
"""


class ScriptFailed(Exception):
    """A script has failed: by itself, at a `line` of its text, or at a bound, which has none (0)."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class Sandbox:
    """Runs scripts, each in a worker while it computes."""

    def __init__(self, clock: Clock) -> None:
        self._workers = WorkerPool(clock)
        self._waiting: dict[Execution, int] = {}  # and the bytes of its state

    async def run(self, execution: Execution, client: Hashable) -> bytes:
        """Run a script of a client, and return its result as JSON. Raises ScriptFailed.

        If this is cancelled, the worker is killed.
        """
        settings = execution.settings
        kind = _find_kind(settings)
        try:
            while not execution.is_done:
                async with self._workers.worker(kind, client) as worker:
                    self._waiting.pop(execution, None)
                    await self._go_on(execution, worker)
                self._check_memory(execution)
                await execution.wait()
        except monty.MontyError as exc:
            raise _explain(exc, settings) from exc
        except CannotConfine as exc:
            raise _refuse(exc) from exc
        finally:
            self._waiting.pop(execution, None)
            await execution.close()
        return execution.result

    async def check_syntax(self, code: str, settings: Scripts) -> None:
        """Read a script without running it. Raises ScriptFailed if it cannot be run."""
        try:
            async with self._workers.worker(_find_kind(settings), self) as worker:
                await worker.session.feed_run("0")
                await worker.session.feed_start(f"_stop()\n{code}")  # which stops before the script
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as exc:
            lines = [frame.line for frame in exc.traceback()]
            raise ScriptFailed(exc.display("type-msg"), max(lines[-1] - 1, 0) if lines else 0) from exc
        except monty.MontyError as exc:
            raise _explain(exc, settings) from exc
        except CannotConfine as exc:
            raise _refuse(exc) from exc

    async def close(self) -> None:
        """End the workers; no script runs any more."""
        await self._workers.close()

    async def _go_on(self, execution: Execution, worker: Worker) -> None:
        try:
            await execution.go_on(worker.session, self._find_patience_s)
        except monty.MontyCrashedError:
            if execution.has_begun or not worker.is_spare:
                raise  # else the worker has ended while it waited for a script, which gets another one

    def _check_memory(self, execution: Execution) -> None:
        if execution.is_done or not execution.state:
            return
        self._waiting[execution] = len(execution.state)
        if sum(self._waiting.values()) > MOST_WAITING_BYTES:
            most = f"{MOST_WAITING_BYTES / 1_000_000:g} MB"
            raise ScriptFailed(f"the scripts that wait need more than {most} together; run it again later")

    def _find_patience_s(self) -> float:
        """Return how long a script may keep its worker while it waits for its calls."""
        return _SHORT_PATIENCE_S if self._workers.has_waiting else _PATIENCE_S


def _find_kind(settings: Scripts) -> WorkerKind:
    limits: monty.ResourceLimits = {
        "max_turn_duration_secs": settings.cpu_s,
        "max_memory": settings.memory,
        "max_suspensions": _OTHER_STOPS + 3 * settings.calls,
    }
    return WorkerKind(limits, is_confined=settings.sandbox == "strict")


def _refuse(exc: CannotConfine) -> ScriptFailed:
    return ScriptFailed(f"scripts run in a sandbox here (`settings.scripts.sandbox`), and {exc}; {exc.hint}")


class Pending(Struct):
    """What a script has called and has not been given the result of: a function with its texts, or a pause in s."""

    function: str
    args: tuple[str, ...]
    pause_s: float = 0.0


class Execution:
    """One script in progress: its state while it has no worker, and the calls that it has begun.

    `functions` take the number of a call before their texts. `on_resume` is awaited before a script without a worker
    goes on, and raises ScriptFailed if it must not; `on_print` may be called in another thread.
    """

    def __init__(
        self,
        code: str,
        data: Raw,
        settings: Scripts,
        functions: Functions,
        on_print: Callable[[str], None],
        on_resume: Callable[[], Awaitable[None]],
    ) -> None:
        self.settings = settings
        self.is_done = self.has_begun = False
        self.result = b""
        self.state = b""
        self.pending: dict[int, Pending] = {}
        self._code = code
        self._input = bytes(data).decode()
        self._functions = functions
        self._on_print = on_print
        self._on_resume = on_resume
        self._tasks: dict[int, asyncio.Task[Any]] = {}  # Any: what a function of the script returns
        self._awaited: list[asyncio.Task[Any]] = []
        self._is_in_haste = asyncio.Event()
        self._is_suspended = asyncio.Event()

    def restore(self, state: bytes, pending: Mapping[int, Pending], work: Mapping[int, Awaitable[bytes]]) -> None:
        """Go on from a state of another process with these calls; those without their `work` are made again."""
        self.state = state
        for id, call in pending.items():
            self._begin(id, call, work.get(id))

    async def suspend(self) -> bool:
        """Have the script give its worker up when it next waits; return whether it has, and is not done before."""
        self._is_in_haste.set()
        await self._is_suspended.wait()
        return not self.is_done

    def result_of(self, id: int) -> str | None:
        """Return the result of a pending call that is done."""
        task = self._tasks[id]
        is_done = task.done() and not task.cancelled() and task.exception() is None
        return str(task.result()) if is_done and self.pending[id].function else None

    async def go_on(self, session: monty.AsyncMontySession, find_patience_s: Callable[[], float]) -> None:
        """Run until the script is done, or has waited for a while. Raises MontyError and ScriptFailed."""
        self._is_suspended.clear()
        self._is_in_haste.clear()
        if self.state:
            await self._on_resume()
        stop = await self._start(session)
        while not isinstance(stop, monty.MontyComplete):
            match stop:
                case monty.AsyncFunctionSnapshot():
                    stop = await self._answer(stop)
                case monty.AsyncNameLookupSnapshot():
                    stop = await stop.resume()
                case monty.AsyncFutureSnapshot():
                    self._awaited = [self._tasks[id] for id in stop.pending_call_ids]
                    if not await self._is_any_done(find_patience_s()):
                        self.state = await session.dump()
                        return
                    stop = await stop.resume(self._take_results(stop.pending_call_ids))
        self.result = await _encode(session, stop.output)
        self.is_done = True

    async def wait(self) -> None:
        """Wait for one of the calls that the script waits for, without a worker."""
        if self.state:
            self._is_suspended.set()
        if self._awaited and not self.is_done:
            await asyncio.wait(self._awaited, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel all calls that are left, and wait until they have ended."""
        self.is_done = True
        self._is_suspended.set()
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _start(self, session: monty.AsyncMontySession) -> monty.AsyncSnapshot:
        self.has_begun = False
        if self.state:
            stop = await session.load_snapshot(self.state, print_callback=self._print)
            self.has_begun = True
            return stop
        try:
            await session.feed_run(_PRELUDE, inputs={"_input": self._input})
        except monty.MontyRuntimeError as exc:
            raise ScriptFailed(f"the input cannot be read: {exc.display('msg')}") from exc
        self.has_begun = True
        return await session.feed_start(self._code, print_callback=self._print)

    async def _answer(self, stop: monty.AsyncFunctionSnapshot) -> monty.AsyncSnapshot:
        """Begin what a script has called."""
        if stop.is_os_function:
            if stop.function_name not in _SLEEPS:
                return await stop.resume_not_handled()
            pause_s = _read_pause_s(stop.args)
            if stop.function_name == "system.sleep":
                await asyncio.sleep(pause_s)
                return await stop.resume({"return_value": None})
            self._begin(stop.call_id, Pending("", (), pause_s))
            return await stop.resume({"future": ...})
        if stop.function_name not in self._functions:
            return await stop.resume(
                {"exc_type": "NameError", "message": f"name '{stop.function_name}' is not defined"}
            )
        if not stop.args or stop.kwargs or not all(isinstance(each, str) for each in stop.args):
            return await stop.resume(
                {"exc_type": "TypeError", "message": "the names of a group and a tool are texts"}
            )
        try:
            self._begin(stop.call_id, Pending(stop.function_name, stop.args))
        except TypeError:
            message = f"{stop.function_name}() got a wrong number of arguments"
            return await stop.resume({"exc_type": "TypeError", "message": message})
        return await stop.resume({"future": ...})

    def _begin(self, id: int, call: Pending, work: Awaitable[bytes] | None = None) -> None:
        """Begin a call or a pause. Raises TypeError for a wrong number of arguments."""
        if call.function:
            text = _as_text(work or self._functions[call.function](id, *call.args))
        else:
            text = asyncio.sleep(call.pause_s, None)
        self.pending[id] = call
        self._tasks[id] = asyncio.create_task(text)

    async def _is_any_done(self, patience_s: float) -> bool:
        if not self._awaited:
            raise ScriptFailed("the script waits for nothing")
        haste = asyncio.ensure_future(self._is_in_haste.wait())
        try:
            await asyncio.wait([*self._awaited, haste], timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            haste.cancel()
        return any(task.done() for task in self._awaited)

    def _take_results(self, ids: Iterable[int]) -> dict[int, monty.ExternalSettledResult]:
        done = [id for id in ids if self._tasks[id].done()]
        for id in done:
            del self.pending[id]
        return {id: {"return_value": self._tasks.pop(id).result()} for id in done}

    def _print(self, stream: str, text: str) -> None:
        self._on_print(text)


async def _as_text(answer: Awaitable[bytes]) -> str | None:
    return (await answer).decode()


async def _encode(session: monty.AsyncMontySession, output: object) -> bytes:
    """Return the result of a script as JSON; its worker writes it, so that the bounds hold. Raises ScriptFailed."""
    try:
        written = await session.feed_run("_encode(_output)", inputs={"_output": output})
    except (monty.MontyRuntimeError, monty.MontyConversionError) as exc:
        if _is_bound(exc):
            raise
        raise ScriptFailed(f"the result of the script is no JSON: {exc}") from exc
    try:  # the script may have replaced what writes it
        data = str(written).encode()
        decode_as(data, Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
        raise ScriptFailed(f"the result of the script is no JSON: {exc}") from exc
    return data


def _read_pause_s(args: tuple[Any, ...]) -> float:  # Any: what the script has passed
    seconds = args[0] if args else 0
    return min(max(float(seconds), 0.0), _LONGEST_SLEEP_S) if isinstance(seconds, int | float) else 0.0


def _is_bound(exc: monty.MontyError) -> bool:
    """Return whether a script was ended at a bound; that of time cannot be caught, and shows no place."""
    error = exc.exception()
    is_timeout = isinstance(error, TimeoutError) and isinstance(exc, monty.MontyRuntimeError) and not exc.traceback()
    return isinstance(error, MemoryError) or is_timeout or isinstance(exc, monty.MontyCrashedError)


def _explain(exc: monty.MontyError, settings: Scripts) -> ScriptFailed:
    """Return why a script has failed, in words for the model that wrote it."""
    if isinstance(exc, monty.MontyCrashedError) and not exc.timed_out:
        return ScriptFailed("the process that ran the script has ended unexpectedly")
    if isinstance(exc, monty.MontyCrashedError) or (_is_bound(exc) and isinstance(exc.exception(), TimeoutError)):
        return ScriptFailed(f"it computed for more than {settings.cpu_s:g} s without a call (the bound `cpu`)")
    if isinstance(exc.exception(), MemoryError):
        return ScriptFailed(f"it needed more than {settings.memory // 1_000_000} MB of memory (the bound `memory`)")
    if not isinstance(exc, monty.MontyRuntimeError | monty.MontySyntaxError):
        return ScriptFailed(str(exc))
    lines = [frame.line for frame in exc.traceback() if frame.filename == _SCRIPT]
    text = exc.display("type-msg")
    if type(exc.exception()) is OSError:  # the prelude's
        text = f"ToolError: {exc.display('msg')}"
    return ScriptFailed(text, lines[-1] if lines else 0)
