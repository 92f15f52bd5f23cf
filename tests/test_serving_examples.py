"""What docs/serving.md shows and `examples/serving` has; tests/process/test_reverse_proxy.py runs nginx and Caddy."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from tests.documents import ROOT, blocks, find_blocks
from tests.process.http_client import HttpClient
from tests.program import BOUND_S, text_of

SERVING = ROOT / "examples" / "serving"
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
GUIDE = ROOT / "docs" / "guides" / "team.md"
ENTRIES = re.findall(r"^\| `([\w-]+)` \| .* \| `(.*URL.*)` \|$", PAGE, re.MULTILINE)
URL = "https://mcp.example.com/mcp"


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the example, with a token of its own."""
    monkeypatch.setenv("TOOLS_TOKEN", "secret")
    path = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))  # for `python`
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    spec = importlib.util.spec_from_file_location("serving_app", SERVING / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_application_serves_who_has_the_token_and_nobody_else(application: ModuleType) -> None:
    transport = httpx2.ASGITransport(app=application.app)
    with_token = {"authorization": "Bearer secret"}
    async with asyncio.timeout(BOUND_S), application.lifespan(application.app):
        async with httpx2.AsyncClient(transport=transport) as stranger:
            for headers in ({}, {"authorization": "Bearer guessed"}):
                answer = await stranger.get("http://127.0.0.1/tools/ready", headers=headers)
                assert answer.status_code == 401
        async with httpx2.AsyncClient(transport=transport, headers=with_token, timeout=BOUND_S) as http:
            client = HttpClient("http://127.0.0.1/tools/mcp", http)
            await client.initialize()
            call = {"group": "dates", "name": "add_working_days", "args": {"start": "2026-12-24", "days": 3}}
            answer = await client.request("tools/call", {"name": "call_dynamic_tool", "arguments": call})
            assert "2026-12-29" in text_of(answer["result"])


def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (SERVING / "dynamic-mcp.service").read_text(encoding="utf-8")
    assert "/usr/local/bin/dynamic-mcp" in text
    unit = tmp_path / "dynamic-mcp.service"
    unit.write_text(text.replace("/usr/local/bin/dynamic-mcp", sys.executable))  # it must be there
    shutil.copy(SERVING / "dynamic-mcp.socket", tmp_path)
    command = ["systemd-analyze", "verify", "--man=no", str(unit), str(tmp_path / "dynamic-mcp.socket")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_the_unit_confined() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = SERVING / "dynamic-mcp.service"
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (exposure,) = re.findall(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert f"gives it {exposure} of 10" in PAGE
    assert float(exposure) <= 2.0


def test_the_socket_listens_where_the_config_of_the_example_does() -> None:
    (listens,) = re.findall(r"^ListenStream=(.*)$", (SERVING / "dynamic-mcp.socket").read_text(), re.MULTILINE)
    assert f'"listen": "{listens}"' in (SERVING / "dynamic-mcp.json").read_text()


def test_the_unit_starts_what_the_guide_for_a_team_serves() -> None:
    marks = [mark for block in find_blocks(GUIDE) for mark in block.marks]
    command = (
        (SERVING / "dynamic-mcp.service")
        .read_text(encoding="utf-8")
        .partition("ExecStart=/usr/local/bin/")[2]
        .splitlines()[0]
    )
    assert f"meanwhile: {command}" in marks


@pytest.mark.parametrize(("language", "files"), [("nginx", "nginx*.conf"), ("caddyfile", "Caddyfile*")])
def test_what_the_pages_show_of_a_reverse_proxy_is_in_the_examples(language: str, files: str) -> None:
    examples = [file.read_text(encoding="utf-8") for file in SERVING.glob(files)]
    shown = [text for page in (ROOT / "docs" / "serving.md", GUIDE) for text in blocks(page, language)]
    assert shown
    for text in shown:
        assert any(example.endswith(text) for example in examples), text


def test_the_volume_of_the_page_is_that_of_the_image() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (volume,) = re.findall(r"^VOLUME (\S+)$", text, re.MULTILINE)
    assert set(re.findall(r"-v [\w-]+:(/\S+)", PAGE)) == {volume}
    assert f"ENV HOME={volume} TMPDIR={volume} " in text


def test_what_the_page_shows_of_the_unit_is_in_it() -> None:
    (shown,) = re.findall(r"^```ini\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    unit = (SERVING / "dynamic-mcp.service").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in unit] == []


@pytest.mark.parametrize(("tool", "shown"), ENTRIES)
def test_install_writes_the_entry_that_the_page_shows(tool: str, shown: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "APPDATA": str(tmp_path)}
    command = [sys.executable, "-m", "dynamic_mcp", "install", tool, "--url", URL, "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    added = "\n".join(re.findall(r"^\+(?!\+\+ )(.*)$", done.stdout, re.MULTILINE))
    wanted = shown.replace("URL", URL)
    if tool == "codex":
        assert added.splitlines()[-1] == wanted
        return
    (servers,) = json.loads(added).values()
    entry = servers["dynamic-mcp"]
    if "command" in entry:
        entry["command"] = Path(entry["command"]).stem
    assert entry == json.loads(wanted)


def test_every_refusal_that_the_page_explains_is_one_of_the_program() -> None:
    program = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "dynamic_mcp" / "face").rglob("*.py"))
    reasons = re.findall(r"^\| \d{3} \| (.*?) \| ", PAGE, re.MULTILINE)
    own = [reason for reason in reasons if reason != "from the reverse proxy"]
    assert len(own) > 10
    for reason in own:
        for part in reason.split("…"):
            assert part.strip("` ") in program, reason
