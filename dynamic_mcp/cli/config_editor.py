"""Changes of the config file by a command: one value, every other byte kept, and never to something that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dynamic_mcp.cli.change_lock import changing_files
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config import edit
from dynamic_mcp.config.keys import path
from dynamic_mcp.config.read import disabled, names_in
from dynamic_mcp.config.read import document as document_of
from dynamic_mcp.config.secrets import plain_secrets
from dynamic_mcp.errors import ConfigError, InvalidArguments, NotFound
from dynamic_mcp.importer import files
from dynamic_mcp.system import paths
from dynamic_mcp.system.own_command import command
from dynamic_mcp.system.whole_files import read_bytes

_EMPTY = '{\n  "mcpServers": {}\n}\n'


def add(this: Invocation, name: str, entry: Mapping[str, object], *, may_replace: bool) -> int:
    """Write a server into the config; returns the exit code."""
    with changing_files():
        return _add(this, this.file(may_be_new=True), name, entry, may_replace=may_replace)


def _add(this: Invocation, file: Path, name: str, entry: Mapping[str, object], *, may_replace: bool) -> int:
    before = _text(file) if file.exists() else None
    is_there = before is not None and name in names_in(before, file)
    if is_there and not may_replace:
        raise InvalidArguments(f"`{file}` already has a server `{name}`", hint="--replace overwrites it")
    _write(file, before, edit.put(before or _EMPTY, ("mcpServers", name), entry))
    _tell(this, file, name, "replaced in" if is_there else "added to", entry)
    for keys in plain_secrets({"mcpServers": {name: dict(entry)}}):
        this.out.words(f"warning: `{path(keys)}` looks like a secret in plain text; use `${{VARIABLE}}` instead")
    return 0


def remove(this: Invocation, name: str) -> int:
    """Take a server out of the config; returns the exit code."""
    file = this.file()
    with changing_files():
        before = _with(file, name)
        _write(file, before, edit.drop(before, ("mcpServers", name)))
    _tell(this, file, name, "removed from", None)
    return 0


def switch(this: Invocation, name: str, *, on: bool) -> int:
    """Switch a server on or off; returns the exit code."""
    file = this.file()
    with changing_files():
        before = _with(file, name)
        if (name not in disabled(file)) == on:
            this.out.words(f"`{name}` is already {'enabled' if on else 'disabled'} in `{file}`")
            return 0
        _write(file, before, edit.put(before, ("mcpServers", name, "enabled"), on))
    _tell(this, file, name, "enabled in" if on else "disabled in", None)
    return 0


def pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a mapping. Raises InvalidArguments."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidArguments(f"{option}: `{name}` is not NAME=VALUE")  # the rest may be a secret
        found[name] = value
    return found


def _with(file: Path, name: str) -> str:
    """Return the text of a config that has this server. Raises ConfigError and NotFound."""
    from dynamic_mcp.mcp.names import closest

    text = _text(file)
    names = names_in(text, file)
    if name not in names:
        listed = ", ".join(f"`{each}`" for each in names) or "none"
        raise NotFound("server", name, closest(name, names), hint=f"servers in `{file}`: {listed}")
    return text


def _text(file: Path) -> str:
    document_of(file)  # says what is wrong with a file that is none
    return read_bytes(file).decode()


def _write(file: Path, before: str | None, after: str) -> None:
    """Write a config that was this text before, or was not there. Raises ConfigError and FileError."""
    names_in(after, file)
    try:
        paths.make_private(file.parent)
    except OSError as exc:
        raise ConfigError(str(file), "", f"cannot be written: {(exc.strerror or str(exc)).lower()}") from exc
    expected = None if before is None else before.encode()
    files.write_bytes(file, after.encode(), expected=expected, is_private=before is None)


def _tell(this: Invocation, file: Path, name: str, done: str, entry: Mapping[str, object] | None) -> None:
    verb, _, place = done.partition(" ")
    this.out.words(f"{verb} `{name}` {place} `{file}`")
    if this.out.asked_for_json:
        this.out.json({"file": str(file), "server": name, "entry": entry})
    elif entry is not None:
        this.out.words(f"next: `{command('doctor', name)}` checks that it works")
