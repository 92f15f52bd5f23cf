"""Installing, uninstalling and undoing on the command line."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets as randomness
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from dynamic_mcp.cli.change_lock import changing_files
from dynamic_mcp.cli.import_flow import journal, machine_of, now
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.own_program import own_program
from dynamic_mcp.cli.respondent import asking
from dynamic_mcp.config.clients import client_of
from dynamic_mcp.config.needs import Needs, needs
from dynamic_mcp.config.read import names_in
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.importer import read
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.found import Machine, Scope
from dynamic_mcp.importer.install import Installation, installation, removal, target
from dynamic_mcp.importer.journal import Deed, Journal
from dynamic_mcp.importer.memory import Memories
from dynamic_mcp.importer.replacing import Replacing, Staying, replacing
from dynamic_mcp.importer.secrets import Hiding
from dynamic_mcp.importer.shapes import NAME
from dynamic_mcp.system import paths


def install(this: Invocation, tool: str, scope: str, project: str | None, *, replace: bool, dry_run: bool) -> int:
    """Put our entry into a tool's settings; return the exit code."""
    if scope == "all" and not replace:
        raise click.UsageError("--scope all says where servers are to be replaced, and goes with --replace")
    with changing_files():
        return _install(this, tool, scope, project, replace=replace, dry_run=dry_run)


def _install(this: Invocation, tool: str, scope: str, project: str | None, *, replace: bool, dry_run: bool) -> int:
    adapter, machine, config = read.tool_named(tool), machine_of(project), _existing(this.file().absolute())
    where = _scope(adapter, scope, machine)
    wanted = _replacing(adapter, scope, machine, config) if replace else None
    needed = _needs(this, config)
    program, remark = own_program()
    made = installation(
        adapter,
        where,
        machine,
        start=[*program, str(config)],
        needed=needed.names,
        replaced=wanted.replaced if wanted else None,
    )
    if dry_run:
        _show_diff(this, made)
    elif made.is_needed:
        deed = journal().do(f"install {adapter.name}", _about(adapter, where), now(), made.changes)
        _tell(this, adapter, made, deed)
    if not made.is_needed:
        this.out.words(f"`{made.file}` already has it")
    tell_limits(this.out, adapter, made, needed, remark)
    if wanted is not None:
        _tell_what_stays(this, adapter, wanted)
    if this.out.asked_for_json:
        this.out.json(_as_json(adapter, made, wanted))
    return 0


def uninstall(this: Invocation, tool: str, scope: str, project: str | None, *, dry_run: bool) -> int:
    """Take our entry out of a tool's settings; return the exit code."""
    with changing_files():
        return _told(this, _uninstalled(tool, scope, project, dry_run=dry_run))


def _uninstalled(tool: str, scope: str, project: str | None, *, dry_run: bool) -> list[str]:
    """Take our entry out, or only work out what that would do; return what is to be said."""
    adapter, machine = read.tool_named(tool), machine_of(project)
    _, file = target(adapter, Scope(scope), machine)
    known = journal()
    about = _about(adapter, Scope(scope))
    done = [deed for deed in known.deeds() if deed.about == about and not deed.is_undone and file in deed.files]
    if done:
        return [word for deed in done for word in (known.preview(deed) if dry_run else known.undo(deed))]
    made = removal(adapter, Scope(scope), machine)
    if not made.is_needed:
        raise DynamicMcpError(f"`{file}` has no entry `{NAME}`", hint="`dynamic-mcp undo --list` lists what was done")
    if dry_run:
        return [f"the entry `{NAME}` is to be taken out of `{file}`"]
    known.do(f"uninstall {adapter.name}", "", now(), made.changes)
    return [f"the entry `{NAME}` was removed from `{file}`"]


def undo(this: Invocation, ids: Sequence[str], *, yes: bool, dry_run: bool) -> int:
    """Take changes back, the latest only if that is confirmed; return the exit code."""
    known = journal()
    deeds = [known.deed(id) for id in ids or (None,)]
    if not (ids or yes or dry_run) and not _is_confirmed(this, deeds[0], known.preview(deeds[0])):
        return _told(this, ["nothing is undone"])
    if dry_run:
        return _told(
            this, [word for deed in deeds for word in (_titled("would be undone", deed), *known.preview(deed))]
        )
    with changing_files():
        # another command may have undone them since they were looked up
        return _told(this, [word for deed in deeds for word in _undone(known, known.deed(deed.id))])


def _undone(known: Journal, deed: Deed) -> list[str]:
    if deed.is_undone:
        return [f"{deed.id} ({deed.what}) is already undone"]
    return [_titled("undone", deed), *known.undo(deed)]


def _titled(verb: str, deed: Deed) -> str:
    return f"{verb}: {deed.what} ({deed.id}, {deed.when})"


def _is_confirmed(this: Invocation, deed: Deed, words: Iterable[str]) -> bool:
    """Name what would be undone, and ask. Raises UsageError where nobody can be asked."""
    for word in (f"the latest change is {deed.id}: {deed.what} ({deed.when})", *words):
        this.out.words(word)
    if not asking(
        this, is_asked=not this.out.asked_for_json and sys.stdin is not None and sys.stdin.isatty()
    ).is_terminal:
        raise click.UsageError(
            f"nothing is undone: `dynamic-mcp undo {deed.id}` or `--yes` does it without a question"
        )
    import questionary

    return questionary.confirm("Undo it?", default=False).ask() is True


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
        raise ConfigError(
            str(config), "", "does not exist", hint="`dynamic-mcp init` or `dynamic-mcp add` creates one"
        )
    return config


def _scope(adapter: Adapter, scope: str, machine: Machine) -> Scope:
    """Return the scope that the entry goes to: of all, the user's where the tool has any."""
    if scope != "all":
        return Scope(scope)
    for each in Scope:
        with contextlib.suppress(DynamicMcpError):
            target(adapter, each, machine)
            return each
    return Scope.USER


def _needs(this: Invocation, config: Path) -> Needs:
    """Return the variables that the config needs; none, with a word, where it is wrong."""
    try:
        names_in(config.read_text(encoding="utf-8-sig"), config)
        return needs(config, os.environ)
    except ConfigError as exc:
        this.out.words(f"warning: {exc.message}: the variables that it needs are not known")
        return Needs((), {})


def _replacing(adapter: Adapter, scope: str, machine: Machine, config: Path) -> Replacing:
    """Return which servers of a tool are to be replaced. Raises DynamicMcpError where the config has none of them."""
    memory = Memories(paths.state_dir() / "imports", randomness.token_hex(16)).load(config)
    names = set(names_in(config.read_text(encoding="utf-8-sig"), config))
    scopes = tuple(Scope) if scope == "all" else (Scope(scope),)
    found = replacing(adapter, scopes, machine, memory=memory, names=names)
    if found.replaced:
        return found
    others = sorted({each.source.scope.value for each in found.staying if each.is_imported})
    if others:
        raise DynamicMcpError(
            f"`{config}` has no server from {adapter.title}'s {scope} settings",
            hint=f"it has some of the scope {' and '.join(others)}: "
            + " or ".join(f"`--scope {each}`" for each in (*others, "all")),
        )
    raise DynamicMcpError(
        f"`{config}` has no server that was imported from {adapter.title}, and nothing there is replaced",
        hint=f"run `dynamic-mcp import {adapter.name} --scope {scope} -o {config}` first, or leave --replace out",
    )


def _about(adapter: Adapter, scope: Scope) -> str:
    return f"{adapter.name}/{scope.value}"


def _show_diff(this: Invocation, made: Installation) -> None:
    hiding = Hiding()
    for each in made.diffs:
        hiding.add_tree(each.servers)
    for each in made.diffs if not this.out.asked_for_json else ():
        name = str(each.file)
        for line in difflib.unified_diff(each.before.splitlines(), each.after.splitlines(), name, name, lineterm=""):
            this.out.text(hiding.hidden(line))


def _tell(this: Invocation, adapter: Adapter, made: Installation, deed: Deed) -> None:
    this.out.words(f"{adapter.title} now starts dynamic-mcp: `{made.file}`")
    for text, names in (
        ("disabled there", made.switched_off),
        ("removed there", made.taken_out),
        ("no longer there", made.missing),
        (f"variables that {adapter.title} is asked to pass on", made.asked_for),
    ):
        if names:
            this.out.words(f"{text}: {', '.join(names)}")
    others = [f"`{change.file}`" for change in made.changes if change.file != made.file]
    if others:
        this.out.words(f"changed as well: {', '.join(others)}")
    if made.remark:
        this.out.words(f"note: {made.remark}")
    this.out.words(f"restart {adapter.title}; `dynamic-mcp undo {deed.id}` reverts this")


def tell_limits(out: Output, adapter: Adapter, made: Installation, needed: Needs, remark: str) -> None:
    """Say what of a config will not work in this tool as it is."""
    client = client_of(adapter.name)
    if remark:
        out.words(f"warning: {remark}")
    if client is not None and made.withheld:
        out.words(
            f"warning: {adapter.title} {client.habit}, and its entry cannot ask for {', '.join(made.withheld)}: put"
            " what the config needs into a file that `settings.variables_file` names"
        )
    short = [name for name, unwanted in needed.wants_all.items() if not _held_back(adapter) <= unwanted]
    if client is not None and short and client.dropped == ("*",):
        more = "; name what they need in `inherit_env` and install again" if client.can_be_asked else ""
        out.words(
            f"warning: {adapter.title} {client.habit}; servers that want your whole environment (`inherit_env`)"
            f" get no more than that: {', '.join(short)}{more}"
        )


def _held_back(adapter: Adapter) -> frozenset[str]:
    """Return the globs of what a tool is known to keep to itself; what keeps all but a few names to itself, all."""
    if adapter.inherits is None or isinstance(adapter.inherits, str):
        return frozenset("*")
    return frozenset(each for each in adapter.inherits if each.startswith("!"))


def _tell_what_stays(this: Invocation, adapter: Adapter, wanted: Replacing) -> None:
    """Name the servers that go on beside our entry, and what would end them."""
    imported = [each for each in wanted.staying if each.is_imported and each.is_writable]
    others = [each for each in wanted.staying if not each.is_imported]
    fixed = [each for each in wanted.staying if each.is_imported and not each.is_writable]
    scopes = _scopes(imported)
    # each scope by itself: what another one shadows is left out of `--scope all`
    verb = "brings" if len(_scopes(others)) == 1 else "bring"
    imports = [f"`dynamic-mcp import {adapter.name} --scope {each}`" for each in _scopes(others)]
    for text, found, hint in (
        ("of other scopes", imported, f"`--scope {scopes[0] if len(scopes) == 1 else 'all'}` replaces them too"),
        ("not in the config", others, f"{' and '.join(imports)} {verb} them in"),
        ("in files that are not written", fixed, f"switch them off in {adapter.title}"),
    ):
        if found:
            named = ", ".join(f"{each.name} ({each.source.scope.value}, `{each.source.file}`)" for each in found)
            this.out.words(f"still on beside dynamic-mcp, {text}: {named}; {hint}")


def _scopes(found: Iterable[Staying]) -> list[str]:
    return sorted({each.source.scope.value for each in found})


def _as_json(adapter: Adapter, made: Installation, wanted: Replacing | None) -> dict[str, object]:
    staying = wanted.staying if wanted is not None else ()
    return {
        "tool": adapter.name,
        "file": str(made.file),
        "changed": made.is_needed,
        "switched_off": list(made.switched_off),
        "taken_out": list(made.taken_out),
        "variables": list(made.asked_for),
        "withheld": list(made.withheld),
        "still_on": [
            {"name": each.name, "scope": each.source.scope.value, "file": str(each.source.file)} for each in staying
        ],
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
