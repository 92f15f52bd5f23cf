"""`approve edit`: a person changes the arguments of a call that waits, and allows it so."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from msgspec import Raw

from dynamic_mcp.cli import approve_view, strict_json
from dynamic_mcp.cli.approve import find, require_person, send
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.host.pending_json import read_arguments
from dynamic_mcp.observe.approvals import ApprovalDecision, QueuedApproval
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.os_user import os_user

_MOST_BYTES = 8 << 20
_EDITORS = ("sensible-editor", "nano", "vi", "notepad")


def edit_call(this: Invocation, id: str, given: str | None, *, is_sure: bool) -> None:
    """Allow a call once with other arguments. Raises DynamicMcpError."""
    if given is None or not is_sure:
        require_person("edit", is_sure=False)
    pending = find(id)
    if given is not None:
        arguments = _parse(sys.stdin.read(_MOST_BYTES + 1) if given == "-" else given)
        _confirm_and_send(this, pending, arguments, is_sure=is_sure or given == "-")
        return
    edit_in_editor(this, pending)


def edit_in_editor(this: Invocation, pending: QueuedApproval) -> None:
    """Have the arguments changed in an editor until they are right, and allow the call. Raises DynamicMcpError."""
    text = "\n".join(approve_view.format_arguments(read_arguments(pending.arguments))) + "\n"
    while True:
        text = _run_editor(text)
        try:
            _confirm_and_send(this, pending, _parse(text), is_sure=False)
            return
        except InvalidArguments as exc:
            this.out.print_error(str(exc))
            if not click.confirm("Edit them again?", default=True, err=True):
                raise DynamicMcpError(f"nothing was sent; {pending.id} still waits") from None


def _confirm_and_send(this: Invocation, pending: QueuedApproval, arguments: object, *, is_sure: bool) -> None:
    old = read_arguments(pending.arguments)
    if not is_sure:
        if not approve_view.show_difference(this.out, old, arguments):
            this.out.say(f"the arguments are the same; {pending.id} still waits")
            return
        if not click.confirm("Allow it once with these arguments?", default=False, err=True):
            this.out.say(f"{pending.id} still waits")
            return
    encoded = Raw(strict_json.dumps(arguments))
    send(this, pending, ApprovalDecision(id=pending.id, verdict="allow", by=os_user(), arguments=encoded))


def _parse(text: str) -> dict[str, object]:
    """Return the arguments. Raises InvalidArguments."""
    if len(text) > _MOST_BYTES:
        raise InvalidArguments("the arguments are too large")
    try:
        value = strict_json.loads(text)
    except ValueError as exc:
        raise InvalidArguments(f"the arguments are not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments must be a JSON object")
    return value


def _run_editor(text: str) -> str:
    """Return what a person makes of a text. Raises DynamicMcpError."""
    with tempfile.TemporaryDirectory(prefix="dynamic-mcp-edit-") as folder:  # others cannot look into it
        file = Path(folder) / "arguments.json"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        words = _editor()
        try:
            done = subprocess.run([*words, str(file)], check=False)
        except OSError as exc:
            raise DynamicMcpError(f"the editor `{words[0]}` does not start: {exc.strerror}") from exc
        if done.returncode:
            raise DynamicMcpError(f"the editor `{words[0]}` ended with {done.returncode}; nothing was sent")
        return read_bytes(file, most=_MOST_BYTES).decode("utf-8", "replace")


def _editor() -> list[str]:
    """Return the command of the person's editor. Raises InvalidArguments."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if chosen:
        return shlex.split(chosen, posix=sys.platform != "win32")
    for name in _EDITORS:
        if found := shutil.which(name):
            return [found]
    raise InvalidArguments("there is no editor", hint="set `$EDITOR`, or give the arguments with `--args`")
