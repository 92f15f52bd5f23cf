"""The events of the console of this process on Windows, even of one without a window.

Python knows Ctrl-C and Ctrl-Break only. When the console is closed, the user logs off or the system shuts down,
Windows ends the process as soon as its handler returns, and after some seconds in any case:
https://learn.microsoft.com/windows/console/handlerroutine
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from ctypes import wintypes

assert sys.platform == "win32"

_CTRL_C = 0
_CTRL_BREAK = 1
# Windows ends a process whose console is closed five seconds later.
_END_WITHIN_S = 4.8
_SetHandler = ctypes.WinDLL("kernel32", use_last_error=True).SetConsoleCtrlHandler


class ConsoleEvents:
    """Calls `on_end` at each event, in a thread of the system, until `close`.

    After an event that ends the process, Windows waits until this process has ended by itself.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._process_ends = False
        self._handler = ctypes.WINFUNCTYPE(wintypes.BOOL, wintypes.DWORD)(self._handle)
        _SetHandler(self._handler, 1)

    def close(self) -> None:
        """Handle no further events. After one that ends the process, this does nothing.

        Windows lets nobody change the handlers while one of them runs.
        """
        if not self._process_ends:
            _SetHandler(self._handler, 0)

    def _handle(self, event: int) -> bool:
        self._process_ends = event not in (_CTRL_C, _CTRL_BREAK)
        self._on_end()
        if self._process_ends:
            threading.Event().wait(_END_WITHIN_S)
        return True  # no other handler, such as Python's, gets it
