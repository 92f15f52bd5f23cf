"""Ask git whether it would commit a file, with everything disabled that a repository could make git run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_TIMEOUT_S = 5.0
_SAFE_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")


def is_exposed(file: Path, environment: Mapping[str, str]) -> bool:
    """Tell whether a file is inside a git work tree that does not ignore it."""
    folder = file.resolve().parent
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return False
    command = ["git", *_SAFE_OPTIONS, "check-ignore", "--quiet", "--", str(file)]
    quiet = {**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return True  # unknown without git, and a needless warning does no harm
    return done.returncode == 1
