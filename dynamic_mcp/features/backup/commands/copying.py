"""`dynamic-mcp backup`: which files, into which file, and what it says about what is not in it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.location import config_key, identify
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError, DynamicMcpError, InvalidArguments
from dynamic_mcp.features.backup import inventory
from dynamic_mcp.features.backup.archive import can_hold, new_head, write_archive
from dynamic_mcp.features.backup.commands.passphrase import find_passphrase
from dynamic_mcp.features.backup.inventory import KeptFile, StateLocation
from dynamic_mcp.features.backup.snapshot import Snapshot, take_snapshot
from dynamic_mcp.observe.proxies import ProxyRegistry, RunningProxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line, pluralize


class Taken(Struct, frozen=True):
    """What a backup has, as JSON: the number of files by their folders, and what is not in it."""

    file: str
    files: int
    bytes: int
    folders: dict[str, int]
    encrypted: bool
    not_included: list[str]


def back_up(
    context: Invocation, file: str, *, passphrase_file: str | None, has_secrets: bool, overwrites: bool, is_dry: bool
) -> int:
    """Write a backup, and say what is in it; return the exit code. Raises DynamicMcpError and OSError."""
    config, note = read_config(context)
    places = inventory.find_places(paths.state_dir(), config)
    found = [each for place in places for each in inventory.list_kept(place) if has_secrets or not each.is_secret]
    kept = [each for each in found if can_hold(each.name)]
    if not kept:
        raise DynamicMcpError(f"there is nothing to back up: `{paths.state_dir()}` has no state")
    odd = (
        f"`{one_line(str(each.path))}`, since not every system can have its name"
        for each in found
        if not can_hold(each.name)
    )
    missing = [*filter(None, [note]), *odd, *_find_missing(config, kept, has_secrets=has_secrets)]
    if is_dry:
        _report(context, Taken("", len(kept), _count_bytes(kept), count_folders(kept), has_secrets, missing))
        return 0
    target = None if file == "-" else _check_target(Path(file), places, overwrites=overwrites)
    passphrase = find_passphrase(context, passphrase_file, is_new=True) if has_secrets else None
    head = new_head(
        machine=socket.gethostname(),
        configs=_list_configs(config, proxy_registry().list_proxies()),
        has_secrets=has_secrets,
        now=time.time(),
    )
    with hold_change_lock(), _open_target(target) as opened, context.out.progress("copying"):
        count = write_archive(opened, head, _take_snapshots(kept), passphrase)
        size = opened.tell() if target is not None else 0
    _report(context, Taken(file, count, size, count_folders(kept), has_secrets, missing), is_piped=target is None)
    return 0


def read_config(context: Invocation) -> tuple[Config | None, str]:
    """Return the config, if there is one, and a note if it is invalid. Raises ConfigError for one that is named."""
    try:
        return context.read_config(), ""
    except ConfigError as exc:
        if context.config_option is not None:
            raise
        with contextlib.suppress(ConfigError):
            return None, f"what `{context.config_path()}` keeps elsewhere, since it cannot be read: {exc.message}"
        return None, ""


def proxy_registry() -> ProxyRegistry:
    """Return the list of what serves from this state."""
    return ProxyRegistry(paths.state_dir() / "running")


def count_folders(files: Sequence[KeptFile]) -> dict[str, int]:
    """Return how many files each folder of an archive has."""
    return dict(Counter(folder_of(each.name) for each in files))


def folder_of(name: str) -> str:
    """Return what a file of an archive belongs to, such as `logins` or `audit`."""
    return name.split("/")[1]


def _take_snapshots(files: Sequence[KeptFile]) -> Iterator[Snapshot]:
    for each in files:
        if (snapshot := take_snapshot(each)) is not None:
            yield snapshot


def _count_bytes(files: Sequence[KeptFile]) -> int:
    total = 0
    for each in files:
        with contextlib.suppress(OSError):
            total += each.path.stat().st_size
    return total


def _check_target(file: Path, places: Sequence[StateLocation], *, overwrites: bool) -> Path:
    """Return the file to write. Raises InvalidArguments and DynamicMcpError."""
    file = Path(os.path.realpath(file.absolute().parent)) / file.name
    for place in places:
        if file.is_relative_to(os.path.realpath(place.path)):
            raise InvalidArguments(
                f"`{file}` is in a directory that is backed up", hint="write it to another directory or machine"
            )
    if file.exists() and not file.is_file():
        raise InvalidArguments(f"`{file}` is a directory or a device", hint="name a file, or `-` for stdout")
    if os.path.lexists(file) and not overwrites:
        raise InvalidArguments(f"`{file}` exists", hint="--overwrite replaces it")
    return file


@contextlib.contextmanager
def _open_target(file: Path | None) -> Iterator[BinaryIO]:
    """Open a private file that gets its name once it is whole, or stdout. Raises OSError and InvalidArguments."""
    if file is None:
        if sys.stdout.isatty():
            raise InvalidArguments("a backup is not for a terminal", hint="name a file, or redirect the output")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    written = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            paths.make_private(written)
            yield opened
            opened.flush()
            os.fsync(descriptor)
        written.replace(file)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _list_configs(config: Config | None, proxies: Sequence[RunningProxy]) -> list[str]:
    """Return the paths of the configs that use the state, which is found by them."""
    named = [] if config is None else [identify(config.file)]
    running = [each.status.config for each in proxies if os.path.isabs(each.status.config)]  # noqa: PTH117 - a text
    return list({config_key(each): each for each in [*named, *running]}.values())


def _find_missing(config: Config | None, kept: Sequence[KeptFile], *, has_secrets: bool) -> Iterator[str]:
    """Yield what the user may expect in it, and is not."""
    if not has_secrets:
        yield "logins, keys and other secrets, as asked for: users and clients log in again"
    else:
        in_keychain = sum(_is_in_keychain(each) for each in kept)
        if in_keychain:
            yield (
                f"the secrets of {pluralize(in_keychain, 'login')} in the keychain of this system, which cannot be in"
                " a file: on another machine, log in again"
            )
    if config is None:
        return
    if config.lock_file is not None:
        yield f"`{config.lock_file}`, which belongs to the config and into version control with it"
    store = str(getattr(config.cluster, "store", None) or "")
    if store and not store.startswith("sqlite:"):
        yield "what replicas share in `settings.cluster.store`: back that server up with its own tools"


def _is_in_keychain(file: KeptFile) -> bool:
    if folder_of(file.name) != "logins" or file.path.suffix != ".json":
        return False
    try:
        login = json.loads(file.path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(login, dict) and login.get("is_in_keyring") is True


def _report(context: Invocation, taken: Taken, *, is_piped: bool = False) -> None:
    if context.out.is_json_requested and not is_piped:
        context.out.print_json(taken)
        return
    folders = ", ".join(f"{name} ({count})" for name, count in sorted(taken.folders.items()))
    what = f"{pluralize(taken.files, 'file')}: {folders}"
    if not taken.file:
        context.out.say(f"would copy {what}")
    else:
        how = "encrypted with the passphrase" if taken.encrypted else "not encrypted, since it has no secrets"
        context.out.say(f"wrote {'to stdout' if is_piped else f'`{taken.file}`'}, {how}; {what}")
    for each in taken.not_included:
        context.out.say(f"not in it: {each}")
