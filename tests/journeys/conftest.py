"""Everything here runs in programs that serve alone, and in windows of a daemon."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.hosting_fixtures import _hosting, pytest_generate_tests

__all__ = ["_hosting", "pytest_generate_tests"]


@pytest.fixture
def typescript() -> list[str]:
    """The command that runs a client with the TypeScript SDK."""
    node, modules = shutil.which("node"), os.environ.get("DYNAMIC_MCP_TEST_NODE_MODULES", "")
    if node is None:
        pytest.skip("the command `node` is not on the PATH of this machine")
    if not (Path(modules) / "@modelcontextprotocol" / "sdk").is_dir():
        pytest.skip("DYNAMIC_MCP_TEST_NODE_MODULES does not name a folder with `@modelcontextprotocol/sdk`")
    return [node]
