"""Runs Python in Monty, an interpreter without files, network and environment, in a worker process for each script.

This is the only module that knows Monty. Values cross its border as JSON, which a script's worker reads and writes
within its own bounds of time and memory. A worker ends with its script. A script that waits for its calls for more
than a moment gives its worker up: its state is kept here, and goes on in another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
import pydantic_monty as monty
from msgspec import Raw

from dynamic_mcp.features.scripts.config import LONGEST_CPU_S, Scripts
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.upstream.process.child import watch_process

# What a script can do besides computing, by names: each takes texts, and returns JSON.
Functions = Mapping[str, Callable[..., Awaitable[bytes]]]

# A script keeps its worker while it waits for its calls so long, and not as long if others wait for one.
_PATIENCE_S, _SHORT_PATIENCE_S = 0.5, 0.01
# The longest pause of one `sleep`.
_LONGEST_SLEEP_S = 10.0
# Reading a script, and other work of a worker that its own clock does not count.
_GRACE_S = 5.0
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
    """The workers, at most as many as there are processors: one is started for each script, and ends with it."""

    def __init__(self) -> None:
        self._most = os.cpu_count() or 1
        self._pool: monty.AsyncMonty | None = None
        self._opening = asyncio.Lock()
        self._users = 0  # that have a worker, or wait for one

    async def run(
        self, code: str, data: Raw, settings: Scripts, functions: Functions, on_print: Callable[[str], None]
    ) -> bytes:
        """Run a script, whose `input` is `data`, and return its result as JSON. Raises ScriptFailed.

        If this is cancelled, the worker is killed. `on_print` may be called in another thread.
        """
        execution = _Execution(code, data, settings, functions, on_print, self._find_patience_s)
        try:
            while not execution.is_done:
                async with self._worker(settings) as session:
                    await execution.go_on(session)
                await execution.wait()
        except monty.MontyError as exc:
            raise _explain(exc, settings) from exc
        finally:
            await execution.close()
        return execution.result

    async def check_syntax(self, code: str, settings: Scripts) -> None:
        """Read a script without running it. Raises ScriptFailed if it cannot be run."""
        try:
            async with self._worker(settings) as session:
                await session.feed_run("0")  # so that the script is the second text, as where it runs
                await session.feed_start(f"_stop()\n{code}")  # which stops before the script, and is never resumed
        except monty.MontyError as exc:
            failure = _explain(exc, settings)
            raise ScriptFailed(failure.message, max(failure.line - 1, 0)) from exc

    async def close(self) -> None:
        """Release the workers; no script runs any more."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)

    @contextlib.asynccontextmanager
    async def _worker(self, settings: Scripts) -> AsyncIterator[monty.AsyncMontySession]:
        limits: monty.ResourceLimits = {
            "max_turn_duration_secs": settings.cpu_s,
            "max_memory": settings.memory,
            "max_suspensions": _OTHER_STOPS + 3 * settings.calls,
        }
        pool = await self._open_pool()
        self._users += 1
        try:
            with contextlib.ExitStack() as guard:  # ends after the worker
                async with pool.checkout(limits=limits) as session:
                    if session.worker_pid is not None:
                        guard.enter_context(watch_process(session.worker_pid))
                    yield session
        finally:
            self._users -= 1

    def _find_patience_s(self) -> float:
        """Return how long a script may keep its worker while it waits for its calls."""
        return _PATIENCE_S if self._users <= self._most else _SHORT_PATIENCE_S

    async def _open_pool(self) -> monty.AsyncMonty:
        async with self._opening:
            if self._pool is None:
                pool = monty.AsyncMonty(
                    min_processes=0,
                    max_processes=self._most,
                    max_checkouts_per_worker=1,  # so that no script finds what another one has left
                    request_timeout=LONGEST_CPU_S + _GRACE_S,
                )
                await pool.__aenter__()
                self._pool = pool
            return self._pool


class _Execution:
    """One script in progress: its state while it has no worker, and the calls that it has begun."""

    def __init__(
        self,
        code: str,
        data: Raw,
        settings: Scripts,
        functions: Functions,
        on_print: Callable[[str], None],
        find_patience_s: Callable[[], float],
    ) -> None:
        self.is_done = False
        self.result = b""
        self._code = code
        self._input = bytes(data).decode()
        self._functions = functions
        self._on_print = on_print
        self._find_patience_s = find_patience_s
        self._state: bytes | None = None
        self._calls: dict[int, asyncio.Task[Any]] = {}  # Any: what a function of the script returns
        self._awaited: list[asyncio.Task[Any]] = []

    async def go_on(self, session: monty.AsyncMontySession) -> None:
        """Run until the script is done, or has waited for a while. Raises MontyError and ScriptFailed."""
        stop = await self._start(session)
        while not isinstance(stop, monty.MontyComplete):
            match stop:
                case monty.AsyncFunctionSnapshot():
                    stop = await self._answer(stop)
                case monty.AsyncNameLookupSnapshot():
                    stop = await stop.resume()
                case monty.AsyncFutureSnapshot():
                    self._awaited = [self._calls[id] for id in stop.pending_call_ids]
                    if not await self._is_any_done():
                        self._state = await session.dump()
                        return
                    stop = await stop.resume(self._take_results(stop.pending_call_ids))
        self.result = await _encode(session, stop.output)
        self.is_done = True

    async def wait(self) -> None:
        """Wait for one of the calls that the script waits for, without a worker."""
        if not self.is_done:
            await asyncio.wait(self._awaited, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel all calls that are left, and wait until they have ended."""
        left = list(self._calls.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _start(self, session: monty.AsyncMontySession) -> monty.AsyncSnapshot:
        if self._state is not None:
            return await session.load_snapshot(self._state, print_callback=self._print)
        try:
            await session.feed_run(_PRELUDE, inputs={"_input": self._input})
        except monty.MontyRuntimeError as exc:
            raise ScriptFailed(f"the input cannot be read: {exc.display('msg')}") from exc
        return await session.feed_start(self._code, print_callback=self._print)

    async def _answer(self, stop: monty.AsyncFunctionSnapshot) -> monty.AsyncSnapshot:
        """Begin what a script has called."""
        if stop.is_os_function:
            if stop.function_name not in _SLEEPS:
                return await stop.resume_not_handled()
            pause = asyncio.sleep(_pause_s(stop.args))
            if stop.function_name == "system.sleep":
                await pause
                return await stop.resume({"return_value": None})
            self._calls[stop.call_id] = asyncio.create_task(pause)
            return await stop.resume({"future": ...})
        function = self._functions.get(stop.function_name)
        if function is None:
            return await stop.resume(
                {"exc_type": "NameError", "message": f"name '{stop.function_name}' is not defined"}
            )
        if not stop.args or stop.kwargs or not all(isinstance(each, str) for each in stop.args):
            return await stop.resume(
                {"exc_type": "TypeError", "message": "the names of a group and a tool are texts"}
            )
        try:
            answer = function(*stop.args)
        except TypeError:
            message = f"{stop.function_name}() got a wrong number of arguments"
            return await stop.resume({"exc_type": "TypeError", "message": message})
        self._calls[stop.call_id] = asyncio.create_task(_as_text(answer))
        return await stop.resume({"future": ...})

    async def _is_any_done(self) -> bool:
        if not self._awaited:
            raise ScriptFailed("the script waits for nothing")
        done, _ = await asyncio.wait(
            self._awaited, timeout=self._find_patience_s(), return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    def _take_results(self, ids: Iterable[int]) -> dict[int, monty.ExternalSettledResult]:
        done = [id for id in ids if self._calls[id].done()]
        return {id: {"return_value": self._calls.pop(id).result()} for id in done}

    def _print(self, stream: str, text: str) -> None:
        self._on_print(text)


async def _as_text(answer: Awaitable[bytes]) -> str:
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


def _pause_s(args: tuple[Any, ...]) -> float:  # Any: what the script has passed
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
