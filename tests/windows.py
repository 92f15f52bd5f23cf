"""What tests need to know of Windows."""

import ctypes
import io
import os
import stat
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

from dynamic_mcp.system import acl

_FOR_WINDOWS = {
    "dynamic_mcp.face.pipe_listener",
    "dynamic_mcp.face.window_streams",
    "dynamic_mcp.system.console_events",
    "dynamic_mcp.system.job",
    "dynamic_mcp.system.named_pipe",
    "dynamic_mcp.upstream.process.job",
}
# The variables with which a test has a home of its own on Windows.
OWN_PLACES = ("USERPROFILE", "APPDATA", "LOCALAPPDATA", "WIN_PD_OVERRIDE_LOCAL_APPDATA")
_FOR_POSIX = {
    *(f"dynamic_mcp.upstream.process.{name}" for name in ("group", "guardian", "strays")),
    *(f"dynamic_mcp.features.{name}" for name in ("metrics.workers", "sandbox.container", "sandbox.network")),
    "dynamic_mcp.host.supervisor",
}
_FOR_LINUX = {f"dynamic_mcp.features.sandbox.{name}" for name in ("bubblewrap", "landlock", "launching")}
# Modules that cannot be imported here.
OF_OTHER_SYSTEMS = (_FOR_POSIX if sys.platform == "win32" else _FOR_WINDOWS) | (
    set() if sys.platform == "linux" else _FOR_LINUX
)


def is_wine() -> bool:
    """Return whether this Windows is Wine, which differs from it in corners."""
    return sys.platform == "win32" and hasattr(ctypes.windll.ntdll, "wine_get_version")


def home_variables(home: Path) -> dict[str, str]:
    """Return the variables that name a home on this system."""
    variables = {"HOME": str(home)}
    if sys.platform == "win32":
        local, roaming = home / "AppData" / "Local", home / "AppData" / "Roaming"
        variables |= {"USERPROFILE": str(home), "APPDATA": str(roaming), "LOCALAPPDATA": str(local)}
    return variables


def user_dir(elsewhere: Path) -> Path:
    """Return the directory that has the user's config: on Windows, that of the test, and `elsewhere` on others."""
    return Path(os.environ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] if sys.platform == "win32" else elsewhere, "dynamic-mcp")


def state_dir(elsewhere: Path) -> Path:
    """Return the directory of the user's state: on Windows, that of the test, and in `elsewhere` on others."""
    directory = user_dir(elsewhere)
    return directory / "State" if sys.platform == "win32" else directory


def cache_dir(elsewhere: Path) -> Path:
    """Return the directory of what can be fetched again: on Windows, in that of the test, else in `elsewhere`."""
    directory = user_dir(elsewhere)
    return directory / "Cache" if sys.platform == "win32" else directory


def log_dir(state: Path) -> Path:
    """Return the directory of the log, given that of the state."""
    return state.with_name("Logs") if sys.platform == "win32" else state / "log"


def state_variables(place: Path) -> dict[str, str]:
    """Return the variables that have the user's state below `place`."""
    return {"WIN_PD_OVERRIDE_LOCAL_APPDATA" if sys.platform == "win32" else "XDG_STATE_HOME": str(place)}


def write_program(file: Path, script: str) -> Path:
    """Make a program of a script in Python, and return its file: on Windows an `.exe`, made as pip does."""
    if sys.platform == "win32":
        return _write_exe(file.with_name(f"{file.name}.exe"), script)
    file.write_text(f"#!{sys.executable}\n{script}")
    file.chmod(0o755)
    return file


def _write_exe(file: Path, script: str) -> Path:
    own = Path(sysconfig.get_path("scripts"), "dynamic-mcp.exe").read_bytes()
    with zipfile.ZipFile(io.BytesIO(own)) as archive:
        before = own[: archive.infolist()[0].header_offset]
    launcher = before[: before.rindex(b"#!")]
    with zipfile.ZipFile(code := io.BytesIO(), "w") as archive:
        archive.writestr("__main__.py", script)
    file.write_bytes(launcher + f'#!"{sys.executable}"\r\n'.encode() + code.getvalue())
    return file


def is_private(place: Path) -> bool:
    """Return whether only this user can use a file or directory: by its access control list on Windows."""
    if sys.platform == "win32":
        return not acl.find_others(place)
    return stat.S_IMODE(place.lstat().st_mode) == (0o700 if place.is_dir() else 0o600)


def grant(place: Path, rights: str) -> None:
    """Let everyone use a file, on Windows: rights as `icacls` writes them."""
    if sys.platform == "win32":
        import win32security

        masks = {"(OI)(CI)RX": (3, 0x1200A9), "RX": (0, 0x1200A9), "F": (0, 0x1F01FF), "(OI)(CI)F": (3, 0x1F01FF)}
        flags, mask = masks[rights]
        sid = win32security.CreateWellKnownSid(win32security.WinWorldSid, None)
        kind, wanted = win32security.SE_FILE_OBJECT, win32security.DACL_SECURITY_INFORMATION
        dacl = win32security.GetNamedSecurityInfo(str(place), kind, wanted).GetSecurityDescriptorDacl()
        dacl.AddAccessAllowedAceEx(win32security.ACL_REVISION_DS, flags, mask, sid)
        win32security.SetNamedSecurityInfo(str(place), kind, wanted, None, None, dacl, None)


if sys.platform == "win32":
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _ANY_ACCESS = 0x1FFFFF

    def open_desktop() -> None:
        """Have Wine start its desktop, which keeps the stderr of the program that is first to have a window."""
        ctypes.WinDLL("user32").GetDesktopWindow()

    def send_console_event(pid: int, event: int) -> None:
        """Have a process handle an event of a console as it does those of its own: in a new thread.

        Programs may send each other Ctrl-C and Ctrl-Break only.
        """
        _kernel32.OpenProcess.restype = ctypes.c_void_p
        process = ctypes.c_void_p(_kernel32.OpenProcess(_ANY_ACCESS, 0, pid))
        routine = ctypes.cast(ctypes.WinDLL("kernelbase").CtrlRoutine, ctypes.c_void_p)
        thread = _kernel32.CreateRemoteThread(
            process, None, ctypes.c_size_t(0), routine, ctypes.c_void_p(event), 0, None
        )
        assert thread, ctypes.get_last_error()
        _kernel32.CloseHandle(process)

    def send_session_end(pid: int, *, is_ending: bool = True) -> None:
        """Have a process handle the end of the session as Windows sends it to windows; or that it is called off."""
        import win32con
        import win32gui

        window = _find_window(pid)
        while window is None:
            time.sleep(0.01)
            window = _find_window(pid)
        assert win32gui.SendMessage(window, win32con.WM_QUERYENDSESSION, 0, 0)
        win32gui.PostMessage(window, win32con.WM_ENDSESSION, is_ending, 0)

    def _find_window(pid: int) -> int | None:
        """Return the hidden window of a process; Windows itself makes others for it."""
        import win32gui
        import win32process

        found: list[int] = []

        def look_at(window: int, found: list[int]) -> None:
            owner = win32process.GetWindowThreadProcessId(window)[1]
            if owner == pid and win32gui.GetWindowText(window) == "dynamic-mcp":
                found.append(window)

        win32gui.EnumWindows(look_at, found)
        return found[0] if found else None

    def has_ended(pid: int, within_s: float) -> bool:
        """Return whether a process has ended, or does within this time."""
        _kernel32.OpenProcess.restype = ctypes.c_void_p
        process = _kernel32.OpenProcess(_ANY_ACCESS, 0, pid)
        if not process:
            return True
        result: int = _kernel32.WaitForSingleObject(ctypes.c_void_p(process), int(within_s * 1000))
        _kernel32.CloseHandle(ctypes.c_void_p(process))
        return result == 0

else:

    def open_desktop() -> None:
        """Do nothing: only Wine has a desktop that a program starts."""

    def send_console_event(pid: int, event: int) -> None:
        """Do nothing: only Windows has such events."""

    def send_session_end(pid: int, *, is_ending: bool = True) -> None:
        """Do nothing: only Windows tells windows."""

    def has_ended(pid: int, within_s: float) -> bool:
        """Raise, since only tests on Windows ask for this."""
        raise NotImplementedError
