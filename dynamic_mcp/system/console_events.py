"""What ends this process on Windows from outside: the events of its console, and the end of the user's session.

Python knows Ctrl-C and Ctrl-Break only. When the console is closed, the user logs off or the system shuts down,
Windows ends the process as soon as its handler returns, and after some seconds in any case:
https://learn.microsoft.com/windows/console/handlerroutine

Handlers hear of logoff and shutdown in services only, and in no process that has loaded `user32.dll`, as libraries of
Python do. There Windows tells a hidden window: https://learn.microsoft.com/windows/console/setconsolectrlhandler
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable
from ctypes import wintypes

assert sys.platform == "win32"

_CTRL_C = 0
_CTRL_BREAK = 1
_WM_DESTROY = 0x02
_WM_CLOSE = 0x10
_WM_ENDSESSION = 0x16
# Windows ends a process whose console is closed five seconds later, and one of a session that ends.
_END_WITHIN_S = 4.8
_SetHandler = ctypes.WinDLL("kernel32", use_last_error=True).SetConsoleCtrlHandler


class ConsoleEvents:
    """Calls `on_interrupt` at Ctrl-C and Ctrl-Break, and `on_end` if Windows ends this process, until `close`.

    They are called in threads of their own. After `on_end`, Windows waits until this process has ended by itself.
    """

    def __init__(self, *, on_interrupt: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._on_interrupt = on_interrupt
        self._on_end = on_end
        self._process_ends = False
        self._handler = ctypes.WINFUNCTYPE(wintypes.BOOL, wintypes.DWORD)(self._handle)
        _SetHandler(self._handler, 1)
        self._window = _HiddenWindow(self._end)

    def close(self) -> None:
        """Handle no further events. After one that ends the process, this does nothing.

        Windows lets nobody change the handlers while one of them runs.
        """
        if not self._process_ends:
            _SetHandler(self._handler, 0)
            self._window.close()

    def _handle(self, event: int) -> bool:
        if event in (_CTRL_C, _CTRL_BREAK):
            self._on_interrupt()
        else:
            self._end()
        return True  # no other handler, such as Python's, gets it

    def _end(self) -> None:
        self._process_ends = True
        self._on_end()
        threading.Event().wait(_END_WITHIN_S)


class _HiddenWindow:
    """Calls `on_end` when the user's session ends, in the thread of the window."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._window = 0
        self._is_closed = False
        threading.Thread(target=self._run, name="hidden window", daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        if self._window:
            _tell(self._window, _WM_CLOSE)

    def _run(self) -> None:
        import pywintypes  # while the program starts
        import win32api
        import win32gui

        window_class = win32gui.WNDCLASS()
        window_class.hInstance = instance = win32api.GetModuleHandle(None)
        window_class.lpszClassName = f"dynamic-mcp-{threading.get_ident()}"
        window_class.lpfnWndProc = {_WM_ENDSESSION: self._receive_end, _WM_DESTROY: _quit}
        with contextlib.suppress(pywintypes.error):  # there is no desktop
            name, kind = "dynamic-mcp", win32gui.RegisterClass(window_class)
            self._window = win32gui.CreateWindowEx(0, kind, name, 0, 0, 0, 0, 0, 0, 0, instance, None)
            if self._window and not self._is_closed:
                win32gui.PumpMessages()
            win32gui.UnregisterClass(kind, instance)

    def _receive_end(self, window: int, message: int, is_ending: int, reason: int) -> int:
        if is_ending:  # no other program has prevented it
            self._on_end()
        return 0


def _quit(window: int, message: int, first: int, second: int) -> int:
    import win32gui

    win32gui.PostQuitMessage(0)
    return 0


def _tell(window: int, message: int) -> None:
    import pywintypes
    import win32gui

    with contextlib.suppress(pywintypes.error):  # it has gone
        win32gui.PostMessage(window, message, 0, 0)
