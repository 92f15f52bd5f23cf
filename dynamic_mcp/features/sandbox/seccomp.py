"""The system calls that a confined program cannot make, as a program for the kernel's filter (seccomp(2)).

As in the defaults of Docker and Podman: what is left out changes the machine, other processes, or the walls of the
sandbox, or is a way around this filter. Each gets an error, by which programs do without it.
"""

from __future__ import annotations

import errno
import platform
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

# By names of calls: their numbers for x86_64 and aarch64.
NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}
# Changes of the attributes of files, which Landlock does not know; mounts that are read-only do.
_ATTRIBUTES = frozenset(
    [
        "chmod",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "chown",
        "fchown",
        "lchown",
        "fchownat",
        "utime",
        "utimes",
        "futimesat",
        "utimensat",
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "setxattrat",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
        "removexattrat",
        "file_setattr",
    ]
)
# What is shared by all programs of a user, without namespaces.
_SHARED = frozenset(
    [
        "shmget",
        "shmat",
        "shmctl",
        "semget",
        "semop",
        "semctl",
        "semtimedop",
        "msgget",
        "msgsnd",
        "msgrcv",
        "msgctl",
        "mq_open",
        "mq_unlink",
    ]
)
# Settings of processes, by the argument that is the process; 0 is the caller itself.
_OF_PROCESS = {
    "prlimit64": 0,
    "sched_setparam": 0,
    "sched_setscheduler": 0,
    "sched_setaffinity": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
# Denied by their arguments, or answered otherwise.
_PARTLY = frozenset(("clone", "clone3", "unshare", "setns", "socket", "ioctl"))
# linux/sched.h: the flags that make namespaces, but for the one of time, which `clone` has no room for.
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_TIME_NAMESPACE = 0x00000080
# Input that another program on the terminal would take for typed; and flags of files.
_TERMINAL_INPUT = (0x5412, 0x541C)
_FILE_FLAGS = (0x40086602, 0x401C5820)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


class Filter(Struct, frozen=True):
    """What is denied besides, and whether namespaces are not. One that `is_alone` has none of bubblewrap."""

    denies_unix_sockets: bool = False
    allows_namespaces: bool = False
    is_alone: bool = False

    def build(self) -> bytes:
        """Return the program for the kernel. Raises OSError for an architecture whose numbers are not known."""
        machine = platform.machine()
        if machine not in _ARCHITECTURES or sys.byteorder != "little":
            raise OSError(errno.ENOSYS, f"system calls of {machine} cannot be filtered")
        column, architecture = _ARCHITECTURES[machine]
        lines = [
            *_load(_ARCHITECTURE),
            _jump(_EQUAL, architecture, 1, 0),
            _error(errno.ENOSYS),
            *_load(_NUMBER),
            *((_jump(_AT_LEAST, _X32, 0, 1), _error(errno.ENOSYS)) if machine == "x86_64" else ()),
        ]
        for name in sorted(NUMBERS):
            number = NUMBERS[name][column]
            rule = [*self._rule(name)]
            if number is not None and rule:
                lines += [_jump(_EQUAL, number, 0, len(rule)), *rule]
        return b"".join([*lines, _return(_ALLOW)])

    def _rule(self, name: str) -> Iterator[bytes]:
        """Yield what decides about a call: always with a result at its end. None is allowed."""
        if name in _ATTRIBUTES or name in _SHARED:
            denied = self.is_alone
        elif name in _OF_PROCESS:
            if self.is_alone:
                yield from _of_others(name)
            return
        elif name in _PARTLY:
            yield from self._partly(name)
            return
        else:
            denied = True
        if denied:
            yield _error(errno.EPERM)

    def _partly(self, name: str) -> Iterator[bytes]:
        match name:
            case "clone" | "unshare" if not self.allows_namespaces:
                flags = _NAMESPACES | (_TIME_NAMESPACE if name == "unshare" else 0)
                yield from _deny_if(_ANY_OF, 0, [flags])
            case "setns" if not self.allows_namespaces:
                yield _error(errno.EPERM)
            case "clone3" if not self.allows_namespaces:  # its flags are in memory; the C library then uses `clone`
                yield _error(errno.ENOSYS)
            case "socket":
                families = (_INET, _INET6, _NETLINK, *(() if self.denies_unix_sockets else (_UNIX,)))
                yield from _load(_ARGUMENTS)
                for number, family in enumerate(families):
                    yield _jump(_EQUAL, family, len(families) - number, 0)
                yield _error(errno.EACCES)
                yield _return(_ALLOW)
            case "ioctl":
                yield from _deny_if(_EQUAL, 1, [*_TERMINAL_INPUT, *(_FILE_FLAGS if self.is_alone else ())])


def _of_others(name: str) -> Iterator[bytes]:
    """Yield what denies a setting of another process, or of all processes of a user."""
    if _OF_PROCESS[name] == 1:
        which = 0 if name == "setpriority" else 1  # PRIO_PROCESS, IOPRIO_WHO_PROCESS
        yield from _load(_ARGUMENTS)
        yield _jump(_EQUAL, which, 1, 0)
        yield _error(errno.EPERM)
    yield from _load(_ARGUMENTS + 8 * _OF_PROCESS[name])
    yield _jump(_EQUAL, 0, 1, 0)
    yield _error(errno.EPERM)
    yield _return(_ALLOW)


def _deny_if(test: int, argument: int, values: Iterable[int]) -> Iterator[bytes]:
    yield from _load(_ARGUMENTS + 8 * argument)
    for value in values:
        yield _jump(test, value, 0, 1)
        yield _error(errno.EPERM)
    yield _return(_ALLOW)


def _load(offset: int) -> Iterator[bytes]:
    yield struct.pack("HBBI", _LOAD, 0, 0, offset)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", test, if_true, if_false, value)


def _return(action: int) -> bytes:
    return struct.pack("HBBI", _RETURN, 0, 0, action)


def _error(number: int) -> bytes:
    return _return(_ERROR | number)
