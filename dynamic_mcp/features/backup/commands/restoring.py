"""`dynamic-mcp restore`: when it may, what it replaces, and what its user must know."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features import table
from dynamic_mcp.features.backup import inventory
from dynamic_mcp.features.backup.archive import Archive, Head, in_words, open_archive
from dynamic_mcp.features.backup.commands.copying import count_folders, proxy_registry, read_config
from dynamic_mcp.features.backup.commands.passphrase import find_passphrase
from dynamic_mcp.features.backup.inventory import ELSEWHERE, KeptFile
from dynamic_mcp.features.backup.restoration import Staged, exchange, fill, keep_rest, staging
from dynamic_mcp.observe.proxies import SILENT_S
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import os_reason, pluralize


class ListedFile(Struct, frozen=True):
    """A file in a backup."""

    name: str
    bytes: int


class _Nowhere:
    """Discards what is written, so that a backup is verified."""

    def write(self, data: bytes) -> int:
        return len(data)


def list_backup(context: Invocation, file: str, *, passphrase_file: str | None) -> int:
    """Verify a backup and print what is in it; return the exit code. Raises DynamicMcpError."""
    listed: list[ListedFile] = []
    with _open(context, file, passphrase_file) as archive:
        for each in archive.files():
            archive.copy(each, _Nowhere())  # type: ignore[arg-type]  # all of it that is used
            listed.append(ListedFile(each.name, each.size))
    head = archive.head
    if context.out.is_json:
        context.out.print_json({"head": head, "files": listed})
        return 0
    context.out.say(f"{_describe(head)}; it is whole")
    context.out.print_table(("FILE", "BYTES"), [(each.name, str(each.bytes)) for each in listed])
    return 0


def restore(context: Invocation, file: str, *, passphrase_file: str | None, overwrites: bool) -> int:
    """Put a backup in the place of the state; return the exit code. Raises DynamicMcpError and OSError."""
    config, _ = read_config(context)
    places = inventory.find_places(paths.state_dir(), config)
    _refuse_serving()
    with staging(places) as staged, _open(context, file, passphrase_file) as archive:
        present = [each for place in places for each in inventory.list_kept(place)]
        if present and not overwrites:
            _agree(context, present)
        with context.out.progress("restoring"):
            count = fill(staged, archive)
            keep_rest(staged, places, has_secrets=archive.head.has_secrets)
            _refuse_serving()
            exchange(staged)
    _report(context, archive.head, count, staged, is_replaced=bool(present))
    return 0


def _agree(context: Invocation, present: Sequence[KeptFile]) -> None:
    """Raises InvalidArguments and KeyboardInterrupt if nobody agrees to the loss of what is there."""
    folders = ", ".join(f"{name} ({count})" for name, count in sorted(count_folders(present).items()))
    context.out.say(f"`{paths.state_dir()}` has state: {folders}")
    try:
        may_replace = agree(context, "replace all of it by the backup?", done="restored", yes=False)
    except InvalidArguments as exc:
        raise InvalidArguments(
            "nothing was restored, since it would replace the state that is there", hint="--overwrite replaces it"
        ) from exc
    if not may_replace:
        raise KeyboardInterrupt


def _refuse_serving() -> None:
    """Raises DynamicMcpError with what must be stopped."""
    registry = proxy_registry()
    recent = registry.list_recent()
    proxies = registry.list_proxies()
    if not proxies and recent:
        raise DynamicMcpError(
            f"nothing was restored, since this state was in use a moment ago, by process {', '.join(recent)}",
            hint=f"stop it, also in another container; if it was killed, wait {SILENT_S:.0f} s",
        )
    if not proxies:
        return
    names = ", ".join(f"process {each.pid} ({each.status.kind}, `{each.status.config}`)" for each in proxies)
    kinds = {each.status.kind for each in proxies}
    ways = {
        "daemon": "`dynamic-mcp daemon stop`",
        "http": "stop the service (`systemctl stop dynamic-mcp.socket dynamic-mcp.service`)",
        "stdio": "close the AI tools that have started it",
    }
    raise DynamicMcpError(
        f"nothing was restored, since this state is in use by {names}",
        hint="; ".join(way for kind, way in ways.items() if kind in kinds) or "stop them",
    )


@contextlib.contextmanager
def _open(context: Invocation, file: str, passphrase_file: str | None) -> Iterator[Archive]:
    prefixes = [f"{ELSEWHERE}/{name}" for feature in table.FEATURES for name in feature.keeps_elsewhere]
    with (
        _open_source(file) as source,
        open_archive(source, lambda: find_passphrase(context, passphrase_file, is_new=False), prefixes) as archive,
    ):
        yield archive


@contextlib.contextmanager
def _open_source(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - closed below, and only opening is caught
    except OSError as exc:
        raise InvalidArguments(f"`{file}` cannot be read: {os_reason(exc)}") from exc
    with opened:
        yield opened


def _describe(head: Head) -> str:
    secrets = "" if head.has_secrets else ", without secrets"
    return f"a backup of {in_words(head.created)} from `{head.machine}`, by dynamic-mcp {head.version}{secrets}"


def _report(context: Invocation, head: Head, count: int, staged: Sequence[Staged], *, is_replaced: bool) -> None:
    if context.out.is_json_requested:
        context.out.print_json({"head": head, "files": count, "replaced": is_replaced})
    targets = ", ".join(f"`{each.target}`" for each in staged if each.is_used)
    context.out.say(f"restored {pluralize(count, 'file')} to {targets}: {_describe(head)}")
    context.out.say("what was revoked since then is valid again: `dynamic-mcp token list` shows the tokens")
    lost = [each for each in head.configs if not Path(each).exists()]
    if lost:
        names = ", ".join(f"`{each}`" for each in lost)
        context.out.say(
            f"warning: tokens and logins of clients are found by the path of their config, and there is no {names};"
            " put the config there"
        )
