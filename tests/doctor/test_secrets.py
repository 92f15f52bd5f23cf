"""What `doctor` says of secrets: where they are in plain text, and what is to be asked for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Finding
from tests.fakes import Json
from tests.secret_vault import Vault


def findings(folder: Path, env: Json, secrets: Json = None) -> list[Finding]:
    file = folder / "dynamic-mcp.json"
    server = {"command": sys.executable, "env": env}
    file.write_text(json.dumps({"mcpServers": {"it": server}, "settings": {"secrets": secrets or {}}}))
    file.chmod(0o600)
    return check_file(file, {"PATH": "", "HOME": str(folder)})[1]


def test_a_program_that_is_not_there_is_an_error_and_none_is_asked(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    vault = Vault(tmp_path / "vault")
    env = {"A": "${vault:a}", "B": "${op:op://v/i/f} ${op:op://v/i/g}"}

    found = {each.where: each.what for each in findings(tmp_path, env, vault.settings["secrets"])}

    assert "the program `op`, which knows `${op:op://v/i/" in found["mcpServers.it"]
    assert "vault" not in found["mcpServers.it"]
    assert vault.asked == []


def test_a_secret_in_plain_text_can_go_into_the_keychain(tmp_path: Path) -> None:
    [finding] = [each for each in findings(tmp_path, {"TOKEN": "open-sesame-1"}) if "plain text" in each.what]
    assert "${keyring:NAME}" in finding.hint
