"""The signals of a serving process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from dynamic_mcp.upstream.process.ending import kill_all


class SignalHandlers:
    """SIGTERM and SIGINT end serving; a second one ends the process at once. SIGHUP reloads the config."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        end: Callable[[], None],
        reload: Callable[[], None],
        platform: str = sys.platform,
    ) -> None:
        self.has_received_end = False
        self._loop = loop
        self._end = end
        self._reload = reload
        self._platform = platform
        self._installed: list[signal.Signals] = []

    def __enter__(self) -> SignalHandlers:
        if self._platform != "win32":  # whose event loop takes no handlers of signals
            self._install(signal.SIGTERM, self._receive_end)
            self._install(signal.SIGINT, self._receive_end)
            self._install(signal.SIGHUP, self._reload)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        for number in self._installed:
            self._loop.remove_signal_handler(number)

    def _install(self, number: signal.Signals, handle: Callable[[], None]) -> None:
        self._loop.add_signal_handler(number, handle)
        self._installed.append(number)

    def _receive_end(self) -> None:
        if self.has_received_end:
            _exit_now()
        self.has_received_end = True
        self._end()


def _exit_now() -> None:
    kill_all()
    os._exit(0)
