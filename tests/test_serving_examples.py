"""What `examples/serving` has besides the reverse proxies, which tests/process/test_reverse_proxy.py runs."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from tests.process.http_client import HttpClient
from tests.program import BOUND_S, text_of

SERVING = Path(__file__).parent.parent / "examples" / "serving"


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the example, with a token of its own."""
    monkeypatch.setenv("TOOLS_TOKEN", "secret")
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
    text = (SERVING / "dynamic-mcp.service").read_text()
    assert "/usr/local/bin/dynamic-mcp" in text
    unit = tmp_path / "dynamic-mcp.service"
    unit.write_text(text.replace("/usr/local/bin/dynamic-mcp", sys.executable))  # it must be there
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
