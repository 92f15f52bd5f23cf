"""The images, run for real: as an ordinary user, with a read-only root, one volume and no way out."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.deployment import containers
from tests.deployment.containers import (
    BASE,
    FULL,
    SERVERS,
    SLIM,
    Container,
    Network,
    inspect_image,
    open_network,
    run_container,
    run_podman,
    wait_until,
    wait_until_served,
)
from tests.deployment.kubelet import publish
from tests.features.cluster import modern_requests
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.program import Json, text_of
from tests.windows import OF_OTHER_SYSTEMS

pytestmark = [pytest.mark.full, pytest.mark.timeout(containers.BUILDS_WITHIN_S)]

MOST_ABOVE_BASE_MB = 120
SERVE = ("serve", "--http", "0.0.0.0:8808")
BEARER = {"http": {"auth": [{"kind": "bearer"}]}}
HOLDING = {"command": "python3", "args": ["/servers/holding.py", "/state"]}
UID = 1000


@pytest.fixture(autouse=True)
def _built() -> None:
    containers.build(SLIM)


@pytest.fixture
def network() -> Iterator[Network]:
    """Return a network that nothing leaves."""
    with open_network() as network:
        yield network


class Folder:
    """A folder on this machine with a config, which a container has at `/config`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        path.chmod(0o755)

    @property
    def volumes(self) -> tuple[str, ...]:
        return (f"{self.path}:/config:ro", f"{SERVERS}:/servers:ro")

    def write(self, servers: Json = None, **settings: Json) -> None:
        """Replace the config, as an editor does."""
        text = to_config(servers, **settings)
        new = self.path / ".dynamic-mcp.json.swp"
        new.write_text(text, encoding="utf-8")
        new.replace(self.path / "dynamic-mcp.json")


def to_config(servers: Json = None, **settings: Json) -> str:
    return json.dumps({"mcpServers": {"it": HOLDING} if servers is None else servers, "settings": settings})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a folder with a config of one server, whose clients need tokens."""
    made = Folder(tmp_path / "config")
    made.write(**BEARER)
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a folder of this machine that can be the volume, in which the test sees files of the container."""
    made = tmp_path / "state"
    made.mkdir()
    os.chown(made, UID, UID)
    return made


@asynccontextmanager
async def serving(folder: Folder, network: Network, *options: str) -> AsyncIterator[Container]:
    """Run the slim image, serving a config over HTTP."""
    async with run_container(SLIM, *SERVE, network=network, volumes=folder.volumes, options=options) as container:
        await wait_until_served(container)
        yield container


async def begin_session(http: HttpClient, token: str) -> McpClient:
    """Begin a session with a token."""
    session = McpClient(http, headers={"Authorization": f"Bearer {token}"})
    await session.initialize()
    return session


async def test_slim_is_at_most_120_mb_above_its_base() -> None:
    above = int(inspect_image(SLIM, "{{.Size}}")) - int(inspect_image(BASE, "{{.Size}}"))
    assert above / 1e6 <= MOST_ABOVE_BASE_MB


async def test_it_runs_as_an_ordinary_user_who_can_write_to_the_volume_and_nothing_else(
    folder: Folder, network: Network
) -> None:
    async with serving(folder, network) as container:
        assert await container.run("id", "-u") == f"{UID}\n"
        writable = await container.execute(
            "find", "/", "-writable", "-not", "-type", "l", "-not", "-path", "/proc/*", "-not", "-path", "/dev/*"
        )
        assert writable.out
        assert {each for each in writable.out.splitlines() if not each.startswith("/state")} == set()
        assert "Read-only file system" in (await container.execute("touch", "/x", user="0")).err


async def test_every_module_is_in_the_image_and_compiled_and_only_scripts_and_the_page_lack_their_extra() -> None:
    code = """
import importlib, os, pkgutil, sys, dynamic_mcp
from dynamic_mcp.config.cel import compile_expression
import opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace, valkey
count, missing, uncompiled = 0, set(), []
for each in pkgutil.walk_packages(dynamic_mcp.__path__, "dynamic_mcp."):
    if each.name in {*sys.argv[1:], "dynamic_mcp.__main__"}:
        continue
    try:
        module = importlib.import_module(each.name)
    except ModuleNotFoundError as exc:
        missing.add(exc.name)
    else:
        count += 1
        uncompiled += [each.name] if not os.path.exists(module.__cached__) else []
compile_expression("name == 'x'")
print(count, *missing, *uncompiled)
"""
    python = ("--entrypoint", "/opt/dynamic-mcp/bin/python", SLIM, "-c", code, *OF_OTHER_SYSTEMS)
    done = await run_podman("run", "--rm", *containers.CONFINED, *containers.LIMITS, "--network=none", *python)
    assert done.code == 0, done
    count, *rest = done.out.split()
    assert int(count) > 500
    assert sorted(rest) == ["jinja2", "pydantic_monty"]


async def test_the_image_says_what_is_in_it() -> None:
    labels = json.loads(inspect_image(SLIM, "{{json .Labels}}"))
    assert {name.rpartition(".")[2] for name in labels if name.startswith("org.opencontainers.image.")} == {
        *("title", "description", "licenses", "version", "revision")
    }
    read = ("--entrypoint", "cat", SLIM, "/opt/dynamic-mcp/sbom.cdx.json")
    document = json.loads(
        (await run_podman("run", "--rm", *containers.CONFINED, *containers.LIMITS, "--network=none", *read)).out
    )
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    purls = {each["purl"].partition("@")[0] for each in document["components"] if "purl" in each}
    assert {"pkg:pypi/msgspec", "pkg:pypi/valkey", "pkg:pypi/cel-expr-python", "pkg:deb/debian/tini"} <= purls
    locked = re.findall(
        r"^([\w-]+)==(\S+)", (containers.ROOT / "deploy" / "image" / "slim.txt").read_text(), re.MULTILINE
    )
    versions = {
        each["name"].lower().replace("_", "-").replace(".", "-"): each["version"] for each in document["components"]
    }
    assert {name: versions[name] for name, _ in locked if name in versions}.items() <= dict(locked).items()


async def test_its_health_check_asks_what_it_serves(folder: Folder, network: Network) -> None:
    async with serving(folder, network) as container:

        async def is_healthy() -> bool:
            return (await container.check_health()).code == 0

        await wait_until(is_healthy)
    async with run_container(SLIM, "1000", options=("--entrypoint", "sleep")) as container:
        assert (await container.check_health()).code == 1


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["alone", "workers"])
async def test_a_token_made_inside_is_accepted_also_by_the_next_container_with_the_volume(
    folder: Folder, network: Network, options: tuple[str, ...]
) -> None:
    volume = f"dm-volume-{os.getpid()}"
    try:
        for token in ("", "kept"):
            volumes = (*folder.volumes, f"{volume}:/state")
            async with run_container(SLIM, *SERVE, *options, network=network, volumes=volumes) as container:
                await wait_until_served(container)
                async with container.client() as http:
                    with pytest.raises(Refused):
                        await begin_session(http, "dmcp_wrong")
                    if not token:
                        kept = await container.make_token()
                    session = await begin_session(http, kept)
                    who = json.loads(text_of((await session.call("it", "who"))["result"]))
                    assert (who["uid"], who["environment"]["HOME"]) == (UID, "/state")
                assert await container.stop() == 0
    finally:
        await run_podman("volume", "rm", "--force", volume)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_change_of_the_config_in_the_mounted_folder_is_seen(
    folder: Folder, network: Network, version: str
) -> None:
    async with serving(folder, network) as container, container.client() as http:
        session = await begin_session(http, await container.make_token())
        call = calls_of(http, session, version)
        await until_served(call, "it")
        folder.write({"it": HOLDING, "second": HOLDING}, **BEARER)
        await until_served(call, "second")


async def test_a_swap_of_mounted_config_maps_and_secrets_is_seen(folder: Folder, network: Network) -> None:
    """The kubelet replaces the link `..data`, through which all files of such a volume are seen."""
    secrets = folder.path.parent / "secrets"
    publish(folder.path, {"dynamic-mcp.json": to_config(_with_token(), **BEARER)})
    publish(secrets, {"servers.env": "TOKEN=first"})
    volumes = (*folder.volumes, f"{secrets}:/secrets:ro")
    async with run_container(SLIM, *SERVE, network=network, volumes=volumes) as container:
        await wait_until_served(container)
        token = await container.make_token()
        async with container.client() as http:
            session = await begin_session(http, token)
            assert await read_token(session) == "first"
            publish(secrets, {"servers.env": "TOKEN=second"})

            async def is_second() -> bool:
                return await read_token(session) == "second"

            await wait_until(is_second)
            publish(folder.path, {"dynamic-mcp.json": to_config({**_with_token(), "new": HOLDING}, **BEARER)})
            await until_served(calls_of(http, session, session.version), "new")


def _with_token() -> dict[str, Json]:
    return {"it": {**HOLDING, "env_file": "/secrets/servers.env"}}


async def read_token(session: McpClient) -> str:
    """Return the variable that the server has from the secret."""
    who = json.loads(text_of((await session.call("it", "who"))["result"]))
    return str(who["environment"]["TOKEN"])


async def until_served(call: Callable[[str], Awaitable[dict[str, Json]]], group: str) -> None:
    """Repeat a call until the server of a group answers it."""

    async def is_answered() -> bool:
        answer = await call(group)
        return "error" not in answer and not answer["result"].get("isError")

    await wait_until(is_answered)


def calls_of(http: HttpClient, session: McpClient, version: str) -> Callable[[str], Awaitable[dict[str, Json]]]:
    """Return what calls a tool of a group, as clients of a revision do."""

    async def call(group: str) -> dict[str, Json]:
        if version == session.version:
            return await session.call(group, "who")
        params = {"name": "call_dynamic_tool", "arguments": {"group": group, "name": "who", "args": {}}}
        return await modern_requests.send(http, "tools/call", params, site=session.headers)

    return call


async def test_calls_in_flight_are_answered_before_it_ends(folder: Folder, network: Network, state: Path) -> None:
    calls, sessions = 24, 6
    volume = ("--volume", f"{state}:/state")
    async with serving(folder, network, *volume) as container, container.client() as http:
        token = await container.make_token()
        clients = [await begin_session(http, token) for _ in range(sessions)]
        held = [
            asyncio.create_task(clients[number % sessions].call("it", "hold", {"name": str(number)}))
            for number in range(calls)
        ]

        async def are_held() -> bool:
            return count_held(state) == calls

        async def is_ending() -> bool:
            response = await http.request("GET", "/ready")
            await response.read()
            return response.status == 503

        await wait_until(are_held, container.log)
        ending = asyncio.create_task(container.stop())
        await wait_until(is_ending)
        os.close(os.open(state / "release", os.O_CREAT))
        answers = await asyncio.gather(*held)
        assert [text_of(each["result"]) for each in answers] == [f"released {number}" for number in range(calls)]
        assert await ending == 0


def count_held(state: Path) -> int:
    """Return how many calls have reached the server."""
    return sum(each.name.startswith("held-") for each in state.iterdir())


async def test_a_signal_ends_it_before_it_has_started(folder: Folder, network: Network) -> None:
    """Process 1 would ignore a signal for which it has no handler yet."""
    async with run_container(SLIM, *SERVE, network=network, volumes=folder.volumes) as container:
        assert await container.stop() in (0, 128 + 15)


async def test_no_zombie_stays_of_a_command_in_it_nor_of_a_server_that_ends(folder: Folder, network: Network) -> None:
    async with serving(folder, network) as container, container.client() as http:
        session = await begin_session(http, await container.make_token())
        await session.call("it", "orphan")
        await container.run("sh", "-c", "(setsid true &)")
        folder.write({}, **BEARER)  # ends the server, and what it has left
        await container.until("sh", "-c", '! grep -lE "^State:.Z|^Name:.sleep" /proc/[0-9]*/status')


async def test_one_client_is_served_over_stdin_and_stdout_and_is_healthy(folder: Folder) -> None:
    folder.write()
    name = f"dm-stdio-{os.getpid()}"
    words = (
        "run",
        "--rm",
        "--interactive",
        "--network=none",
        *containers.CONFINED,
        *containers.LIMITS,
        "--name",
        name,
    )
    volumes = [word for each in folder.volumes for word in ("--volume", each)]
    process = await asyncio.create_subprocess_exec(
        *containers.podman(*words, *volumes, SLIM), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with asyncio.timeout(60):
        for message in (
            {"id": 1, "method": "initialize", "params": params},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
        assert {each["name"] for each in answers[1]["result"]["tools"]} == {"get_dynamic_tools", "call_dynamic_tool"}
        container = Container(name, "")
        await container.until("dynamic-mcp", "health")
        assert (await container.check_health()).code == 0
        process.stdin.close()
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("command", "args", "tool", "arguments", "words"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-everything@2026"], "echo", {"message": "hello"}, "hello"),
        ("uvx", ["mcp-server-time"], "get_current_time", {"timezone": "UTC"}, "datetime"),
    ],
)
async def test_full_runs_servers_of_npx_and_uvx(
    folder: Folder, command: str, args: list[str], tool: str, arguments: Json, words: str
) -> None:
    containers.build(FULL)
    folder.write({"it": {"command": command, "args": args, "timeout": {"connect": "3m"}}})
    port = free_port()
    options, serve = containers.certificate_options(), ("serve", "--http", str(port))
    async with run_container(FULL, *serve, is_online=True, volumes=folder.volumes, options=options) as container:
        await container.until("dynamic-mcp", "health")
        probes = {"npx": "npm view @modelcontextprotocol/server-everything", "uvx": "uvx mcp-server-time --help"}
        if (done := await container.execute(*probes[command].split())).code:
            pytest.skip(f"the registry of {command} cannot be reached: {done.err[-200:]}")
        async with HttpClient(f"http://127.0.0.1:{port}") as http:
            session = McpClient(http)
            await session.initialize()
            assert words in text_of((await session.call("it", tool, arguments))["result"])
