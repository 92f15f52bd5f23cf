"""The end of a named pipe of Windows in asyncio's event loop, for the daemon and for commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from dynamic_mcp.system import named_pipe

assert sys.platform == "win32"

from asyncio.windows_utils import PipeHandle  # noqa: E402

# Ends that wait for a client, so that several can connect at once.
_WAITING = 4
_TRY_AGAIN_S = 1.0


class PipeListener:
    """Accepts the clients of a pipe with a new name, which only this user can open.

    asyncio's own server of pipes lets other users connect, and takes no security descriptor.
    """

    def __init__(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        """Listen. Raises OSError."""
        self.address = named_pipe.new_address()
        self._accept = accept
        self._proactor = _loop()._proactor  # noqa: SLF001 - as `start_serving_pipe` does
        self._waiting: set[PipeHandle] = set()
        first = self._create(is_first=True)
        if not named_pipe.is_own(first.handle):
            first.close()
            raise PermissionError("the pipe belongs to another user")
        pipes = [first, *(self._create(is_first=False) for _ in range(_WAITING - 1))]
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [create_task(self._serve(pipe), name="wait for a window") for pipe in pipes]

    def close(self) -> None:
        """Stop listening. Existing connections stay open."""
        for task in self._tasks:
            task.cancel()
        for pipe in self._waiting:
            pipe.close()
        self._waiting.clear()

    async def _serve(self, pipe: PipeHandle) -> None:
        while True:
            try:
                await self._proactor.accept_pipe(pipe)
            except OSError:  # the client has disconnected already
                self._waiting.discard(pipe)
                pipe.close()
            else:
                self._waiting.discard(pipe)
                attach(pipe, self._accept())
            pipe = await self._create_next()

    async def _create_next(self) -> PipeHandle:
        """Make another end, as soon as Windows has room for it."""
        while True:
            try:
                return self._create(is_first=False)
            except OSError:
                await asyncio.sleep(_TRY_AGAIN_S)

    def _create(self, *, is_first: bool) -> PipeHandle:
        pipe = PipeHandle(named_pipe.create(self.address, is_first=is_first))
        self._waiting.add(pipe)
        return pipe


def attach(pipe: PipeHandle, protocol: asyncio.BaseProtocol) -> asyncio.Future[None]:
    """Let the loop read and write a connected pipe; the future is done once the protocol has its transport."""
    attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # as `create_pipe_connection` does
    _loop()._make_duplex_pipe_transport(pipe, protocol, waiter=attached)  # noqa: SLF001
    return attached


def _loop() -> Any:  # typeshed does not know the methods of the loop that make pipes of handles
    return asyncio.get_running_loop()
