"""`dynamic-mcp audit verify` and `audit seal`: verifies the log, and seals its days."""

from __future__ import annotations

import time
from pathlib import Path

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.audit import chain, days, seals, signing
from dynamic_mcp.features.audit.commands.lines import (
    ReadProgress,
    describe_count,
    find_directory,
    find_settings,
)
from dynamic_mcp.features.audit.times import parse_time
from dynamic_mcp.features.audit.verify import Verification, Verifier
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import escape, pluralize

_MARKS = {"changed": "error", "missing": "error", "gap": "warning", "removed": "note", "note": "note"}


def verify_log(
    context: Invocation, *, directory: str | None, since: str | None, keys: tuple[str, ...], seals_file: str | None
) -> int:
    """Print the findings; return the exit code, 1 if something was changed or is missing."""
    place, now = find_directory(context, directory), time.time()
    first = "" if since is None else days.day_at(parse_time("--since", since, now))
    settings = find_settings(context) if directory is None else None
    verifier = Verifier(
        place,
        today=days.day_at(now),
        keys=[_read_public(key) for key in keys],
        elsewhere=[] if seals_file is None else _read_lines(seals_file),
        keep_s=None if settings is None else settings.keep_s,
    )
    with ReadProgress(context, "verifying the audit log") as progress:
        result = verifier.verify(first, progress.report)
    if context.out.is_json:
        context.out.print_json(_to_json(result))
    else:
        _show(context, result, place)
    return 0 if result.is_intact else 1


def seal_log(context: Invocation, *, directory: str | None, is_now: bool) -> int:
    """Seal the days that have ended, and print their seals, with `is_now` also one of the log as it is now."""
    place, settings = find_directory(context, directory), find_settings(context) if directory is None else None
    key = None if settings is None or settings.seal_key is None else _read_private(settings.seal_key)
    new = seals.seal_days(place, days.day_at(time.time()), signer=key) if place.is_dir() else []
    for seal in new:
        context.out.print_text(chain.encode(seal).decode())
    if is_now:
        end = seals.seal_end(place, signer=key)
        if end is None:
            raise DynamicMcpError(f"the audit log in `{place}` has no lines")
        context.out.print_text(chain.encode(end).decode())
    elif not new:
        context.out.say("every day that has ended has its seal")
    return 0


def _show(context: Invocation, result: Verification, directory: Path) -> None:
    for each in result.findings:
        style = "red" if _MARKS[each.kind] == "error" else ""
        context.out.print_line(f"{context.out.mark(_MARKS[each.kind])} {escape(str(each))}", style)
    if not result.lines:
        context.out.say(f"the audit log in `{directory}` has no lines")
        return
    what = f"{describe_count(result.lines)} of {pluralize(result.days, 'day')}, {pluralize(result.seals, 'seal')}"
    if not result.is_intact:
        context.out.print_line(f"{context.out.mark('error')} {what}: changed, or parts are missing", "red")
        return
    context.out.print_line(f"{context.out.mark('ok')} {what}: nothing was changed")
    context.out.print_line(
        f"it ends with line {result.end_line} of {result.end_day}, hash {result.end_hash}", indent=2
    )
    if not result.is_anchored:
        words = "only a seal that was kept elsewhere shows whether lines after it were cut off"
        context.out.say(
            f"{words}\nhint: keep the output of `dynamic-mcp audit seal --now`, and give it with `--seals`"
        )


def _to_json(result: Verification) -> dict[str, object]:
    end = {"day": result.end_day, "line": result.end_line, "hash": result.end_hash} if result.lines else None
    return {
        "intact": result.is_intact,
        "days": result.days,
        "lines": result.lines,
        "seals": result.seals,
        "end": end,
        "end_is_sealed_elsewhere": result.is_anchored,
        "findings": [
            {"kind": each.kind, "file": each.file, "line": each.line or None, "what": each.what}
            for each in result.findings
        ],
    }


def _read_lines(file: str) -> list[bytes]:
    return read_bytes(Path(file), may_be_piped=True).splitlines()


def _read_public(file: str) -> signing.SealVerifyKey:
    path = Path(file)
    read_bytes(path)  # raises for anything but a file
    try:
        return signing.load_verify_key(path)
    except ValueError as exc:
        raise InvalidArguments(f"`{file}` is not an Ed25519 key in PEM form", hint=str(exc)) from exc


def _read_private(file: Path) -> signing.SealSigningKey:
    try:
        return signing.load_signing_key(file)
    except ValueError as exc:
        raise DynamicMcpError(f"`{file}` is not an Ed25519 private key in PEM form without a password") from exc
