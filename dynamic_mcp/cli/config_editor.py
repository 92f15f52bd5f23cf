"""Edits the config file: changes one value, keeps every other byte, and never writes an invalid config."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.machine import open_journal, timestamp
from dynamic_mcp.cli.package_examiner import examine_packages
from dynamic_mcp.cli.server_source import find_source
from dynamic_mcp.config import edit, jsonc
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.old_names import Renaming
from dynamic_mcp.config.read import list_disabled, parse, parse_server_names
from dynamic_mcp.config.read import read_document as document_of
from dynamic_mcp.config.secrets import plain_secrets
from dynamic_mcp.errors import ConfigError, InvalidArguments, NotFound
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.journal import FileChange
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.programs import advise_missing, find_program
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import os_reason

EMPTY = '{\n  "mcpServers": {}\n}\n'


def add_server(
    context: Invocation, name: str, entry: Mapping[str, object], *, may_replace: bool, pin: bool = False
) -> int:
    """Add a server to the config, with `pin` at the version of now; return the exit code."""
    file = context.config_path(may_be_new=True)
    _refuse_another(file, name, may_replace=may_replace)
    entry = examine_packages(context, {name: entry}, pin=pin)[name]
    with hold_change_lock():
        return _add(context, file, name, entry, may_replace=may_replace)


def _refuse_another(file: Path, name: str, *, may_replace: bool) -> tuple[str | None, bool]:
    """Return the text of a config, and whether it has this server. Raises InvalidArguments if it must not."""
    before = read_text(file) if file.exists() else None
    is_there = before is not None and name in parse_server_names(before, file)
    if is_there and not may_replace:
        raise InvalidArguments(f"`{file}` already has a server `{name}`", hint="--replace overwrites it")
    return before, is_there


def _add(context: Invocation, file: Path, name: str, entry: Mapping[str, object], *, may_replace: bool) -> int:
    before, is_there = _refuse_another(file, name, may_replace=may_replace)
    _write(file, before, edit.put(before or EMPTY, ("mcpServers", name), entry))
    record(context, file, "config.changed", {"command": "add", "replaced" if is_there else "added": [name]})
    _report(context, file, name, "replaced in" if is_there else "added to", entry)
    _warn_of_command(context, entry)
    for keys in plain_secrets({"mcpServers": {name: dict(entry)}}):
        context.out.say(
            f"warning: `{format_path(keys)}` looks like a secret in plain text; use `${{VARIABLE}}` instead"
        )
    return 0


def _warn_of_command(context: Invocation, entry: Mapping[str, object]) -> None:
    """Warn if a command does not exist, unless the entry decides where it is."""
    command, env = entry.get("command"), entry.get("env")
    is_settled = "cwd" in entry or (isinstance(env, Mapping) and "PATH" in env)
    if (
        isinstance(command, str)
        and "$" not in command
        and not is_settled
        and find_program(command, os.environ) is None
    ):
        context.out.say(
            f"warning: the command `{command}` was not found\nhint: {advise_missing(command, os.environ)}"
        )


def remove_server(context: Invocation, name: str) -> int:
    """Remove a server from the config; return the exit code."""
    file = context.config_path()
    with hold_change_lock():
        before = _read_with(file, name)
        document = document_of(file)
        servers = document.get("mcpServers") if isinstance(document, Mapping) else None
        entry = servers.get(name) if isinstance(servers, Mapping) else None
        _write(file, before, edit.drop(before, ("mcpServers", name)))
    record(context, file, "config.changed", {"command": "remove", "removed": [name]})
    _report(context, file, name, "removed from", None)
    if (source := find_source()) is not None and isinstance(entry, Mapping):
        source.forget(context, entry)
    return 0


def set_enabled(context: Invocation, name: str, *, enabled: bool) -> int:
    """Enable or disable a server; return the exit code."""
    file = context.config_path()
    with hold_change_lock():
        before = _read_with(file, name)
        if (name not in list_disabled(file)) == enabled:
            context.out.say(f"`{name}` is already {'enabled' if enabled else 'disabled'} in `{file}`")
            return 0
        _write(file, before, edit.put(before, ("mcpServers", name, "enabled"), enabled))
    verb = "enable" if enabled else "disable"
    record(context, file, "config.changed", {"command": verb, f"{verb}d": [name]})
    _report(context, file, name, f"{verb}d in", None)
    return 0


def rename_fields(context: Invocation) -> int:
    """Give the fields of the config that have old names their present ones; return the exit code."""
    file = context.config_path()
    with hold_change_lock():
        parse(file)  # raises a precise error if that is not enough
        before = read_bytes(file)
        text = file_reader.decode_with_mark(before)
        renaming = Renaming(jsonc.loads(text.removeprefix("\ufeff")))
        entry = None
        if renaming.renamed:
            after = file_reader.encode_like(renaming.rewrite(text), before)
            entry = open_journal().apply("check --fix", "", timestamp(), [FileChange(file, before, after)])
    if entry is None:
        context.out.say(f"no field of `{file}` has an old name; nothing was changed")
    else:
        record(context, file, "config.changed", {"command": "check", "renamed": [*map(str, renaming.renamed)]})
        for each in renaming.renamed:
            context.out.say(str(each))
        context.out.say(f"rewrote `{file}`; `dynamic-mcp undo {entry.id}` restores it")
    if context.out.is_json_requested:
        names = [{"old": format_path(each.old), "new": format_path(each.new)} for each in renaming.renamed]
        context.out.print_json({"file": str(file), "renamed": names, "undo": None if entry is None else entry.id})
    return 0


def parse_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """Parse NAME=VALUE arguments. Raises InvalidArguments."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidArguments(f"{option}: `{name}` is not NAME=VALUE")  # the rest may be a secret
        pairs[name] = value
    return pairs


def _read_with(file: Path, name: str) -> str:
    """Return the text of a config, which must have this server. Raises ConfigError and NotFound."""
    from dynamic_mcp.errors import closest

    text = read_text(file)
    names = parse_server_names(text, file)
    if name not in names:
        server_names = ", ".join(f"`{each}`" for each in names) or "none"
        raise NotFound("server", name, closest(name, names), hint=f"servers in `{file}`: {server_names}")
    return text


def read_text(file: Path) -> str:
    """Return the text of a config, with its byte order mark. Raises ConfigError."""
    document_of(file)  # raises a precise error
    return file_reader.decode_with_mark(read_bytes(file))


def _write(file: Path, before: str | None, after: str) -> None:
    """Write a config; `before` is its present text, or None for a new file. Raises ConfigError and FileError."""
    parse_server_names(after, file)
    try:
        paths.make_private_dir(file.parent)
    except OSError as exc:
        raise ConfigError(str(file), "", f"cannot be written: {os_reason(exc)}") from exc
    present = files.read_bytes_of(file, before)
    files.write_bytes(file, file_reader.encode_like(after, present), expected=present, is_private=before is None)


def _report(context: Invocation, file: Path, name: str, done: str, entry: Mapping[str, object] | None) -> None:
    verb, _, place = done.partition(" ")
    context.out.say(f"{verb} `{name}` {place} `{file}`")
    if context.out.is_json_requested:
        context.out.print_json({"file": str(file), "server": name, "entry": entry})
    elif entry is not None:
        context.out.say(f"next: `{format_command('doctor', name)}` checks that it works")
