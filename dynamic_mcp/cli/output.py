"""Prints a command's data and messages. Only this file handles terminals, JSON, colour, width and foreign text.

Data goes to stdout: tables on a terminal, else JSON, unless an option says otherwise. Messages go to stderr.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from dynamic_mcp.system.text import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

# Below this many columns a table becomes a list.
NARROW = 60
# So wide is what is not a terminal, so that each row of a table is one line for `grep`.
_WIDTH_OF_PIPE = 10_000
# The control characters that may stay in foreign text.
_LINES = "\n\t"
# Control sequences: move to the first column of the first line, and erase to the end of the line or screen.
_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Characters that JSON allows and a terminal interprets: C1 controls and changes of text direction.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MOST_NAMED = 3
# A shorter wait shows no clock.
_CLOCK_AFTER_S = 1.0


class Output:
    """The two streams of one command."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        environment: Mapping[str, str],
        *,
        as_json: bool | None,
        is_quiet: bool,
        is_plain: bool = False,
        platform: str = sys.platform,
    ) -> None:
        self.is_terminal = stdout.isatty()
        self.is_json = not self.is_terminal if as_json is None else as_json
        self.is_json_requested = as_json is True
        self._is_wide = not self.is_terminal and "COLUMNS" not in environment
        self._frame: io.StringIO | None = None  # the output of the current repaint
        self._stdout = stdout
        self._stderr = stderr
        self._is_quiet = is_quiet
        # consoles of Windows set no TERM
        is_dumb = environment.get("TERM", "console" if platform == "win32" else "") in ("", "dumb", "unknown")
        # no spinner on a terminal that cannot redraw, nor where log lines would break it
        self._is_dumb = is_dumb
        self._may_draw = stderr.isatty() and not is_dumb and not is_quiet and not is_plain
        self._status: Status | None = None
        self._progress: Progress | None = None
        self._last_message = ""

    # --- data ------------------------------------------------------------------------------------------

    def print_json(self, value: object) -> None:
        """Print a value, or bytes that are JSON already, as indented JSON."""
        import msgspec

        data = value if isinstance(value, bytes) else _encode(value)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # lone surrogates, which stay escapes
            data = msgspec.json.format(data, indent=2)
        text = data.decode("utf-8", "replace")
        self._print(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))

    def print_json_line(self, value: object) -> None:
        """Print a value as one line of JSON, all ASCII."""
        import json

        self._print(json.dumps(value))

    def print_text(self, text: str) -> None:
        """Print foreign text: unchanged when piped, with control characters escaped on a terminal."""
        self._print(escape(text, keep=_LINES) if self.is_terminal else text)

    def print_rows(
        self, value: object, columns: Sequence[str], rows: Sequence[Sequence[str]], *, if_none: str = ""
    ) -> None:
        """Print a list: its value as JSON, or its rows as a table, or `if_none` if it is empty."""
        if self.is_json:
            self.print_json(value)
        elif rows:
            self.print_table(columns, rows)
        elif if_none:
            self.say(if_none)

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
        """Print rows as a table; the last column takes the remaining width."""
        if self.console().width < NARROW:
            self._print_list(columns, rows, title)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
        if title:
            table.title = Text(escape(title), "bold")
        for column in columns:
            is_last = column == columns[-1]
            table.add_column(
                column, overflow="fold", no_wrap=False, ratio=1 if is_last and len(columns) > 1 else None
            )
        for row in rows:
            table.add_row(*(Text(escape(cell, keep=_LINES), _style(cell)) for cell in row))
        console = self.console()
        if self._is_wide:  # the spaces that fill up its lines are nothing to a program that reads it
            with console.capture() as capture:
                console.print(table)
            self._print("\n".join(line.rstrip() for line in capture.get().splitlines()))
        else:
            console.print(table)

    def _print_list(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
        if title:
            self.print_line(title, "bold")
        for first, *others in rows:
            self.print_line(first, "bold")
            for column, cell in zip(columns[1:], others, strict=True):
                if cell:
                    self.print_line(f"{column.lower()}: {cell}", indent=2)

    def print_line(self, text: str, style: str = "", *, indent: int = 0, margin: str = "") -> None:
        """Print one paragraph of text, wrapped at the width; each line has the indent and the margin."""
        from rich.text import Text

        console = self.console()
        margin = " " * indent + margin
        for line in Text(escape(text, keep=_LINES), style).wrap(console, max(1, console.width - len(margin))):
            line.rstrip()
            console.print(Text(margin, style if margin.strip() else "").append(line))

    def mark(self, name: str) -> str:
        """Return the sign for `ok`, `note`, `warning` or `error` that this terminal can show."""
        signs = {"ok": "✓", "note": "·", "warning": "!", "error": "✗"}
        plain = {"ok": "+", "note": "-", "warning": "!", "error": "x"}
        return self.sign(signs[name], plain[name])

    def sign(self, symbol: str, plain: str) -> str:
        """Return the symbol if this terminal can show it, else the plain one."""
        try:
            symbol.encode(getattr(self._stdout, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            return plain
        return symbol

    @contextlib.contextmanager
    def repaint(self) -> Iterator[None]:
        """Replace the screen with the output of this context, without flicker and cut to its height.

        Without a terminal, and as JSON, the output is printed normally.
        """
        console = self.console()
        if not self.is_terminal or self.is_json or self._is_dumb or console.legacy_windows:
            if self.is_terminal:
                console.clear()
            yield
            return
        self._frame = frame = io.StringIO()
        try:
            yield
        finally:
            self._frame = None
        lines = frame.getvalue().rstrip("\n").split("\n")
        room = console.height - 1  # the cursor ends up on the line below
        if len(lines) > room:
            lines[room - 1 :] = [f"{self.sign('…', '...')} {len(lines) - room + 1} more lines"]
        # each line is erased before it is written: erasing after one as wide as the screen would take its last column
        self._stdout.write(_HOME + "".join(f"{_ERASE_LINE}{line}\n" for line in lines) + _ERASE_BELOW)
        self._stdout.flush()

    # --- messages --------------------------------------------------------------------------------------

    def say(self, text: str, style: str = "") -> None:
        """Print a message on stderr, unless --quiet is given."""
        if self._is_quiet:
            return
        if self._frame is not None:
            self.print_line(text, style)
        elif self._status is not None:
            from rich.text import Text

            self._status.console.print(Text(escape(text, keep=_LINES), style))
        else:
            print(escape(text, keep=_LINES), file=self._stderr, flush=True)

    def print_error(self, text: str) -> None:
        """Print an error on stderr, even with --quiet."""
        print(f"error: {escape(text, keep=_LINES)}", file=self._stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, what: str, names: Sequence[str] = ()) -> Iterator[Progress]:
        """Show a spinner with the pending names and the elapsed time; on a terminal only."""
        progress = Progress(what, names)
        if not self._may_draw or self._status is not None:
            yield progress
            return
        console = self.console(self._stderr)
        spinner = "dots" if self.mark("ok") == "✓" else "line"
        with _without_echo(sys.stdin), console.status(progress, spinner=spinner) as self._status:
            self._progress = progress
            try:
                yield progress
            finally:
                self._status = None

    @property
    def may_ask(self) -> bool:
        """Return whether the user can answer: at a terminal in the foreground, without `--quiet`."""
        if self._is_quiet or sys.stdin is None or not (sys.stdin.isatty() and self._stderr.isatty()):
            return False
        return sys.platform == "win32" or _own_terminal(sys.stdin) is not None

    def quote(self, text: str) -> None:
        """Print foreign text on stderr, wrapped, behind a bar that shows its extent."""
        from rich.text import Text

        console, bar = self.console(self._stderr), self.sign("│ ", "| ")
        for line in Text(escape(text)).wrap(console, max(1, console.width - len(bar))):
            line.rstrip()
            print(f"{bar}{line.plain}", file=self._stderr, flush=True)

    def prompt(self, text: str) -> None:
        """Print a question on stderr; the answer is typed on the same line."""
        print(escape(text), file=self._stderr, end="", flush=True)

    @contextlib.contextmanager
    def interlude(self) -> Iterator[None]:
        """Stop the spinner and echo keys, while the user answers a question."""
        status = self._status
        if status is not None:
            status.stop()
        self._status = None
        try:
            with _with_echo(sys.stdin):
                yield
        finally:
            self._status = status
            if status is not None:
                status.start()

    def update_progress(self, text: str, message: str = "") -> None:
        """Show progress: next to the spinner if there is one, else as a line, one for each message in it."""
        if self._status is not None and self._progress is not None:
            self._progress.note = text
        elif not message or message != self._last_message:
            self.say(text)
        self._last_message = message or self._last_message

    def console(self, stream: TextIO | None = None) -> Console:
        """Return a rich console on a stream; it follows NO_COLOR, TERM and COLUMNS."""
        from rich.console import Console

        file = stream or self._frame or self._stdout
        is_terminal = True if file is self._frame else None  # None: the console detects it
        width = _WIDTH_OF_PIPE if self._is_wide and file is self._stdout else None
        return Console(file=file, width=width, force_terminal=is_terminal, highlight=False, markup=False, emoji=False)

    def _print(self, text: str) -> None:
        print(text, file=self._frame or self._stdout, flush=True)


@contextlib.contextmanager
def _without_echo(stdin: TextIO) -> Iterator[None]:
    """Turn off the echo of the terminal: a typed line break would break the spinner. Input is still read."""
    with _local_modes(stdin, lambda modes, echo: modes & ~echo):
        yield


@contextlib.contextmanager
def _with_echo(stdin: TextIO) -> Iterator[None]:
    with _local_modes(stdin, lambda modes, echo: modes | echo):
        yield


if sys.platform == "win32":

    @contextlib.contextmanager
    def _local_modes(stdin: TextIO, change: Callable[[int, int], int]) -> Iterator[None]:
        yield  # a console has no such modes

    def _own_terminal(stdin: TextIO) -> int | None:
        return None

else:

    @contextlib.contextmanager
    def _local_modes(stdin: TextIO, change: Callable[[int, int], int]) -> Iterator[None]:
        """Change the local modes of a terminal in this context; `change` receives them and the echo bit."""
        descriptor = _own_terminal(stdin)
        if descriptor is None:
            yield
            return
        import termios

        before = termios.tcgetattr(descriptor)
        changed = [*before]
        changed[3] = change(changed[3], termios.ECHO)
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)
        try:
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    def _own_terminal(stdin: TextIO) -> int | None:
        """Return the descriptor of a terminal that this process may change; the system stops a background process."""
        if not stdin.isatty():
            return None
        descriptor = stdin.fileno()
        try:
            return descriptor if os.tcgetpgrp(descriptor) == os.getpgrp() else None
        except OSError:  # not our controlling terminal, which alone stops background processes
            return descriptor


def _encode(value: object) -> bytes:
    """Encode a value as JSON; bytes of a path that are not UTF-8 become escapes."""
    import json

    import msgspec

    from dynamic_mcp.mcp import wire

    try:
        return wire.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def _style(cell: str) -> str:
    state = cell.partition(",")[0]  # `connected, 2 in flight`
    return {"connected": "green", "failed": "red", "needs a login": "yellow"}.get(state, "")


class Progress:
    """The state of a wait, with the pending names if any; `note` is the latest progress message."""

    def __init__(self, what: str, names: Sequence[str] = (), now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._pending = list(names)
        self._has_names = bool(names)
        self._now = now
        self._since = now()
        self.note = ""

    def complete(self, name: str) -> None:
        """Remove a name from the pending ones."""
        if name in self._pending:
            self._pending.remove(name)

    def __str__(self) -> str:
        elapsed_s = self._now() - self._since
        clock = f" ({elapsed_s:.0f} s)" if elapsed_s >= _CLOCK_AFTER_S else ""
        return f"{self._describe()}{clock}{': ' if self.note else ''}{self.note}"

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(escape(str(self)), no_wrap=True, overflow="ellipsis")

    def _describe(self) -> str:
        if not self._has_names:
            return self._what
        if not self._pending:
            return "finishing"
        names = ", ".join(self._pending[:_MOST_NAMED])
        more = len(self._pending) - _MOST_NAMED
        return f"{self._what} {names}{f' and {more} more' if more > 0 else ''}"
