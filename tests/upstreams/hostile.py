"""A program that tries to change what is outside of its sandbox, and prints what came of each attempt, as JSON.

Its first argument is a JSON object: `outside`, a directory with a `file`, an executable `tool` and a `socket`;
`victim`, the id of a process; `abstract`, the name of an abstract socket; `segment`, the id of shared memory. The
second one is `outside` again, as a path that it is given, and further ones choose attempts by their names. It runs in
a directory of its own, and with a Python without any package.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

TARGET = json.loads(sys.argv[1])
OUTSIDE, VICTIM = Path(TARGET["outside"]), int(TARGET["victim"])
FILE = OUTSIDE / "file"
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000


def call(name: str, *args: object) -> None:
    if getattr(LIBC, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def system_call(number: int, *args: object) -> int:
    result = int(LIBC.syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), str(number))
    return result


def write(path: Path) -> None:
    with path.open("w") as file:
        file.write("changed")


def by_link() -> None:
    Path("link").symlink_to(FILE)
    write(Path("link"))


def by_link_in_directory() -> None:
    Path("directory").symlink_to(OUTSIDE)
    write(Path("directory/new"))


def by_hard_link() -> None:
    os.link(FILE, "hard")
    write(Path("hard"))


def by_parents() -> None:
    write(Path(*[".."] * 40, *FILE.parts[1:]))


def by_own_root() -> None:
    write(Path(f"/proc/self/root{FILE}"))


def by_root_of_victim() -> None:
    write(Path(f"/proc/{VICTIM}/root{FILE}"))


def by_memory_of_victim() -> None:
    Path(f"/proc/{VICTIM}/mem").open("r+b").close()


def by_renaming() -> None:
    Path("mine").write_text("changed")
    Path("mine").replace(FILE)


def by_opening_read_only() -> None:
    descriptor = os.open(FILE, os.O_RDONLY)
    os.fchmod(descriptor, 0o777)


def by_device() -> None:
    device = os.makedev(os.major(OUTSIDE.stat().st_dev), os.minor(OUTSIDE.stat().st_dev))
    os.mknod("disk", 0o600 | 0o060000, device)
    Path("disk").open("r+b").close()


def by_namespaces() -> None:
    call("unshare", NEW_USER | NEW_MOUNTS)
    call("mount", b"tmpfs", str(OUTSIDE).encode(), b"tmpfs", 0, None)


def by_mount() -> None:
    call("mount", b"tmpfs", str(OUTSIDE).encode(), b"tmpfs", 0, None)


def by_remount() -> None:
    call("mount", None, b"/", None, 0x20 | 0x1000, None)
    write(FILE)


def by_namespace_of_victim() -> None:
    call("setns", os.open(f"/proc/{VICTIM}/ns/mnt", os.O_RDONLY), 0)


def by_tracing() -> None:
    call("ptrace", 16, VICTIM, None, None)


def by_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(OUTSIDE / "socket"))
        client.sendall(b"changed")


def by_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + TARGET["abstract"])
        client.sendall(b"changed")


def by_shared_memory() -> None:
    call("shmctl", int(TARGET["segment"]), 0, None)


def by_user_helper() -> None:
    write(Path("/proc/sys/kernel/core_pattern"))


def by_setuid() -> None:
    os.setuid(0 if os.getuid() else 1)
    FILE.chmod(0o4755)


def by_ring() -> None:
    os.close(system_call(425, 4, ctypes.create_string_buffer(256)))


def priorities() -> None:
    os.setpriority(os.PRIO_USER, os.getuid(), 19)
    if os.getpriority(os.PRIO_PROCESS, VICTIM) == 0:
        raise OSError("only its own")


def large_file() -> None:
    with Path("large").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    Path("large").unlink()


def fill_temporary() -> None:
    filling = Path(os.environ["TMPDIR"]) / "fill"
    with filling.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 << 30)
    filling.unlink()


ATTACKS: dict[str, Callable[[], object]] = {
    "write": lambda: write(FILE),
    "append": lambda: FILE.open("a").close(),
    "create": lambda: write(OUTSIDE / "new"),
    "truncate": lambda: os.truncate(FILE, 0),
    "remove": FILE.unlink,
    "make a directory": (OUTSIDE / "more").mkdir,
    "rename": lambda: FILE.rename(OUTSIDE / "other"),
    "rename into": by_renaming,
    "symbolic link": by_link,
    "symbolic link to a directory": by_link_in_directory,
    "hard link": by_hard_link,
    "link outside": lambda: (OUTSIDE / "new").symlink_to("/etc"),
    "parents": by_parents,
    "own root": by_own_root,
    "root of another": by_root_of_victim,
    "memory of another": by_memory_of_victim,
    "mode": lambda: FILE.chmod(0o777),
    "mode by a descriptor": by_opening_read_only,
    "owner": lambda: os.chown(FILE, os.getuid(), os.getgid()),
    "times": lambda: os.utime(FILE, (1, 1)),
    "attribute": lambda: os.setxattr(FILE, "user.changed", b"1"),
    "device": by_device,
    "namespaces": by_namespaces,
    "mount": by_mount,
    "remount": by_remount,
    "namespace of another": by_namespace_of_victim,
    "tracing": by_tracing,
    "signal": lambda: os.kill(VICTIM, signal.SIGKILL),
    "limits of another": lambda: resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (0, 0)),
    "priorities": priorities,
    "socket": by_socket,
    "abstract socket": by_abstract_socket,
    "shared memory": by_shared_memory,
    "kernel settings": by_user_helper,
    "setuid": by_setuid,
    "ring": by_ring,
    "root directory": lambda: os.chroot("."),
    "large file": large_file,
    "fill the temporary folder": fill_temporary,
    "directory": lambda: OUTSIDE.rmdir(),
}


def attempts() -> Iterator[tuple[str, str]]:
    for name in sys.argv[3:] or ATTACKS:
        try:
            ATTACKS[name]()
        except OSError as exc:
            yield name, f"refused: {exc.strerror or exc}"
        else:
            yield name, "done"


print(json.dumps(dict(attempts())))
