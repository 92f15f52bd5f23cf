"""Opening a link for a person, where there is one at a screen. No shell is involved, and only http(s) is opened."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

OPEN_S = 20.0


def has_browser(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Tell whether somebody is likely to see a browser that is opened here."""
    if environment.get("BROWSER"):
        return True
    if any(environment.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return False
    return platform in ("darwin", "win32") or any(environment.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


async def open_link(url: str) -> bool:
    """Open a link with the standard `webbrowser` module, and tell whether that worked.

    The module runs in a process of its own: a browser may print, ask or wait, and our stdin and stdout are the
    client's.
    """
    if not url.startswith(("https://", "http://")):
        return False
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "webbrowser", url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(OPEN_S):
            return await process.wait() == 0
    except TimeoutError:  # a browser that stays in the foreground is open
        return True
