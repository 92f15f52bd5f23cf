"""A home and a project of their own, and the program run in them as a person runs it, in this process."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.cli.main import run

Json = Any  # whatever JSON a test writes down


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Json:
        return json.loads(self.out)


class World:
    """One person's machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.output = self.project / "dynamic-mcp.json"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for directory in (self.home, self.project):
            directory.mkdir()
        others = ("XDG_CONFIG", "XDG_DATA", "CODEX_", "CLAUDE_", "DYNAMIC_MCP")
        for name in [name for name in os.environ if name.startswith(others) and "_TEST_" not in name]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(self.home))
        if sys.platform == "win32":
            self._set_windows_folders(monkeypatch)
        monkeypatch.chdir(self.project)
        monkeypatch.setenv("DYNAMIC_MCP_CONFIG", str(self.output))

    def _set_windows_folders(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the folders of Windows below the home; platformdirs asks Windows for them, if these are not set."""
        monkeypatch.setenv("USERPROFILE", str(self.home))
        for name, folder in (("APPDATA", "Roaming"), ("LOCALAPPDATA", "Local")):
            monkeypatch.setenv(name, str(self.home / "AppData" / folder))
        monkeypatch.setenv("WIN_PD_OVERRIDE_APPDATA", str(self.home / "AppData" / "Roaming"))
        monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", str(self.home / "AppData" / "Local"))

    def run(self, *args: str, stdin: str = "") -> Ran:
        """Run a command; what is piped into it is `stdin`."""
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        code = run(list(args))
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)

    def write(self, file: Path | str, content: Json) -> Path:
        """Write a file below the home: bytes and text as they are, anything else as JSON."""
        path = self.home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
        return path

    def cursor(self, **servers: Json) -> Path:
        """Write Cursor's own file with these servers."""
        return self.write(".cursor/mcp.json", {"mcpServers": servers})

    def servers(self) -> dict[str, Json]:
        """Return the servers of the output."""
        from dynamic_mcp.config import jsonc

        document = jsonc.loads(self.output.read_text(encoding="utf-8"))
        assert isinstance(document, dict)
        servers: dict[str, Json] = document["mcpServers"]
        return servers
