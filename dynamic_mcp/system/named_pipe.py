"""Named pipes of Windows that only this user can open, in place of Unix sockets. A file holds the name of a pipe.

Each pipe has a new name, so that a daemon can listen while its predecessor still serves its last clients.
"""

from __future__ import annotations

import _winapi
import ctypes
import os
import sys
import time

assert sys.platform == "win32"

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PREFIX = "\\\\.\\pipe\\dynamic-mcp-"
_BUFFER_BYTES = 1 << 16
# How long to retry while many clients connect at once, or the listener does not accept.
_CONNECT_WITHIN_S = 2.0
_POLL_S = 0.02

# Of <winbase.h>, <winnt.h> and <accctrl.h>, where `_winapi` has no names for them.
_SECURITY_IDENTIFICATION = 0x00110000  # with SECURITY_SQOS_PRESENT: a foreign server cannot act as this user
_PIPE_REJECT_REMOTE_CLIENTS = 0x8
_PROCESS_SYNCHRONIZE_AND_TERMINATE = 0x00100001
_TOKEN_QUERY, _TOKEN_USER = 0x8, 1
_SE_KERNEL_OBJECT, _OWNER_SECURITY_INFORMATION = 6, 1
_SDDL_REVISION = 1
_MAX_TOKEN_USER_BYTES = 256

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
_kernel32.GetCurrentProcess.restype = ctypes.c_void_p
_kernel32.LocalFree.argtypes = [ctypes.c_void_p]
_kernel32.CloseHandle.argtypes = [ctypes.c_void_p]


class _SecurityAttributes(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("descriptor", ctypes.c_void_p), ("is_inherited", ctypes.c_int))


class PipeConnection:
    """The client's end of a pipe, with the methods of a socket that a client of a daemon uses."""

    def __init__(self, handle: int, address: str) -> None:
        self._handle = handle
        self._address = address
        self._timeout_ms = _winapi.INFINITE
        self._received = b""
        self._has_ended = False
        self._reading: Any = None  # an `_winapi.Overlapped`, which has no name in typeshed
        self._writing: Any = None

    def fileno(self) -> int:
        return self._handle

    def getpeername(self) -> str:
        return self._address

    def settimeout(self, seconds: float) -> None:
        self._timeout_ms = int(seconds * 1000)

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as a socket has it
        self._timeout_ms = _winapi.INFINITE if flag else 0

    def send(self, data: bytes) -> int:
        """Start to write all of `data`.

        Raises BlockingIOError or TimeoutError while earlier data is being written, and OSError.
        """
        if not self._finish_write(self._timeout_ms):
            raise TimeoutError if self._timeout_ms else BlockingIOError
        self._writing, _ = _winapi.WriteFile(self._handle, data, overlapped=True)
        return len(data)

    def sendall(self, data: bytes) -> None:
        """Write all of `data`. Raises TimeoutError, and OSError."""
        self.send(data)
        if not self._finish_write(self._timeout_ms):
            raise TimeoutError

    def recv(self, most: int) -> bytes:
        """Return what has been received; nothing at the end. Raises BlockingIOError or TimeoutError."""
        if not self._finish_read(self._timeout_ms):
            raise TimeoutError if self._timeout_ms else BlockingIOError
        data, self._received = self._received[:most], self._received[most:]
        return data

    def read_event(self) -> int | None:
        """Return the event of the next data; None if there is some, or the end."""
        return None if self._finish_read(0) else self._reading.event

    def write_event(self) -> int | None:
        """Return the event of the end of a write; None if more can be written."""
        try:
            return None if self._finish_write(0) else self._writing.event
        except OSError:  # the next `send` raises one, too
            return None

    def detach(self) -> int:
        """Return the handle, which the caller closes."""
        handle, self._handle = self._handle, 0
        return handle

    def close(self) -> None:
        for pending in filter(None, (self._reading, self._writing)):
            pending.cancel()
            try:  # noqa: SIM105 - contextlib takes as long to load as all of this
                pending.GetOverlappedResult(True)  # noqa: FBT003 - takes no keyword
            except OSError:
                pass
        self._reading = self._writing = None
        if self._handle:
            _winapi.CloseHandle(self.detach())

    def _finish_read(self, within_ms: int) -> bool:
        """Return whether there is data, or the end, within this time."""
        if self._received or self._has_ended:
            return True
        try:
            if self._reading is None:
                self._reading, _ = _winapi.ReadFile(self._handle, _BUFFER_BYTES, overlapped=True)
            if _winapi.WaitForSingleObject(self._reading.event, within_ms) != _winapi.WAIT_OBJECT_0:
                return False
            reading, self._reading = self._reading, None
            reading.GetOverlappedResult(True)  # noqa: FBT003
            self._received = bytes(reading.getbuffer())
        except OSError:
            pass
        self._has_ended = not self._received
        return True

    def _finish_write(self, within_ms: int) -> bool:
        """Return whether everything was written within this time."""
        if self._writing is None:
            return True
        if _winapi.WaitForSingleObject(self._writing.event, within_ms) != _winapi.WAIT_OBJECT_0:
            return False
        writing, self._writing = self._writing, None
        writing.GetOverlappedResult(True)  # noqa: FBT003
        return True


def connect_to(path: str) -> PipeConnection | None:
    """Connect to the pipe whose name this file has; None if there is no listener, or it belongs to another user."""
    ends_at = time.monotonic() + _CONNECT_WITHIN_S
    while True:
        try:
            with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow to load
                address = file.read()
            if not address.startswith(_PREFIX):
                return None
            handle = _open(address)
        except (OSError, ValueError) as exc:
            if getattr(exc, "winerror", 0) == _winapi.ERROR_PIPE_BUSY and time.monotonic() < ends_at:
                time.sleep(_POLL_S)
                continue
            return None
        if is_own(handle):
            return PipeConnection(handle, address)
        _winapi.CloseHandle(handle)
        return None


def new_address() -> str:
    """Return a name that no other pipe has."""
    return _PREFIX + os.urandom(16).hex()


def create(address: str, *, is_first: bool) -> int:
    """Return the handle of a new end of a pipe for one client of this user. Raises OSError."""
    user = own_user()
    descriptor = ctypes.c_void_p()
    # owned by this user also if an administrator starts it, and open to no other
    if not _advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW(
        f"O:{user}D:P(A;;FA;;;{user})", _SDDL_REVISION, ctypes.byref(descriptor), None
    ):
        raise ctypes.WinError(ctypes.get_last_error())
    attributes = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor, 0)
    first = _winapi.FILE_FLAG_FIRST_PIPE_INSTANCE if is_first else 0
    try:
        return _winapi.CreateNamedPipe(
            address,
            _winapi.PIPE_ACCESS_DUPLEX | _winapi.FILE_FLAG_OVERLAPPED | first,
            _winapi.PIPE_WAIT | _PIPE_REJECT_REMOTE_CLIENTS,
            _winapi.PIPE_UNLIMITED_INSTANCES,
            _BUFFER_BYTES,
            _BUFFER_BYTES,
            _winapi.NMPWAIT_WAIT_FOREVER,
            ctypes.addressof(attributes),
        )
    finally:
        _kernel32.LocalFree(descriptor)


def is_own(handle: int) -> bool:
    """Return whether a pipe belongs to this user, which no other user can pretend."""
    owner, descriptor = ctypes.c_void_p(), ctypes.c_void_p()
    failed = _advapi32.GetSecurityInfo(
        ctypes.c_void_p(handle),
        _SE_KERNEL_OBJECT,
        _OWNER_SECURITY_INFORMATION,
        ctypes.byref(owner),
        None,
        None,
        None,
        ctypes.byref(descriptor),
    )
    if failed:
        return False
    try:
        return _format_user(owner) == own_user()
    finally:
        _kernel32.LocalFree(descriptor)


def own_user() -> str:
    """Return the security identifier of the user of this process. Raises OSError."""
    token = ctypes.c_void_p()
    if not _advapi32.OpenProcessToken(
        ctypes.c_void_p(_kernel32.GetCurrentProcess()), _TOKEN_QUERY, ctypes.byref(token)
    ):
        raise ctypes.WinError(ctypes.get_last_error())
    buffer, size = ctypes.create_string_buffer(_MAX_TOKEN_USER_BYTES), ctypes.c_uint32()
    try:
        if not _advapi32.GetTokenInformation(token, _TOKEN_USER, buffer, len(buffer), ctypes.byref(size)):
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        _kernel32.CloseHandle(token)
    return _format_user(ctypes.c_void_p.from_buffer(buffer))  # TOKEN_USER begins with the pointer


def server_process(handle: int) -> int | None:
    """Return the id of the process that listens; None if it is not known."""
    process = ctypes.c_uint32()
    is_known = _kernel32.GetNamedPipeServerProcessId(ctypes.c_void_p(handle), ctypes.byref(process))
    return process.value if is_known else None


def wait_for_exit(process: int, within_s: float) -> None:
    """Wait for the exit of a process, if it still runs."""
    try:
        handle = _winapi.OpenProcess(_PROCESS_SYNCHRONIZE_AND_TERMINATE, False, process)  # noqa: FBT003
    except OSError:
        return
    _winapi.WaitForSingleObject(handle, int(within_s * 1000))
    _winapi.CloseHandle(handle)


def end_process(process: int) -> None:
    """End a process at once, if it still runs."""
    try:
        handle = _winapi.OpenProcess(_PROCESS_SYNCHRONIZE_AND_TERMINATE, False, process)  # noqa: FBT003
        _winapi.TerminateProcess(handle, 1)
    except OSError:
        return
    _winapi.CloseHandle(handle)


def _open(address: str) -> int:
    return _winapi.CreateFile(
        address,
        _winapi.GENERIC_READ | _winapi.GENERIC_WRITE,
        0,
        _winapi.NULL,
        _winapi.OPEN_EXISTING,
        _winapi.FILE_FLAG_OVERLAPPED | _SECURITY_IDENTIFICATION,
        _winapi.NULL,
    )


def _format_user(user: ctypes.c_void_p) -> str:
    text = ctypes.c_wchar_p()
    if not _advapi32.ConvertSidToStringSidW(user, ctypes.byref(text)):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        return text.value or ""
    finally:
        _kernel32.LocalFree(ctypes.cast(text, ctypes.c_void_p))
