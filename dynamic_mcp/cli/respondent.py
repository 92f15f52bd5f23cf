"""A person's answers: chosen on a terminal, or piped in, in the order in which the compiled program asks.

Nobody is asked who cannot answer: stdin is no terminal, and nothing comes from it within a moment.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.describe import describe, described
from dynamic_mcp.importer.found import Found, Reading
from dynamic_mcp.importer.merge import Conflict, Entry
from dynamic_mcp.importer.plan import Choice

# Piped answers come at once; whoever gives none leaves stdin open, or closes it.
WAIT_S = 0.3
_LONGEST = 1 << 20
_FEATURES = ("tools", "resources", "prompts")


class Asking:
    """Whom to ask: a terminal, a pipe with answers, or nobody."""

    def __init__(self, out: Output, *, is_terminal: bool, answers: Answers | None) -> None:
        self._out = out
        self.is_terminal = is_terminal
        self.has_answers = answers is not None
        self._answers = answers

    def which(self, readings: Sequence[Reading], *, is_all: bool) -> list[Reading]:
        """Ask which files to import; nothing is an answer."""
        import questionary

        usable = [reading for reading in readings if reading.servers]
        if not usable:
            return list(readings)
        choices = [
            questionary.Choice(_title(reading), value=number, checked=True) for number, reading in enumerate(usable)
        ]
        if is_all:
            wanted = questionary.confirm(f"Import from {_these(len(usable))}?", default=True).ask()
            return list(readings) if wanted else _refused(wanted)
        chosen = questionary.checkbox("Import from", choices=choices).ask()
        return [usable[number] for number in chosen] if chosen is not None else _refused(None)

    def whose(self, conflict: Conflict) -> Choice:
        """Ask whose side of a conflict to take."""
        import questionary

        fields = ", ".join(conflict.fields)
        self._out.words(f"`{conflict.name}` changed both here and in {conflict.found.source.file}: {fields}")
        choices = [
            questionary.Choice("keep what is here", value=Choice.KEEP),
            questionary.Choice(f"take what {conflict.found.source.tool} has", value=Choice.REPLACE),
            questionary.Choice("keep both, under two names", value=Choice.RENAME),
        ]
        answer = questionary.select(f"{conflict.name}?", choices=choices).ask()
        if answer is None:
            raise KeyboardInterrupt
        return Choice(answer)

    def about(self, found: Found) -> Entry:
        """Ask for a description, and for features where answers are piped in."""
        if self._answers is None:
            import questionary

            text = questionary.text(f"What is `{found.name}` good for?", default=_given(found)).ask()
            if text is None:
                raise KeyboardInterrupt
            return {**described(found.name, found.entry, text), "description": text.strip() or _given(found)}
        text = self._answers.line(f"description for `{found.name}`")
        if not text.strip():
            raise DynamicMcpError(f"the answer for the description of `{found.name}` is empty")
        entry = {"description": text.strip()} | {k: v for k, v in found.entry.items() if k != "description"}
        features = self._features(self._answers, found.name)
        return entry | ({"features": features} if features else {})

    def may_overwrite(self, output: Path) -> bool:
        """Take the first answer for that to the question whether the output may be overwritten."""
        assert self._answers is not None
        if self._answers.line("overwrite").strip().lower() in ("y", "yes"):
            return True
        raise DynamicMcpError(f"`{output}` stays as it is", hint="--force replaces it, --yes merges into it")

    def _features(self, answers: Answers, name: str) -> dict[str, bool]:
        if answers.is_yes(f"all features of `{name}`", otherwise=False):
            return {}
        chosen = {feature: answers.is_yes(f"{feature} of `{name}`", otherwise=True) for feature in _FEATURES}
        return {feature: value for feature, value in chosen.items() if not value}


class Answers:
    """Lines that are piped in."""

    def __init__(self, first: str, rest: TextIO) -> None:
        self._first: str | None = first
        self._rest = rest

    def line(self, about: str) -> str:
        """Return the next answer. Raises DynamicMcpError where there is none."""
        line, self._first = (self._rest.readline(_LONGEST) if self._first is None else self._first), None
        if not line:
            raise DynamicMcpError(f"no answer left for the {about}", hint="--yes asks nothing")
        return line.rstrip("\r\n")

    def is_yes(self, about: str, *, otherwise: bool) -> bool:
        """Tell whether an answer is yes; an empty one is."""
        answer = self.line(about).strip().lower()
        return answer in ("", "y", "yes") or (otherwise and answer not in ("n", "no"))


def asking(this: Invocation, *, is_asked: bool) -> Asking:
    """Find out whom to ask."""
    if not is_asked:
        return Asking(this.out, is_terminal=False, answers=None)
    if sys.stdin is not None and sys.stdin.isatty():
        return Asking(this.out, is_terminal=sys.stdout.isatty(), answers=None)
    first = _first_line()
    return Asking(this.out, is_terminal=False, answers=Answers(first, sys.stdin) if first else None)


def _first_line() -> str:
    """Return the first line of stdin, an empty text where none comes."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(sys.stdin.readline(_LONGEST)), daemon=True).start()
    try:
        return lines.get(timeout=WAIT_S)
    except queue.Empty:
        return ""


def _title(reading: Reading) -> str:
    source = reading.source
    names = ", ".join(found.name for found in reading.servers)
    short = names if len(names) <= 60 else f"{names[:59]}…"
    return f"{source.tool} ({source.scope.value}): {short}"


def _these(files: int) -> str:
    return "this file" if files == 1 else f"these {files} files"


def _given(found: Found) -> str:
    own = found.entry.get("description")
    return own if isinstance(own, str) and own else describe(found.name, found.entry)


def _refused(answer: object) -> list[Reading]:
    if answer is None:
        raise KeyboardInterrupt
    return []
