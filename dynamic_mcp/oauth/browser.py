"""Opens a link in a browser, if there is one. Uses no shell, and opens only http(s) links without user names."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

OPEN_S = 20.0


def has_browser(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether a browser that opens on this machine is likely to be seen."""
    if environment.get("BROWSER"):
        return True
    if any(environment.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return False
    return platform in ("darwin", "win32") or any(environment.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def is_openable(url: str) -> bool:
    """Return whether a link is http(s) and shows its host, which `https://github.com@evil.example` does not."""
    if not url.startswith(("https://", "http://")) or not url.isprintable():
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and "@" not in parts.netloc


async def open_link(url: str) -> bool:
    """Open a link with the standard `webbrowser` module; return whether that worked.

    The module runs in a separate process, because a browser may print, prompt or wait, and our stdin and stdout
    belong to the client.
    """
    return is_openable(url) and await _open(url)


async def open_file(file: Path) -> bool:
    """Open a page of ours as `open_link` does a link, which others would see in the list of processes.

    `file` is absolute.
    """
    return await _open(file.as_uri())


async def _open(url: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "webbrowser", url),  # -P: not a `webbrowser.py` of the current directory
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(OPEN_S):
            return await process.wait() == 0
    except TimeoutError:  # a browser that stays in the foreground is open
        return True
