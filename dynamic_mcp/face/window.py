"""A window: this process's stdin and stdout, served by the daemon of its config.

The first window of a config starts its daemon. At the start of a window only what a running daemon needs is imported.
"""

from __future__ import annotations

import os
import sys

from dynamic_mcp import __version__
from dynamic_mcp.config.location import choose_profile, config_key, identify, locate, split_profile, working_directory
from dynamic_mcp.system import private_socket
from dynamic_mcp.system.installation import Installation

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from dynamic_mcp.face.shim import Shim
    from dynamic_mcp.system.private_socket import Socket

# How long a daemon may take to start: longer on Windows, where a virus scanner first reads each module, and shorter
# than AI tools wait for an answer, which is 10 s and more.
START_WITHIN_S = 8.0 if sys.platform == "win32" else 5.0
_POLL_S = 0.02
# The suffix of the file that a process keeps locked while it starts a daemon.
_START_LOCK = ".start"

# How long an installer may take to replace this program before a window continues with the old version.
_UPGRADE_WITHIN_S = 5.0
_UPGRADE_POLL_S = 0.2

# Of <winbase.h>, where `subprocess` has its own.
_CREATE_NEW_PROCESS_GROUP, _CREATE_BREAKAWAY_FROM_JOB, _CREATE_NO_WINDOW = 0x200, 0x1000000, 0x8000000

# Set to the process id of a restarted window.
_RESTARTED = "DYNAMIC_MCP_RESTARTED"
_is_restarted = False
# Set to the descriptor of a file with the state of a window that was restarted because of an upgrade.
_STATE = "DYNAMIC_MCP_WINDOW"


def find(arguments: list[str]) -> Shim | None:
    """Return the shim for the command line of a window whose daemon runs; None for any other command line."""
    global _is_restarted
    _is_restarted = os.environ.pop(_RESTARTED, None) == str(os.getpid())
    words, profile = split_profile(arguments)
    if not _is_plain(words) or profile == "":
        return None
    config = locate(words[0] if words else None, os.environ, directory=working_directory(), user_dir=_user_dir)
    connection = None if config is None else find_daemon(config)
    if config is None or (connection is None and _STATE not in os.environ):
        return None
    return open_window(config, connection, profile=choose_profile(profile, os.environ))


def may_be_thinner() -> bool:
    """Return whether this process, which has loaded the whole program, could be replaced by a thin shim.

    Not on Windows, where no process can become another program.
    """
    return sys.platform != "win32" and _is_plain(split_profile(sys.argv[1:])[0]) and not _is_restarted


def restart(arguments: Sequence[str] | None = None) -> None:
    """Restart the program in the same process, now that its daemon runs. Returns only if that fails."""
    os.environ[_RESTARTED] = str(os.getpid())
    try:
        os.execv(sys.executable, [sys.executable, *(arguments or sys.orig_argv[1:])])  # noqa: S606
    except OSError:  # the interpreter has been replaced meanwhile
        del os.environ[_RESTARTED]


def open_window(
    config: str, connection: Socket | None, *, only: str | None = None, profile: str | None = None
) -> Shim:
    """Return the shim of a window; without a connection it looks for the daemon of its config itself.

    If an upgrade has restarted this process, the shim continues the window from before.
    """
    installation = Installation()
    from dynamic_mcp.face.shim import Shim  # only a window with a daemon needs it

    shim = Shim(
        identify(config),
        connection,
        lambda: find_or_start_daemon(config),
        only=only,
        profile=profile,
        restart=lambda shim: _restart_if_upgraded(shim, installation),
    )
    _restore(shim)
    return shim


def was_upgraded() -> bool:
    """Return whether an upgrade has restarted this window."""
    return _STATE in os.environ


def _restart_if_upgraded(shim: Shim, installation: Installation) -> None:
    """Restart the program in the same process if its files were replaced, once it can be started.

    Not on Windows, where no process can become another program: an old window uses a new daemon there.
    """
    if sys.platform == "win32" or not installation.has_changed():
        return
    import tempfile
    import time

    deadline = time.monotonic() + _UPGRADE_WITHIN_S
    while not installation.is_complete():
        if time.monotonic() > deadline:
            return
        time.sleep(_UPGRADE_POLL_S)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(shim.state())
            file.seek(0)
            os.set_inheritable(file.fileno(), True)  # noqa: FBT003 - takes no keyword
            os.environ[_STATE] = str(file.fileno())
            restart(["-P", "-m", "dynamic_mcp", *sys.argv[1:]])  # installers write the script last
    except OSError:  # the disk is full: this process continues
        pass
    os.environ.pop(_STATE, None)


def _restore(shim: Shim) -> None:
    """Restore the state of the window from before a restart, if there is one."""
    number = os.environ.pop(_STATE, None)
    if number is None:
        return
    try:
        with open(int(number), "rb") as file:  # noqa: PTH123 - a descriptor
            shim.restore(file.read())
    except (OSError, ValueError, KeyError):  # written by a version with another format
        pass


def socket_name(config: str) -> str:
    """Return the name of the socket of this config's daemon; each version of the program has its own."""
    return private_socket.socket_name(__version__, config_key(config))


def find_daemon(config: str) -> Socket | None:
    """Return a connection to the daemon of a config; None if none is running."""
    return private_socket.connect(os.environ, socket_name(config))


def find_starting_daemon(config: str, *, within_s: float) -> Socket | None:
    """Return a connection to the daemon of a config, waiting for one that another process is starting; else None."""
    import time
    from pathlib import Path

    from dynamic_mcp.system.paths import FileLock

    connection = find_daemon(config)
    deadline = time.monotonic() + within_s
    for directory in filter(private_socket.is_private, private_socket.directories(os.environ)):
        place = Path(directory, socket_name(config)).with_suffix(_START_LOCK)
        lock = FileLock(place)
        while connection is None and place.exists() and time.monotonic() < deadline:
            try:
                is_free = lock.try_acquire()
            except OSError:  # a link, or not this user's
                break
            lock.release()
            connection = find_daemon(config)
            if is_free:
                break
            time.sleep(_POLL_S)
    return connection


def find_or_start_daemon(config: str, *, within_s: float = START_WITHIN_S) -> Socket | None:
    """Return a connection to the daemon of a config, after starting one if needed; None if that fails or is too slow.

    When several windows call this at once, one of them starts the daemon and the others wait for it.
    """
    import time
    from pathlib import Path

    from dynamic_mcp.system.paths import FileLock

    connection = find_daemon(config)
    if connection is not None:
        return connection
    deadline = time.monotonic() + within_s
    lock: FileLock | None = None
    try:
        path = private_socket.place(os.environ, socket_name(config))
        lock = FileLock(Path(path).with_suffix(_START_LOCK))
        while not lock.try_acquire():
            if (connection := find_daemon(config)) is not None or time.monotonic() > deadline:
                return connection
            time.sleep(_POLL_S)
        connection = find_daemon(config)
        while connection is None:
            has_listened = _start(config, path, deadline - time.monotonic())
            connection = find_daemon(config)
            if not has_listened:
                break
        return connection
    except OSError:
        return None
    finally:
        if lock is not None:
            lock.release()


def _start(config: str, path: str, within_s: float) -> bool:
    """Start a detached daemon that outlives this process; return whether it listens in time.

    It may have ended again when this returns.
    """
    return (_start_on_windows if sys.platform == "win32" else _start_on_posix)(config, path, within_s)


def _start_on_posix(config: str, path: str, within_s: float) -> bool:
    import select
    import subprocess

    ready, heard = os.pipe()
    command = _daemon_command(config, path, ready=heard)
    detached = ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh"]
    try:
        subprocess.run([*detached, *command], pass_fds=(heard,), cwd="/", start_new_session=True, check=True)
    except subprocess.CalledProcessError:
        os.close(ready)
        return False
    finally:
        os.close(heard)
    readable, _, _ = select.select([ready], [], [], max(0.0, within_s))
    has_listened = bool(readable) and os.read(ready, 1) != b""
    os.close(ready)
    return has_listened


def _start_on_windows(config: str, path: str, within_s: float) -> bool:
    import time

    ends_at = time.monotonic() + within_s
    process = _start_detached(_daemon_command(config, path, ready=-1))
    while process.poll() is None and time.monotonic() < ends_at:
        connection = private_socket.connect_to(path)
        if connection is not None:
            connection.close()
            return True
        time.sleep(_POLL_S)
    return False


def _start_detached(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process of Windows outside the job of this one or, if the job forbids that, inside. Raises OSError."""
    import subprocess

    def start(flags: int) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        # with an unseen console, since each of its servers would open a window if it had none
        flags |= _CREATE_NO_WINDOW | _CREATE_NEW_PROCESS_GROUP
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", creationflags=flags)

    try:
        return start(_CREATE_BREAKAWAY_FROM_JOB)
    except PermissionError:
        return start(0)


def _daemon_command(config: str, path: str, *, ready: int) -> list[str]:
    """Return the command of a daemon that writes to the descriptor `ready`, unless it is -1, when it listens."""
    command = [sys.executable, "-P", "-m", "dynamic_mcp", "daemon", "run"]
    return [*command, "--config", identify(config), "--socket", path, "--ready", str(ready)]


def _is_plain(arguments: list[str]) -> bool:
    """Return whether a command line without its profile serves a config to a program, with no options."""
    if len(arguments) > 1 or (arguments and _may_be_a_command(arguments[0])):
        return False
    is_completion = "_DYNAMIC_MCP_COMPLETE" in os.environ  # a shell asks for words
    return not (is_completion or os.isatty(0) or os.isatty(1))


def _may_be_a_command(word: str) -> bool:
    return word.startswith("-") or word.replace("-", "").isalpha()


def _user_dir() -> str:
    from platformdirs import user_config_dir

    return user_config_dir("dynamic-mcp", appauthor=False)
