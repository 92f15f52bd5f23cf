"""The answers to the questions of an import: from a terminal, or from a pipe in the order of the questions.

No question is asked if stdin is not a terminal and provides no answer within a moment.
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
from dynamic_mcp.importer.convert.description import describe, with_description
from dynamic_mcp.importer.convert.merge import MergeChoice
from dynamic_mcp.importer.convert.plan import ImportItem, describe_difference
from dynamic_mcp.importer.model import Entry, ForeignServer, Reading

# Piped answers come at once; without any, stdin stays silent or is closed.
WAIT_S = 0.3
_LONGEST = 1 << 20
_FEATURES = ("tools", "resources", "prompts")


class Respondent:
    """Answers questions at a terminal, from a pipe, or not at all."""

    def __init__(self, out: Output, *, is_terminal: bool, answers: PipedAnswers | None) -> None:
        self._out = out
        self.is_terminal = is_terminal
        self.has_answers = answers is not None
        self._answers = answers

    def choose_files(self, readings: Sequence[Reading], *, is_all: bool) -> list[Reading]:
        """Ask which files to import; the answer may be none."""
        import questionary

        usable = [reading for reading in readings if reading.servers]
        if not usable:
            return list(readings)
        choices = [
            questionary.Choice(_format_choice(reading), value=number, checked=True)
            for number, reading in enumerate(usable)
        ]
        if is_all:
            is_confirmed = questionary.confirm(f"Import from {_format_count(len(usable))}?", default=True).ask()
            return list(readings) if is_confirmed else _require_answer(is_confirmed)
        chosen = questionary.checkbox("Import from", choices=choices).ask()
        return [usable[number] for number in chosen] if chosen is not None else _require_answer(None)

    def decide(self, item: ImportItem) -> MergeChoice:
        """Show how a server differs from the one in the config, and ask which one to take."""
        import questionary

        server = item.server
        self._out.say(f"`{item.name}` differs in {server.source.file}: {', '.join(item.fields)}")
        for line in describe_difference(item.before, item.proposal):
            self._out.say(f"  {line}")
        choices = [
            questionary.Choice("keep the one in the config", value=MergeChoice.KEEP),
            questionary.Choice(f"replace it by the one of {server.source.tool}", value=MergeChoice.REPLACE),
            questionary.Choice("add it under another name", value=MergeChoice.ADD),
        ]
        answer = questionary.select(f"{item.name}?", choices=choices).ask()
        if answer is None:
            raise KeyboardInterrupt
        return MergeChoice(answer)

    def describe_server(self, server: ForeignServer) -> Entry:
        """Ask for a description; with piped answers, for features, too."""
        if self._answers is None:
            import questionary

            text = questionary.text(f"What is `{server.name}` good for?", default=_default_description(server)).ask()
            if text is None:
                raise KeyboardInterrupt
            return {
                **with_description(server.name, server.entry, text),
                "description": text.strip() or _default_description(server),
            }
        text = self._answers.read_line(f"description for `{server.name}`")
        if not text.strip():
            raise DynamicMcpError(f"the answer for the description of `{server.name}` is empty")
        entry = {"description": text.strip()} | {k: v for k, v in server.entry.items() if k != "description"}
        features = self._ask_features(self._answers, server.name)
        return entry | ({"features": features} if features else {})

    def confirm_overwrite(self, output: Path) -> bool:
        """Read whether to overwrite the output; always True. Raises DynamicMcpError if the answer is not yes."""
        assert self._answers is not None
        if self._answers.read_line("overwrite").strip().lower() in ("y", "yes"):
            return True
        raise DynamicMcpError(f"`{output}` was not changed", hint="--force replaces it, --yes merges into it")

    def _ask_features(self, answers: PipedAnswers, name: str) -> dict[str, bool]:
        if answers.read_yes(f"all features of `{name}`", otherwise=False):
            return {}
        chosen = {feature: answers.read_yes(f"{feature} of `{name}`", otherwise=True) for feature in _FEATURES}
        return {feature: value for feature, value in chosen.items() if not value}


class PipedAnswers:
    """Answers from a pipe, one a line."""

    def __init__(self, first: str, rest: TextIO) -> None:
        self._first: str | None = first
        self._rest = rest

    def read_line(self, about: str) -> str:
        """Read the next answer. Raises DynamicMcpError if there is none."""
        line, self._first = (self._rest.readline(_LONGEST) if self._first is None else self._first), None
        if not line:
            raise DynamicMcpError(f"no answer left for the {about}", hint="--yes asks no questions")
        return line.rstrip("\r\n")

    def read_yes(self, about: str, *, otherwise: bool) -> bool:
        """Read the next answer and return whether it is yes; an empty one is."""
        answer = self.read_line(about).strip().lower()
        return answer in ("", "y", "yes") or (otherwise and answer not in ("n", "no"))


def find_respondent(context: Invocation, *, may_ask: bool) -> Respondent:
    """Return the respondent for the stdin of this process."""
    if not may_ask:
        return Respondent(context.out, is_terminal=False, answers=None)
    if sys.stdin is not None and sys.stdin.isatty():
        return Respondent(context.out, is_terminal=sys.stdout.isatty(), answers=None)
    first = _read_first_line()
    return Respondent(context.out, is_terminal=False, answers=PipedAnswers(first, sys.stdin) if first else None)


def _read_first_line() -> str:
    """Read the first line of stdin; return an empty string if none comes."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(sys.stdin.readline(_LONGEST)), daemon=True).start()
    try:
        return lines.get(timeout=WAIT_S)
    except queue.Empty:
        return ""


def _format_choice(reading: Reading) -> str:
    source = reading.source
    names = ", ".join(server.name for server in reading.servers)
    short = names if len(names) <= 60 else f"{names[:59]}…"
    return f"{source.tool} ({source.scope.value}): {short}"


def _format_count(files: int) -> str:
    return "this file" if files == 1 else f"these {files} files"


def _default_description(server: ForeignServer) -> str:
    description = server.entry.get("description")
    return description if isinstance(description, str) and description else describe(server.name, server.entry)


def _require_answer(answer: object) -> list[Reading]:
    if answer is None:
        raise KeyboardInterrupt
    return []
