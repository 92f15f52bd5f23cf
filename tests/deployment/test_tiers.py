"""What the manifests start: a gateway and the pod of a server, as processes with the files of their mounts.

Their addresses are ports of this machine. Each mount is a directory as the kubelet makes it, whose link `..data` is
replaced at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.chart import parse_documents
from dynamic_mcp.features.cluster.render import render
from tests import own_process, signals
from tests.deployment.rendered import NAME, Objects
from tests.face.http.modern_parties import headers_for
from tests.features.cluster.modern_requests import meta_of
from tests.http_client import HttpClient
from tests.journeys.remote_server import STARTS_WITHIN_S, free_port, wait_until_listening
from tests.mcp_client import BOTH, McpClient
from tests.program import BOUND_S, Json, full, text_of
from tests.web import web_client

pytestmark = [
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.posix_only("symbolic links need a privilege on Windows"),
]

SERVER = f"{NAME}-server-notes"
TOKEN = "a-token-that-is-only-for-tests-0001"
KEYS = {"OLD": "an-old-key-that-is-only-for-tests-012345", "NEW": "a-new-key-that-is-only-for-tests-0123456"}


class Cluster:
    """Rendered pods that run on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {NAME: free_port(), SERVER: free_port()}
        self._versions = itertools.count()
        self.url = f"http://127.0.0.1:{self._ports[NAME]}"
        self.server_url = f"http://127.0.0.1:{self._ports[SERVER]}"

    def render(self, keys: Sequence[str], *, description: str = "Notes") -> Objects:
        """Render the config with these keys."""
        server = {**full(), "description": description, "env": {"SECRET": "${SECRET}"}}
        settings = {
            "http": {"auth": [{"kind": "bearer", "tokens": [{"token": "${TOKEN}", "subject": "ann"}]}]},
            "cluster": {"peers": "http://127.0.0.1:1", "keys": [f"${{{each}}}" for each in keys]},
        }
        file, secrets = self._folder / "dynamic-mcp.json", self._folder / "secrets.env"
        file.write_text(json.dumps({"mcpServers": {"notes": server}, "settings": settings}))
        values = {**KEYS, "TOKEN": TOKEN, "SECRET": "a secret of the server"}
        secrets.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        rendering = render(file, NAME, values_file=None, changes=(), secrets_file=secrets)
        return Objects(parse_documents(rendering.manifests))

    def mount(self, objects: Objects, pod: str) -> None:
        """Exchange what the mounts of a pod have, as the kubelet does."""
        config: str = objects.one("ConfigMap", pod)["data"]["dynamic-mcp.json"]
        for there, here in (
            (f"dns+http://{NAME}-peers:8808", self.url),
            (f"http://{SERVER}:8808", self.server_url),
        ):
            config = config.replace(there, here)
        files = {**objects.one("Secret", pod)["stringData"], "dynamic-mcp.json": config}
        mount = self._folder / pod / "config"
        version = mount / f"..2026_11_27_{next(self._versions)}"
        version.mkdir(parents=True)
        for name, text in files.items():
            (version / name).write_text(text)
            with contextlib.suppress(FileExistsError):
                (mount / name).symlink_to(f"..data/{name}")
        (mount / "..data_tmp").symlink_to(version.name)
        (mount / "..data_tmp").replace(mount / "..data")

    @contextlib.asynccontextmanager
    async def running(self, pod: str) -> AsyncIterator[None]:
        """Run a pod on its mounts."""
        folder, port = self._folder / pod, self._ports[pod]
        home = {"POD_NAME": f"{pod}-0", "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        command = ("serve", str(folder / "config" / "dynamic-mcp.json"), "--http", f"127.0.0.1:{port}")
        with (folder / "log").open("wb") as log:
            quiet = own_process.DEVNULL
            environment = {**os.environ, **home}
            process = await own_process.start(*command, env=environment, stdin=quiet, stdout=quiet, stderr=log)
            try:
                async with asyncio.timeout(STARTS_WITHIN_S):
                    await wait_until_listening(process, port)
                yield
                signals.ask_to_end(process.pid)
                async with asyncio.timeout(BOUND_S):
                    assert await process.wait() == 0
            except BaseException:
                print((folder / "log").read_text())
                raise
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def has_changed(self, pod: str, count: int) -> None:
        """Wait until a pod has read so many changes."""
        log = self._folder / pod / "log"
        async with asyncio.timeout(BOUND_S):
            while log.read_text().count("has changed") < count:  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.05)

    def token_of(self, objects: Objects) -> str:
        """Return the token that the gateway shows to the server."""
        lines: str = objects.one("Secret")["stringData"]["variables.env"]
        (line,) = (each for each in lines.splitlines() if each.startswith("SERVER_TOKEN_NOTES="))
        return line.partition("=")[2].strip("'")

    async def status_at_server(self, token: str, host: str = f"{SERVER}:8808") -> int:
        """Return the status with which the server answers a caller with a token, who names it as the gateway does."""
        client = {"name": "other", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        headers = {"Accept": BOTH, "Authorization": f"Bearer {token}", "Host": host}
        async with web_client() as web:
            return (await web.post(f"{self.server_url}/mcp/notes", json=body, headers=headers)).status_code


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A gateway and the pod of a server, which run with the older key."""
    cluster = Cluster(tmp_path)
    objects = cluster.render(["OLD"])
    for pod in (NAME, SERVER):
        cluster.mount(objects, pod)
    async with cluster.running(SERVER), cluster.running(NAME):
        yield cluster


@contextlib.asynccontextmanager
async def a_client(cluster: Cluster) -> AsyncIterator[McpClient]:
    """A client of MCP 2025-11-25 with a session at the gateway."""
    async with HttpClient(cluster.url) as http:
        client = McpClient(http, headers={"Authorization": f"Bearer {TOKEN}"})
        await client.initialize()
        yield client


async def call_modern(cluster: Cluster, text: str) -> Json:
    """Call a tool as a client of MCP 2026-07-28 does."""
    arguments = {"group": "notes", "name": "echo", "args": {"text": text}}
    params = {"name": "call_dynamic_tool", "arguments": arguments, "_meta": meta_of()}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**headers_for(body), "Accept": BOTH, "Authorization": f"Bearer {TOKEN}"}
    async with web_client() as web:
        return (await web.post(f"{cluster.url}/mcp", json=body, headers=headers)).json()


async def test_clients_of_both_eras_call_a_server_that_runs_in_a_pod_of_its_own(cluster: Cluster) -> None:
    async with a_client(cluster) as client:
        assert text_of((await client.call("notes", "echo", {"text": "hi"}))["result"]) == "hi"
    assert text_of((await call_modern(cluster, "there"))["result"]) == "there"


async def test_the_pod_of_a_server_is_closed_to_all_but_the_gateway(cluster: Cluster) -> None:
    async with web_client() as web:
        assert (await web.post(f"{cluster.server_url}/mcp/notes")).status_code == 401
    assert await cluster.status_at_server(TOKEN) == 401
    token = cluster.token_of(cluster.render(["OLD"]))
    assert await cluster.status_at_server(token) == 200
    assert await cluster.status_at_server(token, host="elsewhere:8808") == 403


async def test_the_pod_of_a_server_passes_results_on_whole(cluster: Cluster) -> None:
    text = "x" * 300_000  # more than a gateway shows at once
    headers = {"Authorization": f"Bearer {cluster.token_of(cluster.render(['OLD']))}"}
    async with HttpClient(cluster.server_url) as http:
        client = McpClient(http, "/mcp/notes", headers=headers)
        await client.initialize()
        answer = await client.request("tools/call", {"name": "echo", "arguments": {"text": text}})
    assert text_of(answer["result"]) == text


async def test_a_key_is_replaced_live_in_three_steps_and_no_call_fails(cluster: Cluster) -> None:
    old = cluster.token_of(cluster.render(["OLD"]))
    async with a_client(cluster) as client:
        for number, keys in enumerate((["OLD", "NEW"], ["NEW", "OLD"], ["NEW"]), start=1):
            objects = cluster.render(keys)
            for pod in (SERVER, NAME) if number < 3 else (NAME, SERVER):
                cluster.mount(objects, pod)
                assert text_of((await client.call("notes", "echo", {"text": pod}))["result"]) == pod
                if number < 3 or pod == SERVER:
                    await cluster.has_changed(pod, number)
                assert text_of((await client.call("notes", "echo", {"text": pod}))["result"]) == pod
    async with asyncio.timeout(BOUND_S):
        while await cluster.status_at_server(old) != 401:  # noqa: ASYNC110 - another process raises no event
            await asyncio.sleep(0.05)
    assert await cluster.status_at_server(cluster.token_of(cluster.render(["NEW"]))) == 200


async def test_a_changed_config_map_takes_effect_live(cluster: Cluster) -> None:
    cluster.mount(cluster.render(["OLD"], description="Notes of the team"), NAME)
    await cluster.has_changed(NAME, 1)
    async with a_client(cluster) as client:
        listed = await client.request("tools/list")
        assert "Notes of the team" in json.dumps(listed)
