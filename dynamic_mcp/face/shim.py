"""The shim: passes one client's bytes between this window's stdin and stdout and the daemon of its config.

It keeps each of the client's lines until the daemon has handled it, and the daemon's few notes about the session. If
the daemon ends, another one continues with these; the client only sees errors for its requests in flight.
A window costs what this file imports: no asyncio, no click, no config.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes as long to load as all of this
import os
import sys
import time

from dynamic_mcp import __version__
from dynamic_mcp.config.location import encoded_environment, working_directory
from dynamic_mcp.face import frames
from dynamic_mcp.face.backlog import Backlog

if sys.platform == "win32":
    from dynamic_mcp.face import window_streams as streams
    from dynamic_mcp.face.window_streams import read, write
else:
    import select as streams
    from os import read, write

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamic_mcp.system.private_socket import Socket

    # Returns a connection to a daemon, which may have to be started first; None if that fails.
    Connect = Callable[[], Socket | None]
    # Restarts the program with the state of this window if it was upgraded; returns if it was not.
    Restart = Callable[["Shim"], None]

STDIN, STDOUT, STDERR = 0, 1, 2
# Small enough for the heap: a larger buffer would be mapped and unmapped by the system with each read.
_CHUNK_BYTES = 1 << 16
# How long the client may take to read the last output.
_FLUSH_WITHIN_MS = 500
# How long a daemon may take to answer a hello, and how long the shim looks for another daemon.
_WELCOME_WITHIN_S = 5.0
_RECOVER_WITHIN_S = 5.0
# From the end of input to the end of a window whose client does not read its answers.
_END_WITHIN_S = 5.0

_GONE = streams.POLLERR | streams.POLLHUP | streams.POLLNVAL

# The states of a window. They are no Enum, which takes longer to load than all of this.
LOOKING = "looking for a daemon"
SERVED = "served by a daemon"
MOVING = "served by a stopping daemon, to be replaced at once"
STOPPING = "served by a stopping daemon, to be replaced when the client needs it"
IDLE = "without a daemon until the client needs one"
ALONE = "without a daemon: none is available, so this process must serve"
REFUSED = "without a daemon: its config wants none, so this process must serve"
OVER = "over"

# The allowed transitions; a missing entry is a bug.
TRANSITIONS = {
    LOOKING: (SERVED, ALONE, REFUSED, OVER),
    SERVED: (MOVING, STOPPING, LOOKING, OVER),
    MOVING: (MOVING, STOPPING, LOOKING, OVER),
    STOPPING: (MOVING, STOPPING, IDLE, LOOKING, OVER),
    IDLE: (LOOKING, OVER),
    ALONE: (OVER,),
    REFUSED: (OVER,),
    OVER: (OVER,),
}
_LAST = (ALONE, REFUSED, OVER)

# The states of the client's input.
_READING, _PAUSED, _ENDED = "reading", "paused", "ended"


class Shim:
    """One window; `run` passes its bytes. `notes` and `backlog` are the state that another daemon needs.

    `only` is the one group that the client sees; None means all. `profile` is the selected profile.
    Without a `connection` the shim looks for a daemon itself, as it does after restoring the `state` of another shim.
    """

    def __init__(
        self,
        config: str,
        connection: Socket | None,
        connect: Connect,
        *,
        only: str | None = None,
        profile: str | None = None,
        restart: Restart | None = None,
    ) -> None:
        self.generation = 0
        self.notes: dict[bytes, bytes] = {}
        self.backlog = Backlog()
        self.config = config
        self.only = only
        self.profile = profile
        self._connect = connect
        self._restart = restart
        self._first = connection
        self._socket: Socket | None = None
        self._poll = streams.poll()
        self._received = bytearray()
        self._to_daemon = b""
        self._to_client = bytearray()
        self._state = LOOKING
        self._input = _PAUSED
        self._is_client_slow = False
        self._ends_at: float | None = None
        self._exit_code = 0

    def __repr__(self) -> str:
        return f"<Shim {self._state}>"

    @property
    def is_refused(self) -> bool:
        """True if the daemon does not serve windows of this config."""
        return self._state is REFUSED

    def run(self) -> int | None:
        """Pass bytes until the session ends; return the exit code.

        Returns None if no daemon is available any more, and this process must continue the session alone.
        """
        for number in (_signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, _end)
        if sys.platform != "win32":
            _signal.signal(_signal.SIGHUP, _ignore)
            for descriptor in (STDIN, STDOUT):
                os.set_blocking(descriptor, False)
        self._poll.register(STDOUT, 0)
        self._watch_input()
        if self._first is not None:
            self._attach(self._first)
        if self._state not in (SERVED, ALONE, REFUSED):
            self._recover()
        if self._to_client:
            self._write_to_client()
        while self._state not in _LAST:
            for descriptor, event in self._wait():
                if descriptor == STDIN:
                    self._take_input()
                elif descriptor != STDOUT:
                    self._exchange()
                elif event & _GONE:
                    self._finish()
                else:
                    self._write_to_client()
                if self._state in _LAST:
                    break
        if self._state is not OVER:
            return self._leave()
        self._flush()
        return self._exit_code

    def _leave(self) -> int | None:
        """Leave the standard streams to the rest of this process; return the exit code if that is impossible."""
        if sys.platform == "win32":
            if not streams.flush(_FLUSH_WITHIN_MS):
                return 1
            streams.hand_over()
        return None

    def _enter(self, state: str) -> None:
        assert state in TRANSITIONS[self._state], f"no transition from `{self._state}` to `{state}`"
        self._state = state

    def _finish(self, exit_code: int = 0) -> None:
        self._enter(OVER)
        self._exit_code = exit_code

    def _wait(self) -> list[tuple[int, int]]:
        """Return the ready descriptors, the daemon's first: input after its end is for the next daemon."""
        if self._ends_at is None:
            ready = self._poll.poll()
        else:
            within_s = self._ends_at - time.monotonic()
            ready = self._poll.poll(max(0.0, within_s * 1000))
            if not ready and within_s <= 0:
                self._finish()
        return ready if len(ready) < 2 else sorted(ready, reverse=True)

    def unwritten(self) -> bytes:
        """Return the bytes that are not written to the client yet."""
        return bytes(self._to_client)

    # --- another process -------------------------------------------------------------------------------

    def state(self) -> bytes:
        """Return the state that another process needs to replace this one."""
        return frames.pack_pairs(
            {
                b"generation": b"%d" % self.generation,
                b"notes": frames.pack_pairs(self.notes),
                b"interrupted": frames.pack(self.backlog.interrupted()),
                b"unread": self.backlog.unread(),
                b"unwritten": self.unwritten(),
                b"ended": b"1" if self._input is _ENDED else b"",
            }
        )

    def restore(self, state: bytes) -> None:
        """Continue the window of another process. Raises ValueError and KeyError if that had another version."""
        members = frames.unpack_pairs(state)
        self.generation = int(members[b"generation"])
        self.notes = frames.unpack_pairs(members[b"notes"])
        self.backlog.restore(frames.unpack(members[b"interrupted"]), members[b"unread"])
        self._to_client = bytearray(members[b"unwritten"])
        self._input = _ENDED if members[b"ended"] else _PAUSED

    # --- from the client -------------------------------------------------------------------------------

    def _take_input(self) -> None:
        try:
            data = read(STDIN, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end_input()
            return
        if self._state is SERVED:
            self.backlog.add(data)
            self._send(data)
            return
        self.backlog.add_untaken(data)
        if self._state is IDLE:
            self._recover()

    def _end_input(self) -> None:
        self._ends_at = time.monotonic() + _END_WITHIN_S
        if self._input is _READING:
            self._poll.unregister(STDIN)
        self._input = _ENDED
        if self._state is IDLE:
            self._finish()
        elif self._state is SERVED:
            self._send(self.backlog.end_line() + frames.END_OF_INPUT + b"\n")
        else:  # `_attach` reports the end to the next daemon
            self.backlog.end_untaken_line()

    def _watch_input(self) -> None:
        """Read input while the daemon takes it."""
        if self._input is _PAUSED and not self._to_daemon:
            self._input = _READING
            self._poll.register(STDIN, streams.POLLIN)
        elif self._input is _READING and self._to_daemon:
            self._input = _PAUSED
            self._poll.unregister(STDIN)

    # --- to the daemon ---------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        if self._to_daemon:
            self._to_daemon += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it disconnected, which is handled after all its output was read
            return
        if sent < len(data):
            self._to_daemon = data[sent:]
            self._watch()

    def _exchange(self) -> None:
        if self._to_daemon:
            data, self._to_daemon = self._to_daemon, b""
            self._send(data)
            self._watch()
        if not self._is_client_slow:
            self._take_frames()

    def _watch(self) -> None:
        """Update what to poll for: while the client does not read, nothing is read from the daemon."""
        self._watch_input()
        if self._socket is not None:
            reading = 0 if self._is_client_slow else streams.POLLIN
            if reading or self._to_daemon:
                self._poll.register(self._socket, reading | (streams.POLLOUT if self._to_daemon else 0))
            else:
                self._unregister(self._socket)
        self._poll.modify(STDOUT, streams.POLLOUT if self._is_client_slow else 0)

    def _unregister(self, connection: Socket) -> None:
        try:  # noqa: SIM105 - contextlib takes as long to load as all of this
            self._poll.unregister(connection)
        except KeyError:
            pass

    # --- from the daemon -------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_daemon()
        elif self._received:
            self._received += data
            del self._received[: self._take(self._received)]
        elif data[0] == frames.OUTPUT and (header := frames.header(data, 0))[2] == len(data):  # nearly always
            self.backlog.unanswered.pop(header[1], None)
            self._give(data[frames.HEADER_BYTES :])
        else:
            taken = self._take(data)
            if taken < len(data):
                self._received += data[taken:]

    def _take(self, data: bytes | bytearray) -> int:
        """Handle the complete frames in `data`; return how many bytes they have."""
        at, size = 0, len(data)
        while size - at >= frames.HEADER_BYTES:
            kind, number, end = frames.header(data, at)
            if end > size:
                break
            payload = bytes(data[at + frames.HEADER_BYTES : end])
            if kind == frames.OUTPUT:
                self._to_client += payload
                self.backlog.unanswered.pop(number, None)
            else:
                self._obey(kind, number, payload)
            at = end
        if self._to_client:
            self._write_to_client()
        return at

    def _obey(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.KEEP:
            name, has_note, note = payload.partition(b"\0")
            self.notes.pop(name, None)
            if has_note:
                self.notes[name] = note
        elif kind == frames.STOP:
            self.backlog.on_stop(taken=number)
            if self._state is not OVER:
                self._enter(MOVING if payload == frames.RECONNECT else STOPPING)
        elif kind == frames.END:
            self._finish(number)
            if payload:
                _print(b"error: " + payload + b"\n")

    # --- the end of a daemon ---------------------------------------------------------------------------

    def _lose_daemon(self) -> None:
        """Continue with another daemon: at once or, if this one was asked to stop, when the client needs one."""
        assert self._socket is not None
        self._unregister(self._socket)
        self._socket.close()
        self._socket, self._to_daemon = None, b""
        self._received.clear()
        if self.backlog or (self._input is not _ENDED and self._state is not STOPPING):
            self._recover()
        elif self._input is _ENDED:
            self._finish()
        else:
            self._enter(IDLE)
            self._watch()

    def _recover(self) -> None:
        """Find or start another daemon; if that takes too long, this process continues alone."""
        if self._restart is not None:
            self._restart(self)
        if self._state not in (LOOKING, OVER):
            self._enter(LOOKING)
        deadline = time.monotonic() + _RECOVER_WITHIN_S
        while time.monotonic() < deadline and self._state is LOOKING:
            self.generation += 1
            connection = self._connect()
            if connection is None:
                break
            self._attach(connection)
        if self._state is LOOKING:
            self._enter(ALONE)

    def _attach(self, connection: Socket) -> None:
        """Send the hello and, if the daemon accepts this window, the input that no daemon has taken yet."""
        try:
            connection.settimeout(_WELCOME_WITHIN_S)
            connection.sendall(self._hello())
            self._wait_for_welcome(connection)
        except TimeoutError:  # it hangs, and a second daemon of this config cannot run
            self._enter(ALONE)
        except OSError:
            pass
        if self._state is not SERVED:
            connection.close()
            return
        connection.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._socket = connection
        has_ended = self._input is _ENDED
        if has_ended:
            self._ends_at = time.monotonic() + _END_WITHIN_S
        rest = self.backlog.hand_over() + (frames.END_OF_INPUT + b"\n" if has_ended else b"")
        if rest:
            self._send(rest)
        self._watch()

    def _wait_for_welcome(self, connection: Socket) -> None:
        """Read the answer to a hello. Until then no input is sent, because the daemon may hang or be about to end."""
        data = b""
        while len(data) < frames.HEADER_BYTES or frames.header(data, 0)[2] > len(data):
            received = connection.recv(frames.HEADER_BYTES - len(data)) if not data else connection.recv(1)
            if not received:
                return
            data += received
        kind, number, _ = frames.header(data, 0)
        if kind == frames.END:
            self._obey(kind, number, data[frames.HEADER_BYTES :])
        elif kind == frames.REFUSE:
            self._enter(REFUSED)
        elif kind == frames.WELCOME:
            self._enter(SERVED)

    def _hello(self) -> bytes:
        return frames.hello(
            b"session",
            os.fsencode(self.config),
            version=__version__.encode(),
            directory=os.fsencode(working_directory()),
            environment=frames.pack_pairs(encoded_environment()),
            only=(self.only or "").encode(),
            profile=os.fsencode(self.profile or ""),
            generation=self.generation,
            notes=frames.pack_pairs(self.notes),
            interrupted=frames.pack(self.backlog.interrupted()),
        )

    # --- to the client ---------------------------------------------------------------------------------

    def _give(self, data: bytes) -> None:
        """Write `data` to a client that has no unwritten bytes."""
        try:
            written = write(STDOUT, data)
        except BlockingIOError:
            written = 0
        except OSError:  # the client disconnected
            self._finish()
            return
        if written < len(data):
            self._to_client += data[written:]
            self._write_to_client()

    def _write_to_client(self) -> None:
        try:
            while self._to_client:
                del self._to_client[: write(STDOUT, self._to_client)]
        except BlockingIOError:
            pass
        except OSError:  # the client disconnected
            self._finish()
        if bool(self._to_client) != self._is_client_slow:
            self._is_client_slow = bool(self._to_client)
            self._watch()

    def _flush(self) -> None:
        """Write the rest, unless the client does not read it in time."""
        waiting = streams.poll()
        waiting.register(STDOUT, streams.POLLOUT)
        try:
            while self._to_client and waiting.poll(_FLUSH_WITHIN_MS):
                del self._to_client[: write(STDOUT, self._to_client)]
        except OSError:
            pass
        if sys.platform == "win32":
            streams.flush(_FLUSH_WITHIN_MS)


def _print(message: bytes) -> None:
    try:  # noqa: SIM105 - contextlib takes as long to load as all of this
        os.write(STDERR, message)
    except OSError:
        pass


def _end(number: int, frame: object) -> None:
    """End the window; the daemon notices and cancels its calls."""
    raise SystemExit(0)


def _ignore(number: int, frame: object) -> None:
    """Leave reloading to the daemon. It is no SIG_IGN, which a daemon that is started here would inherit."""
