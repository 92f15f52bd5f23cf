"""Confines a thread, and what it starts, by Landlock and a filter of system calls; nothing is started in between.

Both are properties of a thread, which its children inherit (landlock(7), seccomp(2)), so that a thread of ours
confines itself, starts the program, and ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

assert sys.platform == "linux"

NEEDED = 6
"""The first version with which signals and abstract sockets are confined, too: Linux 6.12."""

# linux/landlock.h; the numbers of its calls are the same on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = (1 << bit for bit in (1, 4, 5, 6, 7, 8))
_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(9, 16))
# All that changes something. A device that is made would be a way to the disk, so that none is granted anywhere.
_CHANGES = (
    *(_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG),
    *(_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV),
)
_SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL_DEV: 5}
_OF_FILES = _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES, _SCOPES_SINCE = 0b11, 6  # abstract sockets and signals
# Devices that programs write to.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom")

# linux/prctl.h, linux/seccomp.h, linux/capability.h
_SET_SECCOMP, _SET_NO_NEW_PRIVILEGES, _DROP_BOUND, _FILTER = 22, 38, 24, 2
_CHOWN, _DAC_OVERRIDE, _FOWNER, _MOST_CAPABILITIES = 0, 1, 3, 64


@cache
def read_version() -> int:
    """Return the version of Landlock of this kernel; 0 without it."""
    version = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(0, int(version))


def start_confined(start: Callable[[], T], write: Iterable[str], program: bytes | None) -> T:
    """Call `start` in a thread that can only write in these places, and make the calls that a filter allows.

    Raises what it raises, and OSError if the kernel refuses.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _confine_thread(write, program)
            results.append(start())
        except BaseException as exc:  # noqa: BLE001 - raised in the thread that waits
            errors.append(exc)

    thread = threading.Thread(target=run, name="sandbox")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _confine_thread(write: Iterable[str], program: bytes | None) -> None:
    if os.geteuid() == 0:
        _drop_capabilities()
    _check(_libc().prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    version = read_version()
    if version:
        _restrict(version, write)
    if program is not None:
        _set_filter(program)


def _restrict(version: int, write: Iterable[str]) -> None:
    handled = sum(right for right in _CHANGES if version >= _SINCE.get(right, 1))
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("QQQ", handled, 0, scopes)[: 24 if scopes else 8]
    ruleset = _check(
        _libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    )
    try:
        for place in (*_DEVICES, *write):
            _allow(ruleset, place, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        _check(_libc().syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, place: str, rights: int) -> None:
    try:
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = struct.pack("=Qi", rights if Path(place).is_dir() else rights & _OF_FILES, descriptor)
        _check(_libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)))
    finally:
        os.close(descriptor)


def _set_filter(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_libc().prctl(_SET_SECCOMP, _FILTER, description, 0, 0))


def _drop_capabilities() -> None:
    """Keep of what root may do only what is about files, which are confined."""
    for capability in range(_MOST_CAPABILITIES):
        if capability not in (_CHOWN, _DAC_OVERRIDE, _FOWNER):
            result = _libc().prctl(_DROP_BOUND, capability, 0, 0, 0)
            if result and ctypes.get_errno() != errno.EINVAL:  # beyond the last one
                _check(result)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
