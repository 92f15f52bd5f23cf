"""The signals of a serving process, and on Windows the events of its console."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from dynamic_mcp.upstream.ending import kill_all

if sys.platform == "win32":
    from dynamic_mcp.system.console_events import ConsoleEvents


class SignalHandlers:
    """SIGTERM and SIGINT end serving; a second one ends the process at once. SIGHUP reloads the config.

    On Windows, Ctrl-C, Ctrl-Break, and the end of the console, of the user's session or of the system end serving.
    After one of the last three, `is_urgent`: Windows ends the process after five seconds.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, end: Callable[[], None], reload: Callable[[], None]
    ) -> None:
        self.has_received_end = False
        self.is_urgent = False
        self._loop = loop
        self._end = end
        self._reload = reload

    if sys.platform == "win32":

        def __enter__(self) -> SignalHandlers:
            self._console = ConsoleEvents(on_interrupt=self._receive_interrupt, on_end=self._receive_end_of_process)
            return self

        def __exit__(self, *exc: object) -> None:
            self._console.close()

        # Both are called in threads of their own.
        def _receive_interrupt(self) -> None:
            if self.has_received_end:
                _exit_now()
            self._loop.call_soon_threadsafe(self._receive_end)

        def _receive_end_of_process(self) -> None:
            self._loop.call_soon_threadsafe(self._receive_urgent_end)

        def _receive_urgent_end(self) -> None:
            self.is_urgent = True
            if not self.has_received_end:  # a session that ends may close its console too
                self._receive_end()

    else:

        def __enter__(self) -> SignalHandlers:
            self._loop.add_signal_handler(signal.SIGTERM, self._receive_end)
            self._loop.add_signal_handler(signal.SIGINT, self._receive_end)
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
        ) -> None:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._loop.remove_signal_handler(number)

    def _receive_end(self) -> None:
        if self.has_received_end:
            _exit_now()
        self.has_received_end = True
        self._end()


def _exit_now() -> None:
    kill_all()
    os._exit(0)
