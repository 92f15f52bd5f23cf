"""Commands of this program as a person can paste them into a shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path


def format_command(*words: str | Path) -> str:
    """Return `dynamic-mcp` with these words, each quoted where a shell would take it for something else."""
    return f"dynamic-mcp {quote(*words)}"


def quote(*words: str | Path) -> str:
    """Return words as a shell takes them: that of Windows, or a POSIX one."""
    texts = [str(word) for word in words]
    return subprocess.list2cmdline(texts) if sys.platform == "win32" else shlex.join(texts)
