"""One small shell beside the proxy that ends what the proxy has started when the proxy cannot: after a SIGKILL.

It is told which process groups live, and reads its stdin until that ends. While nothing is started there is none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from dynamic_mcp.upstream.process.strays import OURS, VARIABLE

log = logging.getLogger(__name__)

# The end of its input with anything left means that the proxy is gone. What was being started then has no number yet,
# but is found on Linux by the pipe that is its stdin: no fork is under way any more, or it would hold our input open.
# A group that has ended once is not signalled again, for its number may be another's by then. What has left its group
# is found on Linux by the mark in its environment.
_SCRIPT = r"""
trap '' HUP INT QUIT TERM
mark=$1 groups= pipes=
without() { rest=; for each in $2; do [ "$each" = "$1" ] || rest="$rest $each"; done; }
signal() {
    left=
    for group in $groups; do kill "-$1" "-$group" && left="$left $group"; done
    groups=$left
    strays=$(grep -ls "$mark" /proc/[0-9]*/environ | tr -dc '0-9\n')
    for stray in $strays; do kill "-$1" "$stray" && left="$left $stray"; done
}
while read -r what number; do
    case $what in
    starts) pipes="$pipes $number" ;;
    started) without "$number" "$pipes"; pipes=$rest ;;
    lives) groups="$groups $number" ;;
    ended) without "$number" "$groups"; groups=$rest ;;
    esac
done
for pipe in $pipes; do
    readers=$(ls -l /proc/[0-9]*/fd/0 | sed -n "s|.* /proc/\([0-9]*\)/fd/0 -> pipe:.$pipe.\$|\1|p")
    groups="$groups $readers"
done
signal TERM
for turn in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$left" ] || exit 0
    sleep 0.1
    signal 0
done
signal KILL
"""
_ENDS_WITHIN_S = 1.0


class Guardian:
    """Keeps the shell while there are groups. Its methods may wait for a moment, and may be called in any thread."""

    def __init__(self) -> None:
        self._pipes: set[int] = set()
        self._groups: set[int] = set()
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def starting(self, stdin: int) -> Iterator[Callable[[int], None]]:
        """Watch over the start of a child that reads `stdin`; what is yielded takes the number of its group.

        A shell that cannot be started is only a warning.
        """
        if sys.platform == "win32":
            yield _nothing
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
        """Forget a group, which has ended; with the last of them the shell ends too."""
        with self._lock:
            self._groups.discard(group)
            self._tell_or_dismiss(f"ended {group}\n")

    def _guard(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._tell_or_start(f"lives {group}\n")

    def _tell_or_start(self, line: str) -> None:
        if not self._tell(line):
            self._start()

    def _tell_or_dismiss(self, line: str) -> None:
        told = self._tell(line)
        if not self._groups and not self._pipes:
            self._dismiss()
        elif not told:
            self._start()

    def _tell(self, line: str) -> bool:
        if self._shell is None:
            return False
        assert self._shell.stdin is not None
        try:
            os.write(self._shell.stdin.fileno(), line.encode())
        except OSError:  # it was killed, or stopped long ago
            self._kill()
            return False
        return True

    def _start(self) -> None:
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "dynamic-mcp-guardian", f"{VARIABLE}={OURS}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as exc:
            log.warning("servers would outlive a kill of dynamic-mcp: /bin/sh cannot be started: %s", exc.strerror)
            return
        assert self._shell.stdin is not None
        os.set_blocking(self._shell.stdin.fileno(), False)
        for pipe in self._pipes:
            self._tell(f"starts {pipe}\n")
        for group in self._groups:
            self._tell(f"lives {group}\n")

    def _dismiss(self) -> None:
        if self._shell is not None:
            assert self._shell.stdin is not None
            self._shell.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(_ENDS_WITHIN_S)
            self._kill()

    def _kill(self) -> None:
        """End the shell before it can see the end of its input, which it would take for the proxy's."""
        if self._shell is not None:
            assert self._shell.stdin is not None
            self._shell.kill()
            self._shell.stdin.close()
            self._shell.wait()
            self._shell = None


def _nothing(group: int) -> None:
    pass


guardian = Guardian()
