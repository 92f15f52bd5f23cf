"""What `check`, `doctor` and `status` say of sandboxes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("only Linux confines programs", allow_module_level=True)

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.features.sandbox import bubblewrap
from tests.program import BOUND_S, UPSTREAMS, Json


def run(tmp_path: Path, name: str, sandbox: Json, **server: Json) -> list[Finding]:
    """Return what a command says of the sandbox of a server."""
    tiny = {"command": sys.executable, "args": ["-I", "-S", str(UPSTREAMS / "tiny.py")], "cwd": str(tmp_path)}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"notes": {**tiny, **server, "sandbox": sandbox}}}))
    words = [sys.executable, "-m", "dynamic_mcp", name, "--json", "-c", str(config)]
    done = subprocess.run(words, capture_output=True, timeout=BOUND_S, check=False, env=dict(os.environ))
    printed = json.loads(done.stdout)
    found = printed["findings"] if isinstance(printed, dict) else printed
    return [Finding(**each) for each in found if ".sandbox" in each["where"]]


def test_check_names_a_place_that_does_not_exist(tmp_path: Path) -> None:
    (finding,) = run(tmp_path, "check", {"write": [str(tmp_path / "missing")]})
    assert (finding.level, finding.where) == (Level.WARNING, "mcpServers.notes.sandbox.write")


def test_check_names_the_registry_that_an_installer_does_not_reach(tmp_path: Path) -> None:
    installer = {"command": "npx", "args": ["-y", "some-server"]}
    (finding,) = run(tmp_path, "check", "strict", **installer)
    assert "`registry.npmjs.org`" in finding.what
    assert run(tmp_path, "check", {"hosts": ["registry.npmjs.org"]}, **installer) == []
    assert run(tmp_path, "check", "write", **installer) == []


@pytest.mark.skipif(bool(bubblewrap.explain_missing()), reason=bubblewrap.explain_missing() or "-")
def test_doctor_tries_what_holds(tmp_path: Path) -> None:
    (finding,) = run(tmp_path, "doctor", "strict")
    assert finding.level == Level.OK
    assert finding.what == (
        "holds back, as was tried: writing, changing modes, signals, sockets, inspecting, reading, network"
    )


@pytest.mark.skipif(bool(bubblewrap.explain_missing()), reason=bubblewrap.explain_missing() or "-")
@pytest.mark.parametrize(("sandbox", "has_hint"), [("strict", True), ("off", False)])
def test_a_confined_server_that_ends_is_said_to_need_more_perhaps(
    tmp_path: Path, sandbox: str, *, has_hint: bool
) -> None:
    server = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"], "sandbox": sandbox}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"notes": server}}))
    words = [sys.executable, "-m", "dynamic_mcp", "call", "-c", str(config), "notes", "add"]
    done = subprocess.run(words, capture_output=True, timeout=BOUND_S, check=False)
    assert b"exited with code 3" in done.stderr
    assert (b"`dynamic-mcp sandbox learn notes` finds out what" in done.stderr) == has_hint


def test_doctor_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (finding,) = run(tmp_path, "doctor", "strict")
    assert finding.level == Level.ERROR
    assert "bubblewrap (`bwrap`) is not installed" in finding.what
    assert "install" in finding.hint
