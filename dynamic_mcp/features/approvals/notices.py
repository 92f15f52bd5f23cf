"""Notifies a user of a call in the queue: on the desktop, and with the user's own program.

Untrusted texts are never part of a script or of markup. A failed notice does not affect the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.approvals.store import QueuedApproval, to_json
from dynamic_mcp.system.programs import find_program
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line

if sys.platform == "win32":
    from dynamic_mcp.system.job import Job

log = logging.getLogger(__name__)

# How long one program may run, how many at once, and how many may wait for that.
BOUND_S = 10.0
_MOST_AT_ONCE = 4
_MOST_WAITING = 64
_TITLE = "A call waits for your approval"
# Windows PowerShell reads the texts from environment variables.
_TOAST = """\
$kind = [Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$toast = $kind::GetTemplateContent([Windows.UI.Notifications.ToastTemplateType]::ToastText02)
$texts = $toast.GetElementsByTagName('text')
[void]$texts.Item(0).AppendChild($toast.CreateTextNode($env:DYNAMIC_MCP_NOTICE_TITLE))
[void]$texts.Item(1).AppendChild($toast.CreateTextNode($env:DYNAMIC_MCP_NOTICE_TEXT))
$app = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\\WindowsPowerShell\\v1.0\\powershell.exe'
$kind::CreateToastNotifier($app).Show([Windows.UI.Notifications.ToastNotification]::new($toast))
"""
_OSASCRIPT = ("on run argv", "display notification (item 1 of argv) with title (item 2 of argv)", "end run")


class ApprovalNotices:
    """Starts the programs that notify a user, as configured by `settings.approval.notify`."""

    def __init__(self, environment: Mapping[str, str] = os.environ, *, platform: str = sys.platform) -> None:
        self._environment = environment
        self._platform = platform
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._tasks = TaskSet(log)

    def notify(self, settings: Approval, pending: QueuedApproval) -> None:
        if len(self._tasks) >= _MOST_WAITING:
            log.warning("so many calls wait for approval that not all of them are notified")
            return
        if settings.notify.desktop:
            text = _describe(pending)
            if argv := find_desktop_command(text, self._environment, self._platform):
                variables = {"DYNAMIC_MCP_NOTICE_TITLE": _TITLE, "DYNAMIC_MCP_NOTICE_TEXT": text}
                self._start(argv, b"", variables if self._platform == "win32" else {})
        if settings.notify.command:
            self._start(settings.notify.command, json.dumps(to_json(pending, time.time())).encode() + b"\n", {})

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _start(self, argv: tuple[str, ...], stdin: bytes, variables: Mapping[str, str]) -> None:
        self._tasks.create(self._run(argv, stdin, variables), name=f"notice by {argv[0]}")

    async def _run(self, argv: tuple[str, ...], stdin: bytes, variables: Mapping[str, str]) -> None:
        async with self._places:
            program = find_program(argv[0], self._environment) or argv[0] if sys.platform == "win32" else argv[0]
            try:
                process = await asyncio.create_subprocess_exec(
                    program,
                    *argv[1:],
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={**self._environment, **variables},
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            except (OSError, ValueError) as exc:
                log.debug("a notice cannot be shown: `%s` does not start: %s", argv[0], exc)
                return
            await _feed(process, argv[0], stdin, _killer_of(process, self._platform))


async def _feed(process: asyncio.subprocess.Process, name: str, stdin: bytes, kill: Callable[[], None]) -> None:
    """Write a program's input and wait for its exit, within a bound."""
    try:
        async with asyncio.timeout(BOUND_S):
            try:
                await process.communicate(stdin)
            except RuntimeError:  # of uvloop if it has closed its input already, which asyncio ignores
                await process.wait()
        if process.returncode:
            log.debug("a notice may not have been shown: `%s` ended with %s", name, process.returncode)
    except TimeoutError:
        log.debug("a notice may not have been shown: `%s` did not end in %g s", name, BOUND_S)
    except OSError as exc:
        log.debug("a notice may not have been shown: `%s` did not read it: %s", name, exc)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill()
            await process.wait()


def _killer_of(process: asyncio.subprocess.Process, platform: str) -> Callable[[], None]:
    """Return what kills a program and all its child processes, by its process group or, on Windows, its job."""
    if sys.platform == "win32":
        job = Job(process.pid)

        def kill() -> None:
            job.terminate()
            process.kill()  # if it could not be put in the job

        return kill
    if platform == "win32":
        return process.kill
    return partial(os.killpg, process.pid, signal.SIGKILL)


def find_desktop_command(text: str, environment: Mapping[str, str], platform: str) -> tuple[str, ...]:
    """Return the command that shows a text on the desktop; empty if there is no desktop, or no such program."""
    if environment.get("SSH_CONNECTION") or environment.get("CI"):
        return ()
    name = "osascript" if platform == "darwin" else "notify-send"
    has_display = platform in ("darwin", "win32") or environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    if not has_display:
        return ()
    program = (
        _find_powershell(environment) if platform == "win32" else shutil.which(name, path=environment.get("PATH"))
    )
    if program is None:
        return ()
    match platform:
        case "darwin":
            return (program, *(word for line in _OSASCRIPT for word in ("-e", line)), text, _TITLE)
        case "win32":
            return (program, "-NoProfile", "-NonInteractive", "-Command", _TOAST)
        case _:
            # it reads backslashes as escapes, and notification servers read the text as markup
            body = html.escape(text).replace("\\", "\\\\")
            return (program, "--app-name=dynamic-mcp", "--", _TITLE, body)


def _find_powershell(environment: Mapping[str, str]) -> str | None:
    """Return the PowerShell of Windows itself: a search would begin in the current directory."""
    root = environment.get("SYSTEMROOT") or environment.get("SystemRoot") or r"C:\Windows"
    program = Path(root, "System32", "WindowsPowerShell", "v1.0", "powershell.exe")
    return str(program) if program.is_file() else None


def _describe(pending: QueuedApproval) -> str:
    """Describe a call without its arguments: other people may see the screen."""
    caller = one_line(pending.client or pending.subject or "a client", 40)
    name, group = one_line(pending.name, 60), one_line(pending.group, 40)
    return f"By {caller}: {name} of {group}. Run `dynamic-mcp approve show {pending.id}`."
