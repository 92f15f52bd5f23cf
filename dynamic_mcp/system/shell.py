"""Formats commands of this program so that they can be pasted into a shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path


def format_command(*words: str | Path) -> str:
    """Return `dynamic-mcp` and these words as one command line, quoted where needed."""
    return f"dynamic-mcp {quote(*words)}"


def quote(*words: str | Path, platform: str = sys.platform) -> str:
    """Quote words for the shell of this platform: POSIX, or Windows."""
    texts = [str(word) for word in words]
    return subprocess.list2cmdline(texts) if platform == "win32" else shlex.join(texts)
