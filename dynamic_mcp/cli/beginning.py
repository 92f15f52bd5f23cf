"""The guided first config: questions, and for each answer the command that does it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from dynamic_mcp.cli.changing import file_to_be
from dynamic_mcp.cli.importing import machine_of
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.main import run
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.importer import locations
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.found import Scope
from dynamic_mcp.importer.known import TOOLS
from dynamic_mcp.own_command import command


def begin(this: Invocation) -> int:
    """Ask and do, until there is a config; returns the exit code. Raises InvalidArguments without a terminal."""
    if not (sys.stdin.isatty() and this.out.is_terminal):
        hint = "`dynamic-mcp import`, `add` and `install` do the same without questions"
        raise InvalidArguments("init asks questions, and there is no terminal to answer on", hint=hint)
    import questionary

    file = file_to_be(this)
    this.out.words(f"The config is {file}; it {'is changed' if file.exists() else 'is made'} as you answer.")
    tools = _found()
    if tools:
        names = ", ".join(tool.title for tool in tools)
        if questionary.confirm(f"Import the servers of {names}?", default=True).unsafe_ask():
            run(["import", "--output", str(file), *(tool.name for tool in tools)])
    while questionary.confirm("Add a server by hand?", default=not file.exists()).unsafe_ask():
        _add(file)
    if not file.exists():
        this.out.words("No server was added, so there is no config yet; `dynamic-mcp init` begins again.")
        return 0
    if questionary.confirm("Connect to every server to see whether it works?", default=True).unsafe_ask():
        run(["doctor", "--config", str(file)])
    _install(file, tools)
    this.out.words(f"Done. `{command('tools', '-c', file)}` shows what there is to call.")
    return 0


def _found() -> list[Adapter]:
    """Return the tools that have settings on this machine."""
    machine = machine_of(None)
    return [tool for tool in TOOLS if locations.files(tool, machine, list(Scope))]


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


def _install(file: Path, tools: list[Adapter]) -> None:
    import questionary

    if not tools:
        return
    choices = [questionary.Choice(tool.title, value=tool.name) for tool in tools]
    question = "Put dynamic-mcp into (space chooses, enter goes on)"
    for name in questionary.checkbox(question, choices=choices).unsafe_ask():
        run(["install", name, "--config", str(file)])
