"""The calls that people make at the page: they run in the background, and what comes of each is kept for a while.

So a reload of the page calls nothing again, and a result can be sent to oneself, but to nobody else: a call is found
by its own person alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any

from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.ui.section import Visit

log = logging.getLogger(__name__)

KEPT_FOR_S = 1800.0
MOST_OF_PERSON = 30
MOST_RUNNING = 10
_MOST = 1000
_MOST_BYTES = 256 << 20


class PersonCall:
    """A call of one person. `typed` is what was in the form, and `arguments` what that was read as.

    `path` is the page that it was made at. `may_wait` says that a rule asks a person before it runs.
    """

    def __init__(
        self,
        owner: Principal,
        path: str,
        arguments: Raw,
        typed: Mapping[str, str],
        *,
        began_at: float,
        may_wait: bool,
    ) -> None:
        self.id = secrets.token_urlsafe(12)
        self.owner = owner
        self.path = path
        self.arguments = arguments
        self.typed = typed
        self.began_at = began_at
        self.may_wait = may_wait
        self.took_s: float | None = None
        self.result: Raw | None = None
        self.error: DynamicMcpError | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def is_stopped(self) -> bool:
        return self.task is not None and self.task.done() and self.task.cancelled()

    @property
    def size(self) -> int:
        return 0 if self.result is None else len(self.result)

    @property
    def is_error(self) -> bool:
        """Return whether the call failed, by what the tool says or before it came to that."""
        said = self.result is not None and bytes(wire.member(self.result, "isError")) == b"true"
        return self.error is not None or self.is_stopped or said


class PersonCalls:
    """The calls of all people. `clock` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: dict[str, PersonCall] = {}

    def start(
        self,
        visit: Visit,
        ask: Coroutine[Any, Any, Raw],  # Any: as `async def` has it
        *,
        path: str,
        arguments: Raw,
        typed: Mapping[str, str],
        may_wait: bool = False,
    ) -> PersonCall:
        """Begin a call. Raises DynamicMcpError if this person has too many that run."""
        owner = visit.authentication.principal
        if sum(each.is_running for each in self._of(owner)) >= MOST_RUNNING:
            ask.close()
            raise DynamicMcpError(f"{MOST_RUNNING} of your calls are still running", hint="wait for one, or stop it")
        call = PersonCall(owner, path, arguments, typed, began_at=self._clock(), may_wait=may_wait)
        call.task = asyncio.create_task(self._run(call, ask), name="call of a person")
        call.task.add_done_callback(lambda _: ask.close())  # which has not begun if it is stopped at once
        self._calls[call.id] = call
        self._make_room(owner)
        return call

    def find(self, visit: Visit, id: str, path: str) -> PersonCall | None:
        """Return a call that this person made at this page, as long as it is kept."""
        call = self._calls.get(id)
        if call is None or call.owner != visit.authentication.principal or call.path != path:
            return None
        return call

    async def wait(self, call: PersonCall, within_s: float) -> None:
        """Wait for the end of a call, for so long at most."""
        if call.task is not None:
            await asyncio.wait([call.task], timeout=within_s)

    def stop(self, call: PersonCall) -> None:
        if call.task is not None:
            call.task.cancel()

    def stamp(self, visit: Visit) -> Hashable:
        """Return a value that changes when a call of this person begins or ends."""
        return tuple((each.id, each.is_running) for each in self._of(visit.authentication.principal))

    async def close(self) -> None:
        tasks = [each.task for each in self._calls.values() if each.task is not None and not each.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.clear()

    async def _run(self, call: PersonCall, ask: Coroutine[Any, Any, Raw]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            call.result = await ask
        except DynamicMcpError as exc:
            call.error = exc
        except Exception:
            log.exception("a call of the page")
            call.error = DynamicMcpError("something went wrong in dynamic-mcp itself", hint="its log says what")
        finally:
            call.took_s = loop.time() - began

    def _of(self, owner: Principal) -> list[PersonCall]:
        return [each for each in self._calls.values() if each.owner == owner]

    def _make_room(self, owner: Principal) -> None:
        """Forget the oldest calls that have ended: of this person, and of all."""
        oldest = self._clock() - KEPT_FOR_S
        for each in [*self._calls.values()]:
            if not each.is_running and each.began_at < oldest:
                del self._calls[each.id]
        own = [each for each in self._of(owner) if not each.is_running]
        for each in own[: max(len(own) - MOST_OF_PERSON, 0)]:
            del self._calls[each.id]
        while len(self._calls) > _MOST or sum(each.size for each in self._calls.values()) > _MOST_BYTES:
            ended = next((each for each in self._calls.values() if not each.is_running), None)
            if ended is None:
                return
            del self._calls[ended.id]
