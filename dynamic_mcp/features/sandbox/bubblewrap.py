"""Starts a program by bubblewrap (`bwrap`): with mounts and namespaces of its own.

What bubblewrap is to do is written to it once its limits are set, so that nothing runs without them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.features.sandbox.places import SYSTEM, SYSTEM_DIRECTORIES, Places, is_device
from dynamic_mcp.system import paths

assert sys.platform == "linux"

import resource  # noqa: E402

TMPFS_BYTES = 1 << 30
# The most processes and threads of one program, where the system counts them for it alone; the largest file.
MOST_PROCESSES = 2048
LARGEST_FILE = 8 << 30
_MOST_FILES = 16384
_WITHIN_S = 10.0
# Sockets, pipes and secrets of others are in these; what is read of them is mounted again.
_HIDDEN = ("/run", "/tmp", "/var/tmp")  # noqa: S108 - to hide them
_SHOWN = ("/run/current-system", "/run/opengl-driver", "/run/systemd/resolve")
# Settings of the kernel, which root may change without any capability.
_SETTINGS = tuple(
    f"/proc/{name}" for name in ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
)
# What root keeps: files in the places that it may write are its own to change.
_CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER")


class Mount(Struct, frozen=True):
    """One mount: an option of bubblewrap, what is mounted, and where. A `--tmpfs` has no source."""

    path: str
    option: str
    source: str = ""

    def __iter__(self) -> Iterator[str]:
        if self.option == "--tmpfs":
            return iter(("--size", str(TMPFS_BYTES), self.option, self.path))
        return iter((self.option, self.source, self.path))


def find() -> str | None:
    """Return the file of bubblewrap."""
    return shutil.which("bwrap")


@cache
def explain_missing() -> str:
    """Return why bubblewrap cannot be used here; empty if it can. It is tried once."""
    file = find()
    if file is None:
        return "bubblewrap (`bwrap`) is not installed"
    try:
        tried = subprocess.run(
            [file, *_base(), "--unshare-net", "--ro-bind", "/", "/", *_own_mounts(), "--", file, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bubblewrap (`bwrap`) cannot be run: {exc}"
    if tried.returncode == 0:
        return ""
    lines = tried.stderr.decode(errors="replace").strip().splitlines()
    return f"bubblewrap (`bwrap`) cannot be used here: {lines[-1] if lines else f'code {tried.returncode}'}"


def suggest() -> str:
    """Return what helps where it is needed and cannot be used."""
    if find() is None:
        return "install it, for example by `apt install bubblewrap`"
    return "`dynamic-mcp doctor` tries what holds"


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    options: Iterable[str],
    program: bytes,
    *,
    copies: Iterable[str] = (),
    streams: tuple[int, int, int],
    passed: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a sandbox with these options and this filter of system calls. Raises OSError.

    `copies` are files that the sandbox gets copies of: each mount takes bubblewrap longer than the one before.
    """
    file = find()
    if file is None:
        raise CannotConfine("bubblewrap (`bwrap`) is not installed")
    with ExitStack() as ours, ExitStack() as theirs, ExitStack() as whole:
        rules = _own(theirs, _with_text(program))
        copied = [(_own(theirs, os.open(each, os.O_RDONLY)), each) for each in copies if Path(each).is_file()]
        arguments, arguments_end = _pipe(theirs, whole)
        told, told_end = _pipe(ours, theirs)
        gate, gate_end = _pipe(theirs, ours)
        child = subprocess.Popen(
            [file, "--args", str(arguments), "--", *command],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=dict(environment),
            cwd="/",
            start_new_session=True,
            pass_fds=(rules, arguments, told_end, gate, *(descriptor for descriptor, _ in copied), *passed),
        )
        theirs.close()
        _limit(child.pid)
        words = [*_base(), "--seccomp", str(rules)]
        counts = _counts_processes()
        if counts:
            words += ["--info-fd", str(told_end), "--block-fd", str(gate)]
        words += [word for number, path in copied for word in ("--perms", "0444", "--file", str(number), path)]
        _write_all(arguments_end, "\0".join([*words, *options, ""]).encode())
        whole.close()  # so that it begins
        if counts and (pid := _read_pid(told)) is not None:
            resource.prlimit(pid, resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
            _write_all(gate_end, b"x")
        return child


def list_command(places: Places, file: str, *, rules: int) -> list[str]:
    """Return the command that starts a program which reads these places only, and has no network.

    `rules` is the descriptor with its filter of system calls.
    """
    bwrap = find()
    assert bwrap is not None
    options = list_options(places, reads_all=False, has_network=False)
    return [bwrap, *_base(), "--die-with-parent", "--seccomp", str(rules), *options, "--", file]


def list_options(places: Places, *, reads_all: bool, has_network: bool) -> list[str]:
    """Return the options for the places of a program, and for the network of this machine, or none."""
    mounts = list_mounts(places, reads_all=reads_all)
    options = [] if has_network else ["--unshare-net"]
    options += _show_everything(mounts) if reads_all else _show_system(mounts)
    return [*options, "--chdir", places.cwd if _is_shown(places.cwd, mounts, reads_all=reads_all) else places.state]


def list_mounts(places: Places, *, reads_all: bool) -> list[Mount]:
    """Return the mounts on what is shown of the file system, outer ones first."""
    hidden = [*_HIDDEN, str(paths.state_dir())] if reads_all else []
    mounts = {each: Mount(each, "--tmpfs") for each in hidden if Path(each).is_dir() and not Path(each).is_symlink()}
    read = [*_SHOWN, *(filter(_is_hidden, places.read) if reads_all else places.read)]
    wanted = [(each, "--ro-bind") for each in read if not _is_of_system(each)]
    wanted += [(each, "--bind") for each in places.write]
    wanted = [(each, "--dev-bind" if is_device(each) else option) for each, option in wanted]
    for place, option in wanted:
        source = os.path.realpath(place)
        if Path(source).exists():
            mounts[source] = Mount(source, option, source)
    if not reads_all:  # links are there only in what is mounted
        for place, option in wanted:
            if Path(place).exists() and not any(Path(place).is_relative_to(each) for each in mounts):
                mounts[place] = Mount(place, option, os.path.realpath(place))
    return sorted(mounts.values(), key=lambda mount: Path(mount.path).parts)


def _is_hidden(path: str) -> bool:
    return any(Path(path).is_relative_to(each) for each in (*_HIDDEN, paths.state_dir()))


def _is_of_system(path: str) -> bool:
    return any(Path(path).is_relative_to(each) for each in SYSTEM)


def _is_shown(path: str, mounts: Iterable[Mount], *, reads_all: bool) -> bool:
    """Return whether a directory is one in the sandbox."""
    if not path:
        return False
    around = [each for each in mounts if Path(path).is_relative_to(each.path)]
    return around[-1].option != "--tmpfs" if around else reads_all


def _show_everything(mounts: Iterable[Mount]) -> list[str]:
    return ["--ro-bind", "/", "/", *_own_mounts(), *(word for mount in mounts for word in mount)]


def _show_system(mounts: Iterable[Mount]) -> list[str]:
    options: list[str] = []
    for each in (*SYSTEM, *SYSTEM_DIRECTORIES):
        if Path(each).is_symlink() and each.count("/") == 1:  # /bin, which is a link to usr/bin
            options += ["--symlink", str(Path(each).readlink()), each]
        elif Path(each).exists():
            options += ["--ro-bind", os.path.realpath(each), each]
    tmp = ("--size", str(TMPFS_BYTES), "--tmpfs", "/tmp")  # noqa: S108 - a new one
    return [*options, *_own_mounts(), *tmp, *(word for mount in mounts for word in mount), "--remount-ro", "/"]


def _own_mounts() -> tuple[str, ...]:
    shm = ("--size", str(TMPFS_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108 - a new one
    shown = (each for each in _SETTINGS if Path(each).exists())
    covers = (word for each in shown for word in ("--ro-bind", each, each))
    return ("--dev", "/dev", *shm, "--remount-ro", "/dev", "--proc", "/proc", *covers)


def _base() -> tuple[str, ...]:
    namespaces = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if os.geteuid() != 0:
        return ("--unshare-user", *namespaces)
    kept = (word for each in _CAPABILITIES for word in ("--cap-add", each))
    return (*namespaces, "--cap-drop", "ALL", *kept)


def _counts_processes() -> bool:
    """Return whether processes of the sandbox can be counted: the kernel does so in a namespace of users.

    The limit is set in the namespace, as it is not to be about all processes of the user. It does not hold for root.
    """
    return os.geteuid() != 0


def _limit(pid: int) -> None:
    """Set the limits of bubblewrap, which all that it starts inherits. It still waits for what it is to do."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_NOFILE: _MOST_FILES,
    }
    for what, most in limits.items():
        _, hard = resource.prlimit(pid, what)
        bound = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.prlimit(pid, what, (bound, bound))


def _read_pid(descriptor: int) -> int | None:
    """Return the first process in the sandbox, as bubblewrap tells it; None if it has failed."""
    text = b""
    while part := os.read(descriptor, 4096):
        text += part
        if part.rstrip().endswith(b"}"):
            return int(json.loads(text)["child-pid"])
    return None


def _with_text(data: bytes) -> int:
    """Return the descriptor of a file in memory with this content."""
    descriptor = os.memfd_create("sandbox")
    _write_all(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _own(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    return _own(reads, reader), _own(writes, writer)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BrokenPipeError:  # it has failed, and says why
            return
