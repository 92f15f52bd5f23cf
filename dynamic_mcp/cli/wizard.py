"""`init`: one config from what is on this machine, and one entry in each AI tool. It asks first, then acts once."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dynamic_mcp.cli import first_setup, import_view
from dynamic_mcp.cli.change_lock import changing_files
from dynamic_mcp.cli.first_setup import FoundTool, Setup
from dynamic_mcp.cli.import_flow import machine_of
from dynamic_mcp.cli.invocation import Invocation, invocation
from dynamic_mcp.cli.main import run
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.server_check import Trial, tried
from dynamic_mcp.errors import ConfigError, InvalidArguments


class Answers(Protocol):
    """Whoever decides: a person at a terminal, or the defaults."""

    def tools(self, found: Sequence[FoundTool]) -> list[FoundTool]:
        """Choose the tools to set up."""

    def leaves_out(self, broken: Sequence[str]) -> bool:
        """Decide whether servers that do not start stay out of the config."""

    def replaces(self, titles: str) -> bool:
        """Decide whether the tools' own entries of what is imported are taken out."""

    def goes_ahead(self) -> bool:
        """Decide whether what was shown is done."""


class _Defaults:
    """The answers of somebody who presses Enter each time."""

    def tools(self, found: Sequence[FoundTool]) -> list[FoundTool]:
        return list(found)

    def leaves_out(self, broken: Sequence[str]) -> bool:
        return True

    def replaces(self, titles: str) -> bool:
        return True

    def goes_ahead(self) -> bool:
        return True


class _Person:
    """The answers of the person at the terminal. Raises KeyboardInterrupt on Ctrl-C."""

    def tools(self, found: Sequence[FoundTool]) -> list[FoundTool]:
        import questionary

        choices = [questionary.Choice(str(tool), value=number, checked=True) for number, tool in enumerate(found)]
        question = "Set up dynamic-mcp for (space toggles, enter continues):"
        asked = questionary.checkbox(question, choices=choices, instruction=" ")  # its own does not fit in a line
        return [found[number] for number in asked.unsafe_ask()]

    def leaves_out(self, broken: Sequence[str]) -> bool:
        count = "the server that does" if len(broken) == 1 else f"the {len(broken)} servers that do"
        return _confirmed(f"Leave out {count} not start ({', '.join(broken)})?")

    def replaces(self, titles: str) -> bool:
        return _confirmed(f"Take the imported servers out of {titles}, so that each runs only once?")

    def goes_ahead(self) -> bool:
        return _confirmed("Go ahead?")


def begin(this: Invocation, *, yes: bool) -> int:
    """Set up a config and the tools; returns the exit code. Raises InvalidArguments where nobody can be asked."""
    if not yes and not (sys.stdin.isatty() and this.out.is_terminal):
        raise InvalidArguments(
            "`init` asks questions, and there is no terminal to answer on",
            hint="`dynamic-mcp init --yes` takes the default answers",
        )
    file, answers = this.file(may_be_new=True), _Defaults() if yes else _Person()
    found = first_setup.found_tools(machine_of(None))
    if not found:
        this.out.words("No settings of an AI tool were found on this machine.")
        return _by_hand(this, file, is_asked=not yes)
    chosen = answers.tools(found)
    if not chosen:
        this.out.words("Nothing was chosen, so nothing is changed.")
        return 0
    planned = first_setup.planned(file, chosen)
    if not (planned.plan.servers or file.exists()):
        this.out.words("These AI tools have no servers yet.")
        return _by_hand(this, file, is_asked=not yes)
    setup = _decided(this.out, planned, answers)
    if not setup.is_anything:
        this.out.words("Everything is set up already; nothing is changed.")
        return 0
    _show(this.out, setup)
    if not answers.goes_ahead():
        this.out.words("Nothing is changed.")
        return 0
    with changing_files():
        done = first_setup.carried_out(setup, this.out)
    _tell(this.out, setup, done)
    return 0


def offer() -> int | None:
    """Offer the setup to a person who has no config yet; return its exit code, None where it is not taken."""
    this = invocation(None, quiet=False, verbose=0, as_json=False)
    try:
        this.file()
    except ConfigError:
        this.out.words("There is no config yet.")
        return begin(this, yes=False) if _confirmed("Set up dynamic-mcp for the AI tools on this machine?") else None
    return None


def _decided(out: Output, setup: Setup, answers: Answers) -> Setup:
    """Try the servers, and settle what is left out and what is replaced."""
    trials = tried(out, setup.new_servers, setup.file, {**os.environ, **setup.plan.variables})
    _show_trials(out, setup, trials)
    broken = [name for name, trial in trials.items() if trial.is_broken]
    if broken and answers.leaves_out(broken):
        setup = setup.without(broken)
    titles = _listed([tool.adapter.title for tool in setup.tools_with_servers])
    if not titles:
        return setup
    if answers.replaces(titles):
        return setup.replacing()
    out.words(f"Then {titles} will show every tool twice, and run every server twice.", "yellow")
    return setup


def _show_trials(out: Output, setup: Setup, trials: Mapping[str, Trial]) -> None:
    marks = {(True, False): "ok", (False, True): "error", (False, False): "warning"}
    styles = {"ok": "green", "error": "red", "warning": "yellow"}
    for name, trial in trials.items():
        mark = marks[trial.is_ok, trial.is_broken]
        out.words(f"{out.mark(mark)} {name} ({setup.origin(name)}): {trial.said}", styles[mark])


def _show(out: Output, setup: Setup) -> None:
    """Show once everything that is going to happen."""
    import_view.show_warnings(out, setup.plan)
    for line in setup.steps():
        out.words(f"  {line}")
    for name, servers in setup.plan.exports.items():
        out.words(f"  set the variable {name} yourself, for {_listed(servers)}", "yellow")


def _tell(out: Output, setup: Setup, done: Sequence[str]) -> None:
    titles = _listed([tool.adapter.title for tool in setup.tools])
    out.words(f"Done. Next: restart {titles}; `dynamic-mcp status` shows each of them once it connects.")
    if done:
        out.words(f"To revert: `dynamic-mcp undo {' '.join(reversed(done))}`")


def _by_hand(this: Invocation, file: Path, *, is_asked: bool) -> int:
    """Add servers one by one where there are none to import."""
    while is_asked and _confirmed("Add a server by hand?", default=not file.exists()):
        _add(file)
    if not file.exists():
        this.out.words("There is no config yet. `dynamic-mcp add` makes one; `dynamic-mcp init` starts again.")
        return 0
    this.out.words(f"The config is {file}. Next: `dynamic-mcp install TOOL` connects your AI tool.")
    return 0


def _add(file: Path) -> None:
    import questionary

    name = questionary.text("Its name:", validate=lambda text: bool(text.strip())).unsafe_ask().strip()
    what = questionary.text("Its command with arguments, or its URL:", validate=_is_start).unsafe_ask().strip()
    description = questionary.text("What it is good for, in one line (may be empty):").unsafe_ask().strip()
    start = ["--url", what] if "://" in what else ["--", *shlex.split(what)]
    run(["add", name, "--config", str(file), *(["--description", description] if description else []), *start])


def _is_start(text: str) -> bool | str:
    try:
        return bool(shlex.split(text))
    except ValueError as exc:
        return f"cannot be read: {exc}"


def _confirmed(question: str, *, default: bool = True) -> bool:
    import questionary

    return questionary.confirm(question, default=default).unsafe_ask() is True


def _listed(names: Collection[str]) -> str:
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
