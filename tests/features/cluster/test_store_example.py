"""`examples/serving/replicas.json`, but for its addresses: two replicas are one service, with a user of the store."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dynamic_mcp.config import jsonc
from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.store import FOLDER, ApprovalDecision
from dynamic_mcp.features.cluster.store_probe import ACL_RULES
from tests import own_process
from tests.documents import ROOT
from tests.features.cluster.store_servers import StoreServer
from tests.features.cluster.test_shared_login_server import Visitor
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.program import BOUND_S, Json, text_of
from tests.web import web_client
from tests.windows import state_dir

pytestmark = [pytest.mark.full, pytest.mark.alone_only("its clients connect by URL"), pytest.mark.timeout(240)]
EXAMPLE = ROOT / "examples" / "serving" / "replicas.json"
_SERVERS = ROOT / "examples" / "servers"


@pytest.fixture
def store(redis: StoreServer) -> Iterator[str]:
    """The URL of a store for a user of its own, whose password is in a variable."""
    redis.ask("FLUSHALL")
    redis.ask("ACL", "SETUSER", "dynamic-mcp", "on", ">secret", *ACL_RULES.split())
    yield redis.url.replace("//", "//dynamic-mcp:${VALKEY_PASSWORD}@")
    redis.ask("ACL", "DELUSER", "dynamic-mcp")


@contextlib.asynccontextmanager
async def replicas_of_the_example(
    folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[HttpProgram]]:
    monkeypatch.setenv("CLUSTER_KEY", "k" * 64)
    monkeypatch.setenv("VALKEY_PASSWORD", "secret")
    environment = {"NOTES_DIR": str(folder / "notes")}
    notes = {"command": sys.executable, "args": [str(_SERVERS / "notes.py")], "env": environment}
    ports = [free_port(), free_port()]
    async with contextlib.AsyncExitStack() as stack:
        tier = folder / "servers"
        tier.mkdir()
        behind = await stack.enter_async_context(serving_http(tier, {"notes": notes}))
        programs = []
        for name, port in zip("ab", ports, strict=True):
            place = folder / name
            place.mkdir()
            monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
            config: Json = jsonc.loads(EXAMPLE.read_text())
            servers, settings = config["mcpServers"], config["settings"]
            servers["notes"]["url"] = behind.url_of("notes")
            servers["dates"] |= {"command": sys.executable, "cwd": str(_SERVERS)}
            settings["http"] |= {"public_url": f"http://127.0.0.1:{ports[0]}/mcp"}
            del settings["http"]["listen"]
            settings["http"]["auth"][1]["trusted_proxies"] = ["127.0.0.1"]
            peers = [f"http://127.0.0.1:{each}" for each in ports]
            settings["cluster"] |= {"name": name, "peers": peers, "store": store}
            serving = serving_http(place, servers, port=port, settings=settings)
            programs.append(await stack.enter_async_context(serving))
        yield programs


async def test_the_example_is_one_service(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with replicas_of_the_example(tmp_path, store, monkeypatch) as (one, other), web_client() as web:
        request = await Visitor(one, web, one.origin).begin()
        tokens = (await web.post(f"{other.origin}/token", data=request)).json()
        async with HttpClient(one.origin) as http:
            client = McpClient(http, headers={"authorization": f"Bearer {tokens['access_token']}"})
            await client.initialize()
            days = await client.call("dates", "add_working_days", {"start": "2026-12-24", "days": 3})
            assert "2026-12-29" in text_of(days["result"])
            await client.call("notes", "add_note", {"title": "Old", "text": "nothing"})
            deleting = asyncio.create_task(client.call("notes", "delete_note", {"name": "old"}))
            user = ApprovalClient(state_dir(tmp_path / "b" / "state") / FOLDER)
            async with asyncio.timeout(BOUND_S):
                while not (waiting := await asyncio.to_thread(user.list_pending)):  # noqa: ASYNC110 - in a folder
                    await asyncio.sleep(0.05)
            decision = ApprovalDecision(id=waiting[0].id, verdict="allow", by="eve")
            assert (await asyncio.to_thread(lambda: user.decide(decision))).outcome == "taken"
            assert "deleted `old`" in text_of((await deleting)["result"])
            await client.delete()
        checked = await asyncio.to_thread(
            lambda: own_process.run("cluster", "check", str(tmp_path / "a" / "dynamic-mcp.json"))
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
