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
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, end: Callable[[], None], reload: Callable[[], None]
    ) -> None:
        self.has_received_end = False
        self._loop = loop
        self._end = end
        self._reload = reload

    if sys.platform == "win32":

        def __enter__(self) -> SignalHandlers:
            self._console = ConsoleEvents(self._receive_event)
            return self

        def __exit__(self, *exc: object) -> None:
            self._console.close()

        def _receive_event(self) -> None:
            """Called in a thread of its own."""
            if self.has_received_end:
                _exit_now()
            self._loop.call_soon_threadsafe(self._receive_end)

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
