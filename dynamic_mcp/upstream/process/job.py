"""A program on Windows in a job object: whatever it starts is in the job too, and ends when the job is terminated.

The only handle of a job is ours, and is not inherited: Windows closes it with this process, however that ends, and
terminates the job. A process is in its job from the start (`PROC_THREAD_ATTRIBUTE_JOB_LIST`, Windows 10): one that is
assigned later, even if it starts suspended, is left over if we are killed in between. Jobs nest, so an AI tool may
have us in a job of its own. It inherits the three handles of its streams, and no other.

It has a console without a window. Sharing ours would show a window wherever we have none, and let a server write to
the user's terminal. So no Ctrl-Break can be sent to it, which reaches only processes of the sender's console: a
server is asked to end by the end of its stdin, as MCP has it, and is then terminated with its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import msvcrt
import os
import signal
import subprocess
import sys
import threading
from asyncio import windows_utils
from collections.abc import Callable, Iterator, Mapping
from ctypes import wintypes

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.programs import find_on_windows
from dynamic_mcp.upstream.process import batch

assert sys.platform == "win32"

# The buffer of a pipe: a result of the largest default size fits.
_PIPE_BYTES = 1 << 17
# https://learn.microsoft.com/windows/win32/api/processthreadsapi/nf-processthreadsapi-createprocessw
_MAX_COMMAND_LINE = 32766
_CREATE_UNICODE_ENVIRONMENT = 0x400
_EXTENDED_STARTUPINFO_PRESENT = 0x80000
_STARTF_USESTDHANDLES = 0x100
_ATTRIBUTE_HANDLE_LIST = 0x20002
_ATTRIBUTE_JOB_LIST = 0x2000D
_HANDLE_FLAG_INHERIT = 1
_INFINITE = 0xFFFFFFFF
_BASIC_ACCOUNTING = 1
_EXTENDED_LIMITS = 9
_KILL_ON_JOB_CLOSE = 0x2000
_ERROR_BAD_EXE_FORMAT = 193
# The exit code of what is terminated.
_TERMINATED = 1
# Interval of checks for the end of a job.
_POLL_S = 0.02

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)


class JobProcess:
    """A process and the job that it is in, with our ends of its pipes. `stdin` is None if it reads a file."""

    def __init__(self, process: int, job: int, pid: int) -> None:
        self.pid = pid
        self.stdin: windows_utils.PipeHandle | None
        self.stdout: windows_utils.PipeHandle
        self.stderr: windows_utils.PipeHandle
        self._process = process
        self._job: int | None = job

    def watch(self, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit` with the exit code, in the running loop."""
        loop = asyncio.get_running_loop()

        def wait() -> None:
            code = self._wait_for_exit()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program is ending
                loop.call_soon_threadsafe(on_exit, code)

        threading.Thread(target=wait, daemon=True).start()

    def send_signal(self, number: signal.Signals) -> None:
        """Terminate the process and all that it has started, whatever the signal."""
        if self._job is not None:
            _kernel32.TerminateJobObject(wintypes.HANDLE(self._job), wintypes.UINT(_TERMINATED))

    def find_strays(self) -> None:
        """Do nothing: no process leaves a job."""

    async def wait_for_all(self, stray_signal: Callable[[], signal.Signals]) -> None:
        """Wait until everything has ended that the process, which has exited, has started."""
        while self._count_running():  # noqa: ASYNC110 - a job's end raises no event that is worth a thread
            await asyncio.sleep(_POLL_S)

    def release(self) -> None:
        """Close the job and the process, which have ended."""
        job, self._job = self._job, None
        if job is not None:
            _close(job)
            _close(self._process)

    def discard(self) -> None:
        """Kill a process that is no longer needed, and that is not watched."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.release()  # the last handle of the job ends what is in it

    def _wait_for_exit(self) -> int:
        _kernel32.WaitForSingleObject(wintypes.HANDLE(self._process), wintypes.DWORD(_INFINITE))
        code = wintypes.DWORD()
        _check(_kernel32.GetExitCodeProcess(wintypes.HANDLE(self._process), ctypes.byref(code)))
        return int(code.value)

    def _count_running(self) -> int:
        if self._job is None:
            return 0
        accounting = _BasicAccounting()
        job, size = wintypes.HANDLE(self._job), ctypes.sizeof(accounting)
        _check(_kernel32.QueryInformationJobObject(job, _BASIC_ACCOUNTING, ctypes.byref(accounting), size, None))
        return int(accounting.ActiveProcesses)


def watch_process(pid: int) -> contextlib.AbstractContextManager[None]:
    """Watch a child of another library, which is in no job of ours: it ends by the end of its input."""
    return contextlib.nullcontext()


def kill_strays() -> None:
    """Do nothing: no process leaves a job."""


def launch(program: Program, file: int | None) -> JobProcess:
    """Start a program in a job. Raises OSError and ValueError.

    `file` is the descriptor of the file that is its stdin, and is closed; None creates a pipe.
    """
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        if file is None:
            # our end is read as well, only to learn that the other one is closed
            child_in, stdin = _pipe(theirs, ours, overlapped=(False, True), duplex=True)
        else:
            child_in, stdin = msvcrt.get_osfhandle(file), 0
            theirs.callback(os.close, file)
        path = find_on_windows(program.command, program.env, cwd=program.cwd)
        application, line = _make_command_line(path, program.args)
        block = _make_block(program.env)
        stdout, child_out = _pipe(ours, theirs, overlapped=(True, False))
        stderr, child_err = _pipe(ours, theirs, overlapped=(True, False))
        job = _create_job()
        ours.callback(_close, job)
        handles = (child_in, child_out, child_err)
        with _inheritable(handles):
            process, pid = _create_process(application, line, block, program.cwd, handles, job)
        ours.pop_all()
    leader = JobProcess(process, job, pid)
    leader.stdin = windows_utils.PipeHandle(stdin) if stdin else None
    leader.stdout, leader.stderr = windows_utils.PipeHandle(stdout), windows_utils.PipeHandle(stderr)
    return leader


def _make_command_line(file: str, args: tuple[str, ...]) -> tuple[str, str]:
    """Return the program to start and its command line."""
    if "\0" in file or any("\0" in arg for arg in args):
        raise ValueError("embedded null character")
    if batch.is_batch(file):
        cmd = _system_file("cmd.exe")
        return cmd, batch.make_command_line(cmd, file, args)
    line = subprocess.list2cmdline([file, *args])
    if len(line) > _MAX_COMMAND_LINE:
        raise ValueError(f"a command line can have {_MAX_COMMAND_LINE} characters, and this has {len(line)}")
    return file, line


def _make_block(environment: Mapping[str, str]) -> str:
    """Return an environment as Windows wants it: sorted, regardless of case."""
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(
                "illegal environment variable name" if not name or "=" in name else "embedded null character"
            )
    names = sorted(environment, key=str.upper)
    return "".join(f"{name}={environment[name]}\0" for name in names) + "\0"


def _system_file(name: str) -> str:
    """Return the path of a program of Windows, whatever the environment says."""
    buffer = ctypes.create_unicode_buffer(wintypes.MAX_PATH)
    _check(_kernel32.GetSystemDirectoryW(buffer, wintypes.MAX_PATH))
    return f"{buffer.value}\\{name}"


def _pipe(
    reads: contextlib.ExitStack, writes: contextlib.ExitStack, *, overlapped: tuple[bool, bool], duplex: bool = False
) -> tuple[int, int]:
    """Create a pipe, as asyncio does for its own subprocesses: its overlapped end is for the event loop."""
    reader, writer = windows_utils.pipe(duplex=duplex, overlapped=overlapped, bufsize=_PIPE_BYTES)
    reads.callback(_close, reader)
    writes.callback(_close, writer)
    return reader, writer


def _create_job() -> int:
    create: Callable[..., int | None] = _kernel32.CreateJobObjectW
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    job = create(None, None)
    if not job:
        raise ctypes.WinError(ctypes.get_last_error())
    limits = _ExtendedLimits()
    limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
    size = ctypes.sizeof(limits)
    try:
        _check(_kernel32.SetInformationJobObject(wintypes.HANDLE(job), _EXTENDED_LIMITS, ctypes.byref(limits), size))
    except OSError:
        _close(job)
        raise
    return job


@contextlib.contextmanager
def _inheritable(handles: tuple[int, ...]) -> Iterator[None]:
    """Let a process inherit these handles: what is started meanwhile elsewhere has a list of its own."""
    flags = wintypes.DWORD(_HANDLE_FLAG_INHERIT)
    for handle in handles:
        _check(_kernel32.SetHandleInformation(wintypes.HANDLE(handle), flags, flags))
    try:
        yield
    finally:
        for handle in handles:
            _kernel32.SetHandleInformation(wintypes.HANDLE(handle), flags, wintypes.DWORD(0))


def _create_process(
    application: str, line: str, block: str, cwd: str | None, handles: tuple[int, ...], job: int
) -> tuple[int, int]:
    """Create a process in a job and return its handle and its id."""
    startup = _StartupInfoEx()
    startup.StartupInfo.cb = ctypes.sizeof(startup)
    startup.StartupInfo.dwFlags = _STARTF_USESTDHANDLES
    startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError = handles
    inherited = (wintypes.HANDLE * len(handles))(*handles)
    jobs = (wintypes.HANDLE * 1)(job)
    flags = _CREATE_UNICODE_ENVIRONMENT | _EXTENDED_STARTUPINFO_PRESENT | subprocess.CREATE_NO_WINDOW
    created = _ProcessInformation()
    with _attributes({_ATTRIBUTE_HANDLE_LIST: inherited, _ATTRIBUTE_JOB_LIST: jobs}) as attributes:
        startup.lpAttributeList = ctypes.addressof(attributes)
        is_created = _kernel32.CreateProcessW(
            ctypes.c_wchar_p(application),
            ctypes.create_unicode_buffer(line),
            None,
            None,
            wintypes.BOOL(1),
            wintypes.DWORD(flags),
            ctypes.create_unicode_buffer(block),
            ctypes.c_wchar_p(cwd),
            ctypes.byref(startup),
            ctypes.byref(created),
        )
        if not is_created:
            raise _explain(ctypes.get_last_error())
    _close(created.hThread)
    return created.hProcess, created.dwProcessId


@contextlib.contextmanager
def _attributes(values: Mapping[int, ctypes.Array[wintypes.HANDLE]]) -> Iterator[ctypes.Array[ctypes.c_char]]:
    """Make a list of attributes for CreateProcess."""
    size = ctypes.c_size_t()
    count = wintypes.DWORD(len(values))
    _kernel32.InitializeProcThreadAttributeList(None, count, wintypes.DWORD(0), ctypes.byref(size))
    attributes = ctypes.create_string_buffer(size.value)
    _check(_kernel32.InitializeProcThreadAttributeList(attributes, count, wintypes.DWORD(0), ctypes.byref(size)))
    try:
        for number, value in values.items():
            length = ctypes.c_size_t(ctypes.sizeof(value))
            key = ctypes.c_size_t(number)
            _check(
                _kernel32.UpdateProcThreadAttribute(
                    attributes, wintypes.DWORD(0), key, ctypes.byref(value), length, None, None
                )
            )
        yield attributes
    finally:
        _kernel32.DeleteProcThreadAttributeList(attributes)


def _explain(code: int) -> OSError:
    if code == _ERROR_BAD_EXE_FORMAT:  # whose text of the system begins with `%1`
        return OSError(errno.ENOEXEC, "it is not a program that Windows can start without another one")
    return ctypes.WinError(code)


def _check(result: int) -> None:
    if not result:
        raise ctypes.WinError(ctypes.get_last_error())


def _close(handle: int) -> None:
    _kernel32.CloseHandle(wintypes.HANDLE(handle))


# --- structures of the Windows API, by the names that it gives them ------------------------------------------


class _BasicAccounting(ctypes.Structure):  # JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
    _fields_ = (
        ("TotalUserTime", wintypes.LARGE_INTEGER),
        ("TotalKernelTime", wintypes.LARGE_INTEGER),
        ("ThisPeriodTotalUserTime", wintypes.LARGE_INTEGER),
        ("ThisPeriodTotalKernelTime", wintypes.LARGE_INTEGER),
        ("TotalPageFaultCount", wintypes.DWORD),
        ("TotalProcesses", wintypes.DWORD),
        ("ActiveProcesses", wintypes.DWORD),
        ("TotalTerminatedProcesses", wintypes.DWORD),
    )


class _BasicLimits(ctypes.Structure):  # JOBOBJECT_BASIC_LIMIT_INFORMATION
    _fields_ = (
        ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
        ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_ulonglong * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class _StartupInfo(ctypes.Structure):  # STARTUPINFOW
    _fields_ = (
        ("cb", wintypes.DWORD),
        ("lpReserved", wintypes.LPWSTR),
        ("lpDesktop", wintypes.LPWSTR),
        ("lpTitle", wintypes.LPWSTR),
        ("dwX", wintypes.DWORD),
        ("dwY", wintypes.DWORD),
        ("dwXSize", wintypes.DWORD),
        ("dwYSize", wintypes.DWORD),
        ("dwXCountChars", wintypes.DWORD),
        ("dwYCountChars", wintypes.DWORD),
        ("dwFillAttribute", wintypes.DWORD),
        ("dwFlags", wintypes.DWORD),
        ("wShowWindow", wintypes.WORD),
        ("cbReserved2", wintypes.WORD),
        ("lpReserved2", ctypes.c_void_p),
        ("hStdInput", wintypes.HANDLE),
        ("hStdOutput", wintypes.HANDLE),
        ("hStdError", wintypes.HANDLE),
    )


class _StartupInfoEx(ctypes.Structure):  # STARTUPINFOEXW
    _fields_ = (("StartupInfo", _StartupInfo), ("lpAttributeList", ctypes.c_void_p))


class _ProcessInformation(ctypes.Structure):  # PROCESS_INFORMATION
    _fields_ = (
        ("hProcess", wintypes.HANDLE),
        ("hThread", wintypes.HANDLE),
        ("dwProcessId", wintypes.DWORD),
        ("dwThreadId", wintypes.DWORD),
    )
