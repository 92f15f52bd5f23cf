"""The metrics of the whole program, read over HTTP: from a program alone, a daemon, and `serve --http`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.features.metrics.readers import Samples, read_samples, sample
from tests.hosting_fixtures import _hosting, pytest_generate_tests
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.process.http_client import connected, serving_http
from tests.program import Json, odd, running, text_of

__all__ = ["_hosting", "pytest_generate_tests"]

ECHO = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "echo", "dynamic_mcp_group": "odd"}
SERVER = "mcp_server_operation_duration_seconds_count"
CLIENT = "mcp_client_operation_duration_seconds_count"


async def _read(port: int, headers: Mapping[str, str] | None = None) -> Samples:
    async with HttpClient(f"http://127.0.0.1:{port}") as client:
        response = await client.request("GET", "/metrics", headers)
        assert response.status == 200
        return read_samples((await response.read()).decode())


def _write(file: Path, **settings: Json) -> None:
    tree = json.loads(file.read_text()) if file.exists() else {"mcpServers": {"odd": odd()}}
    tree["settings"] = {**tree.get("settings", {}), **settings}
    file.write_text(json.dumps(tree))


@pytest.mark.both_hosts
async def test_a_program_alone_and_a_daemon_tell_what_was_called_and_follow_the_config(
    tmp_path: Path,
) -> None:
    first, second = free_port(), free_port()
    file = tmp_path / "dynamic-mcp.json"
    _write(file, metrics={"listen": first})
    async with running(str(file)) as program:
        await program.initialize()
        assert text_of(await program.call("odd", "echo", {"text": "a"})) == "a"
        await program.says(f"metrics are served at http://127.0.0.1:{first}/metrics")
        samples = await _read(first)
        assert sample(samples, SERVER, **ECHO) == sample(samples, CLIENT, **ECHO) == 1
        [(_, session)] = [each for each in samples if each[0] == "dynamic_mcp_sessions"]
        assert dict(session)["transport"] in ("stdio", "socket")
        if sys.platform == "linux":
            assert sample(samples, "process_resident_memory_bytes") > 1 << 20
            assert sample(samples, "process_open_fds") > 3

        _write(file, metrics={"listen": second, "token": "abc"})
        await program.says(f"metrics are served at http://127.0.0.1:{second}/metrics")
        assert text_of(await program.call("odd", "echo", {"text": "b"})) == "b"
        samples = await _read(second, {"Authorization": "Bearer abc"})
        assert sample(samples, SERVER, **ECHO) == 2
        assert sample(samples, "dynamic_mcp_config_reloads_total", outcome="success") == 1
        with pytest.raises(ConnectionRefusedError):
            await _read(first)


@pytest.mark.alone_only("a daemon serves HTTP in the same way")
async def test_a_program_over_http_has_its_metrics_at_another_port(tmp_path: Path) -> None:
    at, metrics = free_port(), free_port()
    file = tmp_path / "dynamic-mcp.json"
    _write(file, metrics={"listen": metrics})
    async with serving_http(file, str(at)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{at}/mcp") as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"
        await program.says("metrics are served at")
        samples = await _read(metrics)
        assert sample(samples, SERVER, **ECHO) == 1
        assert sample(samples, "dynamic_mcp_sessions", transport="http", era="legacy") == 1
