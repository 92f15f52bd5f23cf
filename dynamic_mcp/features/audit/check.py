"""Checks of the audit log: whether it can be written and is private, how its last day ends, and its seal key."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level, config_error, warning
from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.system import acl, paths
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import os_reason

_WHERE = "settings.audit"
_LITTLE_BYTES = 200 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the audit log of a config."""
    return check_audit(config.settings_of("audit", Audit), paths.state_dir())


def check_audit(audit: Audit | None, state_dir: Path) -> Iterator[Finding]:
    """Return the findings about the audit log of a config; nothing is written, and only its end is read."""
    if audit is None:
        return
    directory = audit.path or state_dir / "audit"
    problems = [*_check_directory(directory), *_check_seal_key(audit.seal_key)]
    if audit.arguments == "full":
        what = "arguments are recorded as they are, with the secrets in them"
        problems.append(warning(f"{_WHERE}.arguments", what, "`redacted` masks what looks like a secret"))
    yield from problems
    if not any(each.level is Level.ERROR for each in problems):
        yield Finding(Level.OK, _WHERE, f"written to {directory}, kept {audit.keep_s / 86_400:g} days")


# --- the directory ---------------------------------------------------------------------------------------


def _check_directory(directory: Path) -> Iterator[Finding]:
    try:
        status = directory.stat()
    except FileNotFoundError:
        yield from _check_future(directory)
        return
    except OSError as exc:
        yield _error(f"the log cannot be written: {os_reason(exc)}: {directory}")
        return
    if not stat.S_ISDIR(status.st_mode):
        yield _error(f"the log cannot be written: {directory} is not a directory", "give another `path`")
        return
    yield from _check_owner(directory, status)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield _error(f"the log cannot be written: {directory} may not be changed by you")
        return
    yield from _check_room(directory)
    yield from _check_end(directory)


def _check_future(directory: Path) -> Iterator[Finding]:
    """Check whether a missing directory can be created."""
    there = next((each for each in directory.absolute().parents if each.exists()), None)
    if there is None or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield _error(f"the log cannot be written: {directory} cannot be created", "give another `path`")
    else:
        yield from _check_room(there)


def _check_owner(directory: Path, status: os.stat_result) -> Iterator[Finding]:
    """Check who else may read or change the log."""
    if sys.platform == "win32":
        yield from _check_acl(directory)
    else:
        if status.st_uid != os.getuid():
            problem = f"{directory} belongs to user {status.st_uid}, who can change the log"
            yield _error(problem, "give another `path`")
        elif status.st_mode & _OTHERS:
            what = f"{directory} is open to other users ({stat.filemode(status.st_mode)})"
            yield warning(_WHERE, what, f"`chmod 700 {quote(directory)}`")


def _check_acl(directory: Path) -> Iterator[Finding]:
    if not acl.are_kept(directory):
        yield _error(f"the file system of {directory} lets everyone change the log", "give a `path` on NTFS")
        return
    try:
        others = acl.find_others(directory)
    except OSError as exc:
        yield _error(f"the log cannot be written: {os_reason(exc)}: {directory}")
        return
    if others.owner:
        yield _error(f"{directory} belongs to {others.owner}, who can change the log", "give another `path`")
    elif others:
        what = f"{directory} is open to {', '.join(others.names)}"
        yield warning(_WHERE, what, f"`{acl.private_command(directory)}`")


def _check_room(directory: Path) -> Iterator[Finding]:
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return
    if free < _LITTLE_BYTES:
        what = f"the disk of {directory} has only {free >> 20} MiB left"
        yield warning(_WHERE, what, "free some, or keep days for a shorter time with `keep`")


def _check_end(directory: Path) -> Iterator[Finding]:
    """Check how the last day of the log ends; the whole chain is for `audit verify`."""
    try:
        day_names = days.list_days(directory)
        if not day_names:
            return
        file = days.file_of(directory, day_names[-1])
        tail = days.read_tail(file)
    except OSError as exc:
        yield _error(f"the log cannot be read: {os_reason(exc)}: {directory}")
        return
    if tail.damaged or tail.torn:
        what = f"{file.name} ends with a damaged line: it was changed, or the machine went down"
        yield warning(_WHERE, what, "`dynamic-mcp audit verify` shows where; the next line of the log records it too")


# --- seals -----------------------------------------------------------------------------------------------


def _check_seal_key(path: Path | None) -> Iterator[Finding]:
    if path is None:
        return
    from dynamic_mcp.features.audit.signing import load_signing_key

    where = f"{_WHERE}.seal_key"
    hint = f"`openssl genpkey -algorithm ed25519 -out {quote(path)}` creates one"
    try:
        load_signing_key(path)
        mode = path.stat().st_mode
        others = acl.find_others(path)
    except OSError as exc:
        yield config_error(where, f"days are not sealed: {path}: {os_reason(exc)}", hint)
    except ValueError as exc:
        yield config_error(where, f"days are not sealed: {path}: {os_reason(exc)}", hint)
    else:
        if others:
            what = f"the key can be used by {', '.join(others.names)}"
            yield warning(where, what, f"`{acl.private_command(path)}`")
        elif sys.platform != "win32" and mode & _OTHERS:
            what = f"other users can read the key ({stat.filemode(mode)})"
            yield warning(where, what, f"`chmod 600 {quote(path)}`")


def _error(what: str, hint: str = "") -> Finding:
    return config_error(_WHERE, what, hint)
