"""Where a command's data and words go. This file alone knows terminals, JSON, colour, width and foreign text.

Data is on stdout: JSON when nobody looks at it, tables when somebody does. Words are on stderr.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from dynamic_mcp.cli.progress import Waiting
from dynamic_mcp.observe.log_output import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

# Below this many columns a table becomes a list.
NARROW = 60
# What may stay in foreign text.
_LINES = "\n\t"
# Control characters that JSON lets pass and a terminal would act on: C1, and those that turn the direction of text.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class Output:
    """The two streams of one command."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        environment: Mapping[str, str],
        *,
        as_json: bool,
        is_quiet: bool,
        is_plain: bool = False,
    ) -> None:
        self.is_terminal = stdout.isatty()
        self.is_json = as_json or not self.is_terminal
        self.asked_for_json = as_json
        self._stdout = stdout
        self._stderr = stderr
        self._is_quiet = is_quiet
        is_dumb = environment.get("TERM", "") in ("", "dumb", "unknown")
        # where nothing can be drawn over, and where a log would run through the drawing, nothing moves
        self._may_draw = stderr.isatty() and not is_dumb and not is_quiet and not is_plain
        self._drawn: Status | None = None
        self._waiting: Waiting | None = None

    # --- data ------------------------------------------------------------------------------------------

    def json(self, value: object) -> None:
        """Print a value, or bytes that are JSON already, as indented JSON."""
        import msgspec

        data = value if isinstance(value, bytes) else _encoded(value)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # lone surrogates, which stay escapes
            data = msgspec.json.format(data, indent=2)
        text = data.decode("utf-8", "replace")
        self._print(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))

    def json_line(self, value: object) -> None:
        """Print a value as one line of JSON, all ASCII."""
        import json

        self._print(json.dumps(value))

    def text(self, text: str) -> None:
        """Print foreign text: as it is when it is piped, without what a terminal would act on when it is not."""
        self._print(escaped(text, keep=_LINES) if self.is_terminal else text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
        """Print rows for a person; the last column takes what room there is."""
        if self.console().width < NARROW:
            self._list(columns, rows, title)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
        if title:
            table.title = Text(escaped(title), "bold")
        for column in columns:
            is_last = column == columns[-1]
            table.add_column(
                column, overflow="fold", no_wrap=False, ratio=1 if is_last and len(columns) > 1 else None
            )
        for row in rows:
            table.add_row(*(Text(escaped(cell, keep=_LINES), _style(cell)) for cell in row))
        self.console().print(table)

    def _list(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
        if title:
            self.line(title, "bold")
        for first, *others in rows:
            self.line(first, "bold")
            for column, cell in zip(columns[1:], others, strict=True):
                if cell:
                    self.line(f"{column.lower()}: {cell}", indent=2)

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Print one paragraph for a person, folded at the width and indented as a whole."""
        from rich.text import Text

        console = self.console()
        for line in Text(escaped(text, keep=_LINES), style).wrap(console, max(1, console.width - indent)):
            line.rstrip()
            console.print(Text(" " * indent).append(line))

    def mark(self, name: str) -> str:
        """Return a sign that this terminal can show: `ok`, `note`, `warning` or `error`."""
        signs = {"ok": "✓", "note": "·", "warning": "!", "error": "✗"}
        plain = {"ok": "+", "note": "-", "warning": "!", "error": "x"}
        return self.drawn(signs[name], plain[name])

    def drawn(self, sign: str, plain: str) -> str:
        """Return a sign where this terminal can show it, else the plain one."""
        try:
            sign.encode(getattr(self._stdout, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            return plain
        return sign

    def clear(self) -> None:
        """Begin a new screen, where there is one."""
        if self.is_terminal:
            self.console().clear()

    # --- words -----------------------------------------------------------------------------------------

    def words(self, text: str, style: str = "") -> None:
        """Say something on stderr, unless the command is to be quiet."""
        if self._is_quiet:
            return
        if self._drawn is not None:
            from rich.text import Text

            self._drawn.console.print(Text(escaped(text, keep=_LINES), style))
        else:
            print(escaped(text, keep=_LINES), file=self._stderr, flush=True)

    def error(self, text: str) -> None:
        """Say on stderr what went wrong, also when the command is to be quiet."""
        print(f"error: {escaped(text, keep=_LINES)}", file=self._stderr, flush=True)

    @contextlib.contextmanager
    def waiting(self, what: str, names: Sequence[str] = ()) -> Iterator[Waiting]:
        """Show what is waited for, and how long already; on a terminal only."""
        waiting = Waiting(what, names)
        if not self._may_draw or self._drawn is not None:
            yield waiting
            return
        console = self.console(self._stderr)
        spinner = "dots" if self.mark("ok") == "✓" else "line"
        with _unechoed(sys.stdin), console.status(waiting, spinner=spinner) as self._drawn:
            self._waiting = waiting
            try:
                yield waiting
            finally:
                self._drawn = None

    def progressed(self, text: str) -> None:
        """Show how far something is: beside the spinner, else as a line."""
        if self._drawn is not None and self._waiting is not None:
            self._waiting.note = text
        else:
            self.words(text)

    def console(self, stream: TextIO | None = None) -> Console:
        """Return rich's view of a stream; NO_COLOR, TERM and COLUMNS count."""
        from rich.console import Console

        return Console(file=stream or self._stdout, highlight=False, markup=False, emoji=False)

    def _print(self, text: str) -> None:
        print(text, file=self._stdout, flush=True)


@contextlib.contextmanager
def _unechoed(stdin: TextIO) -> Iterator[None]:
    """Keep the terminal from showing what is typed: the line of an Enter would part the drawing. It is still read."""
    descriptor = _terminal_of(stdin)
    if descriptor is None:
        yield
        return
    import termios

    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _terminal_of(stdin: TextIO) -> int | None:
    """Return the descriptor of a terminal that we may change: to do so from the background would stop us."""
    if sys.platform == "win32" or not stdin.isatty():
        return None
    descriptor = stdin.fileno()
    try:
        return descriptor if os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except OSError:  # not the terminal that stops those in its background
        return descriptor


def _encoded(value: object) -> bytes:
    """Write a value as JSON; a path that is not UTF-8 shows the escapes of its odd bytes."""
    import json

    import msgspec

    from dynamic_mcp.mcp import wire

    try:
        return wire.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def _style(cell: str) -> str:
    return {"connected": "green", "failed": "red", "needs a login": "yellow"}.get(cell, "")
