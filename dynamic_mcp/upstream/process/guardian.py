"""A small shell next to the proxy that ends the proxy's children if the proxy is killed.

The proxy writes the live process groups to the shell's stdin. The shell runs only while there are any.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from dynamic_mcp.config.workspace import SERVER_MARK

assert sys.platform != "win32"

from dynamic_mcp.upstream.process.strays import mark_prefix, no_server_mark  # noqa: E402

log = logging.getLogger(__name__)

# If its input ends while groups are left, the proxy is gone; if none is left, it has been dismissed. The group of a
# child that was just being started is not known yet; on Linux the child is found by the pipe that is its stdin (no
# fork can be in progress, because it would hold our input open). A group that has ended is never signalled again,
# because its number may have been reused. On Linux, processes that have left their group are found by the mark in
# their environment. Those that have removed it are found by ancestry, before any of their parents is ended; they are
# not asked to end, but killed with the rest.
_SCRIPT = r"""
trap '' HUP INT QUIT TERM
mark=$1 groups= pipes= alone= family=
without() { rest=; for each in $2; do [ "$each" = "$1" ] || rest="$rest $each"; done; }
has() { case " $2 " in *" $1 "*) ;; *) return 1 ;; esac; }
find_family() {
    pairs=$(grep -s '^PPid:' /proc/[0-9]*/status | sed 's|^/proc/\([0-9]*\)/status:PPid:[^0-9]*|\1 |')
    family="$groups $alone" grown=1
    while [ "$grown" ]; do
        grown=
        set -- $pairs
        while [ $# -gt 1 ]; do
            has "$2" "$family" && ! has "$1" "$family" && family="$family $1" grown=1
            shift 2
        done
    done
}
signal() {
    left=
    for group in $groups; do kill "-$1" "-$group" && left="$left $group"; done
    groups=$left
    strays=$(grep -ls "$mark" /proc/[0-9]*/environ | tr -dc '0-9\n')
    for stray in $strays; do kill "-$1" "$stray" && left="$left $stray"; done
    rest=
    for each in $family; do kill "-${2:-$1}" "$each" && rest="$rest $each"; done
    family=$rest left=$left$rest
}
while read -r what number; do
    case $what in
    starts) pipes="$pipes $number" ;;
    started) without "$number" "$pipes"; pipes=$rest ;;
    lives) groups="$groups $number" ;;
    ended) without "$number" "$groups"; groups=$rest ;;
    alone) alone="$alone $number" ;;
    gone) without "$number" "$alone"; alone=$rest ;;
    esac
done
[ -n "$groups$pipes$alone" ] || exit 0
for pipe in $pipes; do
    readers=$(ls -l /proc/[0-9]*/fd/0 | sed -n "s|.* /proc/\([0-9]*\)/fd/0 -> pipe:.$pipe.\$|\1|p")
    groups="$groups $readers"
done
find_family
signal TERM 0
for turn in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$left" ] || exit 0
    sleep 0.1
    signal 0
done
signal KILL
"""
_ENDS_WITHIN_S = 1.0


class Guardian:
    """Runs the shell while there are groups. Its methods may block for a moment, and are thread-safe."""

    def __init__(self) -> None:
        self._pipes: set[int] = set()
        self._groups: set[int] = set()
        self._alone: set[int] = set()
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def watch_start(self, stdin: int | None) -> Iterator[Callable[[int], None]]:
        """Guard a child that is being started and reads `stdin`; call the yielded function with its group.

        `stdin` is None for a child without a pipe: until its group is known, it is found only by the mark in its
        environment. If the shell cannot be started, a warning is logged.
        """
        if stdin is None:
            yield self._guard
            return
        pipe = os.fstat(stdin).st_ino
        with self._lock:
            self._pipes.add(pipe)
            self._tell_or_start(f"starts {pipe}\n")
        try:
            yield self._guard
        finally:
            with self._lock:
                self._pipes.discard(pipe)
                self._tell_or_dismiss(f"started {pipe}\n")

    def release(self, group: int) -> None:
        """Remove a group that has ended; the shell ends with the last one."""
        with self._lock:
            self._groups.discard(group)
            self._tell_or_dismiss(f"ended {group}\n")

    @contextlib.contextmanager
    def watch_process(self, pid: int) -> Iterator[None]:
        """Guard a child of another library that starts no others, and is in our own process group."""
        with self._lock:
            self._alone.add(pid)
            self._tell_or_start(f"alone {pid}\n")
        try:
            yield
        finally:
            with self._lock:
                self._alone.discard(pid)
                self._tell_or_dismiss(f"gone {pid}\n")

    def _guard(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._tell_or_start(f"lives {group}\n")

    def _tell_or_start(self, line: str) -> None:
        if not self._tell(line):
            self._start()

    def _tell_or_dismiss(self, line: str) -> None:
        is_running = self._tell(line)
        if not self._groups and not self._pipes and not self._alone:
            self._dismiss()
        elif not is_running:
            self._start()

    def _tell(self, line: str) -> bool:
        if self._shell is None:
            return False
        assert self._shell.stdin is not None
        try:
            os.write(self._shell.stdin.fileno(), line.encode())
        except OSError:  # it was killed, or has been stopped for long
            self._kill()
            return False
        return True

    def _start(self) -> None:
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "dynamic-mcp-guardian", f"{SERVER_MARK}={mark_prefix()}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": os.defpath, SERVER_MARK: no_server_mark()},
                start_new_session=True,
            )
        except OSError as exc:
            log.warning("if dynamic-mcp is killed, its servers keep running: cannot start /bin/sh: %s", exc.strerror)
            return
        assert self._shell.stdin is not None
        os.set_blocking(self._shell.stdin.fileno(), False)
        for pipe in self._pipes:
            self._tell(f"starts {pipe}\n")
        for group in self._groups:
            self._tell(f"lives {group}\n")
        for pid in self._alone:
            self._tell(f"alone {pid}\n")

    def _dismiss(self) -> None:
        if self._shell is not None:
            assert self._shell.stdin is not None
            self._shell.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(_ENDS_WITHIN_S)
            self._kill()

    def _kill(self) -> None:
        """Kill the shell before it reads the end of its input, which it would take for the end of the proxy."""
        if self._shell is not None:
            assert self._shell.stdin is not None
            self._shell.kill()
            self._shell.stdin.close()
            self._shell.wait()
            self._shell = None


guardian = Guardian()
