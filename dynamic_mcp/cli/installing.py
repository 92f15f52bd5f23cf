"""Installing, uninstalling and undoing on the command line."""

from __future__ import annotations

import difflib
import secrets as randomness
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from dynamic_mcp import paths
from dynamic_mcp.cli.importing import journal, machine_of, now
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.importer import read
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.found import Machine, Scope
from dynamic_mcp.importer.install import Installation, installation, removal, target
from dynamic_mcp.importer.journal import Deed
from dynamic_mcp.importer.memory import Memories
from dynamic_mcp.importer.secrets import Hiding
from dynamic_mcp.importer.shapes import NAME, is_in_a_terminal


def install(this: Invocation, tool: str, scope: str, project: str | None, *, replace: bool, dry_run: bool) -> int:
    """Put our entry into a tool's settings; return the exit code."""
    adapter, machine, config = read.tool_named(tool), machine_of(project), _existing(this.file().absolute())
    imported = _imported(adapter, Scope(scope), machine, config) if replace else ()
    made = installation(adapter, Scope(scope), machine, start=[*_program(adapter), str(config)], replaced=imported)
    if dry_run:
        _show_diff(this, made)
    elif made.is_needed:
        deed = journal().do(f"install {adapter.name}", _about(adapter, scope), now(), [made.change])
        _tell(this, adapter, made, deed)
    else:
        this.out.words(f"`{made.file}` has it already")
    if this.out.asked_for_json:
        this.out.json(_as_json(adapter, made))
    return 0


def uninstall(this: Invocation, tool: str, scope: str, project: str | None) -> int:
    """Take our entry out of a tool's settings; return the exit code."""
    adapter, machine = read.tool_named(tool), machine_of(project)
    _, file = target(adapter, Scope(scope), machine)
    known = journal()
    about = _about(adapter, scope)
    done = [deed for deed in known.deeds() if deed.about == about and not deed.is_undone and file in deed.files]
    if done:
        words = [word for deed in done for word in known.undo(deed)]
    else:
        made = removal(adapter, Scope(scope), machine)
        if not made.is_needed:
            raise DynamicMcpError(
                f"`{file}` has no entry `{NAME}`", hint="`dynamic-mcp undo --list` shows what was done"
            )
        known.do(f"uninstall {adapter.name}", "", now(), [made.change])
        words = [f"the entry `{NAME}` is out of `{file}`"]
    return _told(this, words)


def undo(this: Invocation, id: str | None) -> int:
    """Take a change back; return the exit code."""
    known = journal()
    deed = known.deed(id)
    if deed.is_undone:
        this.out.words(f"{deed.id} ({deed.what}) is undone already")
        return 0
    return _told(this, [f"undone: {deed.what} ({deed.id}, {deed.when})", *known.undo(deed)])


def show_deeds(this: Invocation) -> int:
    """Show what was done; return the exit code."""
    deeds = journal().deeds()
    if this.out.is_json:
        this.out.json([_deed(deed) for deed in deeds])
        return 0
    rows = [
        [deed.id, deed.when, deed.what, "undone" if deed.is_undone else "", ", ".join(map(str, deed.files))]
        for deed in deeds
    ]
    this.out.table(["ID", "WHEN", "WHAT", "STATE", "FILES"], rows)
    return 0


def _existing(config: Path) -> Path:
    """Return the config if it is there: a tool that starts without one shows no reason. Raises ConfigError."""
    if not config.is_file():
        raise ConfigError(str(config), "", "does not exist", hint="`dynamic-mcp init` or `dynamic-mcp add` makes one")
    return config


def _imported(adapter: Adapter, scope: Scope, machine: Machine, config: Path) -> list[str]:
    """Return the names in a tool's file of the servers that the config has from there."""
    from dynamic_mcp.config.read import names_in

    _, file = target(adapter, scope, machine)
    memory = Memories(paths.state_dir() / "imports", randomness.token_hex(16)).load(config)
    names = set(names_in(config.read_text(encoding="utf-8-sig"), config))
    found = [
        key[3]
        for key, record in memory.records.items()
        if key[:2] == (adapter.name, scope.value) and Path(key[2]) == file and record.name in names
    ]
    if not found:
        raise DynamicMcpError(
            f"`{config}` has no server that was imported from `{file}`",
            hint=f"run `dynamic-mcp import {adapter.name} --scope {scope.value} -o {config}` first",
        )
    return found


def _program(adapter: Adapter) -> list[str]:
    """Return how the tool is to start us: by our full path where its PATH may be another than the shell's."""
    there = shutil.which(NAME)
    if is_in_a_terminal(adapter) and there is not None:
        return [NAME]
    called = Path(sys.argv[0]).absolute()
    if called.stem == NAME and called.is_file():
        return [str(called)]
    return [there] if there is not None else [sys.executable, "-m", "dynamic_mcp"]


def _about(adapter: Adapter, scope: str) -> str:
    return f"{adapter.name}/{scope}"


def _show_diff(this: Invocation, made: Installation) -> None:
    hiding = Hiding()
    hiding.add_tree(made.servers)
    name = str(made.file)
    lines = difflib.unified_diff(made.before.splitlines(), made.after.splitlines(), name, name, lineterm="")
    if not made.is_needed:
        this.out.words(f"`{made.file}` has it already")
    for line in lines if not this.out.asked_for_json else ():
        this.out.text(hiding.hidden(line))


def _tell(this: Invocation, adapter: Adapter, made: Installation, deed: Deed) -> None:
    this.out.words(f"{adapter.title} starts dynamic-mcp now: `{made.file}`")
    for text, names in (
        ("switched off there", made.switched_off),
        ("taken out there", made.taken_out),
        ("not found there any more", made.missing),
    ):
        if names:
            this.out.words(f"{text}: {', '.join(names)}")
    this.out.words(f"start {adapter.title} anew; `dynamic-mcp undo {deed.id}` takes it back")


def _as_json(adapter: Adapter, made: Installation) -> dict[str, object]:
    return {
        "tool": adapter.name,
        "file": str(made.file),
        "changed": made.is_needed,
        "switched_off": list(made.switched_off),
        "taken_out": list(made.taken_out),
    }


def _deed(deed: Deed) -> dict[str, object]:
    return {
        "id": deed.id,
        "when": deed.when,
        "what": deed.what,
        "undone": deed.is_undone,
        "files": [str(file) for file in deed.files],
    }


def _told(this: Invocation, words: Iterable[str]) -> int:
    for word in words:
        this.out.words(word)
    if this.out.asked_for_json:
        this.out.json({"done": list(words)})
    return 0
