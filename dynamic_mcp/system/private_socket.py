"""Private Unix sockets: their directories, their owners, and the process at the other end.

On Windows a named pipe takes the place of each, and a file with its name that of the socket's file.
Only builtins are imported at the start, to keep the start of a window fast.
"""

from __future__ import annotations

import os
import stat
import sys
import time

if sys.platform == "win32":
    from dynamic_mcp.system import named_pipe

    Socket = named_pipe.PipeConnection
else:
    import _socket

    Socket = _socket.socket

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_APP = "dynamic-mcp"
# The size of `sun_path`, with its NUL: 108 on Linux, 104 on macOS and the BSDs. On Windows, that of any path.
_MAX_PATH_BYTES = {"linux": 107, "win32": 259}.get(sys.platform, 103)
# From <sys/un.h> of macOS and FreeBSD, where Python has no names for them.
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
_CREDENTIALS_BYTES = 76
_LOCAL_PEERPID = 2
# How long to retry while many clients connect at once, or the listener does not accept.
_CONNECT_WITHIN_S = 2.0
_POLL_S = 0.02


def socket_name(*parts: str) -> str:
    """Return a short file name for these texts: their 64-bit FNV-1a hash, in hex."""
    hashed = 0xCBF29CE484222325
    for byte in os.fsencode("\0".join(parts)):
        hashed = ((hashed ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{hashed:016x}.sock"


def directories(environment: Mapping[str, str], platform: str = sys.platform) -> Iterator[str]:
    """Return the directories where this user's sockets may be, the best first."""
    if platform == "win32":
        local = environment.get("LOCALAPPDATA", "")
        if os.path.isabs(local):  # noqa: PTH117 - pathlib takes as long to load as all of this
            yield f"{local}\\{_APP}\\run"
            return
    elif sys.platform != "win32":
        yield from _runtime_directories(environment, os.getuid(), platform)
    from platformdirs import user_state_dir

    state = user_state_dir(_APP, appauthor=False)
    if os.path.isabs(state):  # noqa: PTH117 - a relative one would be another one for each window
        yield f"{state}{os.sep}run"
    if sys.platform != "win32" and platform != "win32":
        yield f"/tmp/{_APP}-{os.getuid()}"  # noqa: S108 - it must belong to this user, or it is not used


def _runtime_directories(environment: Mapping[str, str], user: int, platform: str) -> Iterator[str]:
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime):  # noqa: PTH117 - as above
        yield f"{runtime}/{_APP}"
    if platform == "linux" and runtime != f"/run/user/{user}":  # the default, if no login shell has set it
        yield f"/run/user/{user}/{_APP}"


def connect(environment: Mapping[str, str], name: str) -> Socket | None:
    """Connect to a socket of this user; None if there is no listener."""
    for directory in directories(environment):
        if is_private(directory):
            connection = connect_to(f"{directory}{os.sep}{name}")
            if connection is not None:
                return connection
    return None


def place(environment: Mapping[str, str], name: str) -> str:
    """Return the path for a new socket, in the first directory that can be used; creates the directory.

    Raises OSError if there is none.
    """
    for directory in directories(environment):
        path = f"{directory}{os.sep}{name}"
        if len(os.fsencode(path)) <= _MAX_PATH_BYTES and _make_private(directory):
            return path
    raise OSError("no directory can hold a private socket")


def _make_private(directory: str) -> bool:
    """Create a private directory if there is none; return whether there is a writable one."""
    try:  # noqa: SIM105 - contextlib takes as long to load as all of this
        # a runtime directory is the system's to create; the state directory is this program's
        (os.mkdir if directory.endswith(f"/{_APP}") else os.makedirs)(directory, 0o700)
    except OSError:
        pass
    return is_private(directory) and os.access(directory, os.W_OK | os.X_OK)


if sys.platform == "win32":
    connect_to = named_pipe.connect_to

    def is_private(directory: str) -> bool:
        """Return whether a directory exists. It is in the profile of this user, and a pipe has its own protection."""
        return os.path.isdir(directory)  # noqa: PTH112

    def peer_process(connection: Socket) -> int | None:
        """Return the id of the process at the other end; None if it is not known."""
        return named_pipe.server_process(connection.fileno())

    def is_own_peer(connection: Socket | None) -> bool:
        """Return whether the process at the other end is this user's: no other can open the pipe."""
        return True

else:

    def is_private(directory: str) -> bool:
        """Return whether a directory exists, is not a link, and is accessible to this user only."""
        try:
            status = os.lstat(directory)
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077

    def connect_to(path: str) -> Socket | None:
        """Connect to the socket at this path; None if there is no listener, or it belongs to another user."""
        ends_at = time.monotonic() + _CONNECT_WITHIN_S
        while True:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            try:
                connection.setblocking(False)  # noqa: FBT003 - takes no keyword
                connection.connect(path)
                if peer_user(connection) == os.getuid():
                    connection.setblocking(True)  # noqa: FBT003
                    return connection
            except BlockingIOError:  # the listener's backlog is full
                connection.close()
                if time.monotonic() < ends_at:
                    time.sleep(_POLL_S)
                    continue
                return None
            except OSError:
                pass
            connection.close()
            return None

    def is_own_peer(connection: Socket) -> bool:
        """Return whether the process at the other end is this user's. Raises OSError."""
        return peer_user(connection) == os.getuid()

    def peer_user(connection: Socket, platform: str = sys.platform) -> int:
        """Return the id of the user at the other end. Raises OSError."""
        # Linux: struct ucred, with the process before the user; elsewhere struct xucred, with its version there
        what = (_socket.SOL_SOCKET, _socket.SO_PEERCRED) if platform == "linux" else (_SOL_LOCAL, _LOCAL_PEERCRED)
        return int.from_bytes(connection.getsockopt(*what, _CREDENTIALS_BYTES)[4:8], sys.byteorder)

    def peer_process(connection: Socket, platform: str = sys.platform) -> int | None:
        """Return the id of the process at the other end; None where the system does not provide it."""
        what = (_socket.SOL_SOCKET, _socket.SO_PEERCRED) if platform == "linux" else (_SOL_LOCAL, _LOCAL_PEERPID)
        try:
            return int.from_bytes(connection.getsockopt(*what, _CREDENTIALS_BYTES)[:4], sys.byteorder)
        except OSError:
            return None
