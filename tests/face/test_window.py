"""A window of a running daemon loads next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What would make a window slow to start, or large.
HEAVY = (
    "asyncio",
    "click",
    "contextlib",
    "dynamic_mcp.config.read",
    "json",
    "msgspec",
    "pathlib",
    "pydantic",
    "re",
    "socket",
    "subprocess",
    "typing",
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no daemon on Windows")


def test_what_a_window_imports_is_light() -> None:
    program = "import dynamic_mcp.__main__, dynamic_mcp.face.window, sys; print(*sys.modules)"
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert not (set(HEAVY) & set(done.stdout.split())) - set(bare.stdout.split())
