"""A keychain in a file, which other processes see too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

_FILE = "DYNAMIC_MCP_TEST_KEYCHAIN"


class FileKeychain(KeyringBackend):
    """The keychain in the file that a variable names."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._file = Path(os.environ[_FILE])

    @property
    def entries(self) -> dict[str, str]:
        """The secrets of dynamic-mcp, by name."""
        text = self._file.read_text() if self._file.exists() else "{}"
        return dict(json.loads(text))

    def set_password(self, service: str, username: str, password: str) -> None:
        assert service == "dynamic-mcp"
        self._file.write_text(json.dumps({**self.entries, username: password}))

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get(username)

    def delete_password(self, service: str, username: str) -> None:
        left = self.entries
        if left.pop(username, None) is None:
            raise PasswordDeleteError("not there")
        self._file.write_text(json.dumps(left))


def use_file_keychain(file: Path, monkeypatch: pytest.MonkeyPatch) -> FileKeychain:
    """Let this process, and those that it starts, have their secrets in a file."""
    monkeypatch.setenv(_FILE, str(file))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.file_keychain.FileKeychain")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    keychain = FileKeychain()
    monkeypatch.setattr("keyring.core._keyring_backend", keychain)
    return keychain
