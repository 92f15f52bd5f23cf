"""The pack of docker, with a real client and a daemon's API on a socket: what works, and what docker must not do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import tool_name
from tests.fakes import Json
from tests.upstream.cli.packs import Place, error_of, output_of, refusal_of

if sys.platform == "win32":
    pytest.skip("the daemon is on a Unix socket", allow_module_level=True)

CONTAINER = {"Id": "0123456789abcdef", "Names": ["/web"], "Image": "nginx", "State": "running", "Status": "Up"}


class Daemon:
    """The API of a daemon that knows one container and agrees to everything."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.requests: list[str] = []
        self.bodies: list[Json] = []

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._answer, self.socket)
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split(" ")
        self.requests.append(f"{method} {target}")
        if body:
            self.bodies.append(json.loads(body))
        content = json.dumps(_answer_to(target)).encode()
        start = "HTTP/1.1 200 OK\r\nApi-Version: 1.49\r\nOstype: linux\r\nContent-Type: application/json\r\n"
        writer.write(f"{start}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()


def _answer_to(target: str) -> Json:
    if "/containers/json" in target:
        return [CONTAINER]
    return {"Id": "0123456789abcdef", "Warnings": []}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "docker")


@pytest.fixture
async def daemon(place: Place) -> AsyncIterator[Daemon]:
    made = Daemon(place.folder / "daemon")
    place.environment["DOCKER_HOST"] = f"unix://{made.socket}"
    async with made.serve():
        yield made


@pytest.mark.full
async def test_containers_are_listed_made_and_stopped(place: Place, daemon: Daemon) -> None:
    async with place.serve() as client:
        listed = {"all": True, "filter": ["status=running"], "format": "{{.Names}}"}
        assert await output_of(client, "docker_ps", listed) == "web\n"
        wanted = {
            "image": "alpine",
            "command": ["ls", "--privileged", "-v"],
            "detach": True,
            "env": ["A=b=c"],
            "cpus": 0.5,
        }
        assert "0123456789ab" in await output_of(client, "docker_run", {**wanted, "memory": "64m", "network": "none"})
        await output_of(client, "docker_stop", {"containers": ["web"], "timeout": 3})
        await output_of(client, "docker_tag", {"source": "alpine", "target": "mine:1"})

    [made] = daemon.bodies
    assert made["Cmd"] == ["ls", "--privileged", "-v"]
    assert made["Env"] == ["A=b=c"]
    assert made["HostConfig"]["Privileged"] is False
    assert made["HostConfig"]["NetworkMode"] == "none"
    assert made["HostConfig"]["Memory"] == 64 << 20
    assert any("/containers/web/stop?t=3" in each for each in daemon.requests)


@pytest.mark.full
async def test_without_a_daemon_there_is_a_clear_error(place: Place) -> None:
    place.environment["DOCKER_HOST"] = f"unix://{place.folder / 'nobody'}"
    async with place.serve() as client:
        assert "Cannot connect to the Docker daemon" in await error_of(client, "docker_ps", {})


# --- dangers -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("flag", "member"),
    [
        ("--privileged", "Privileged"),
        ("--volume=/:/host", "Binds"),
        ("--mount=type=bind,source=/,target=/host", "Mounts"),
        ("--volumes-from=other", "VolumesFrom"),
        ("--device=/dev/null", "Devices"),
        ("--device-cgroup-rule=c 1:3 r", "DeviceCgroupRules"),
        ("--cap-add=ALL", "CapAdd"),
        ("--security-opt=seccomp=unconfined", "SecurityOpt"),
        ("--pid=host", "PidMode"),
        ("--ipc=host", "IpcMode"),
        ("--uts=host", "UTSMode"),
        ("--userns=host", "UsernsMode"),
        ("--cgroupns=host", "CgroupnsMode"),
        ("--cgroup-parent=/x", "CgroupParent"),
        ("--publish=80:80", "PortBindings"),
        ("--publish-all", "PublishAllPorts"),
        ("--group-add=0", "GroupAdd"),
        ("--gpus=all", "DeviceRequests"),
        ("--runtime=x", "Runtime"),
        ("--restart=always", "RestartPolicy"),
        ("--sysctl=net.ipv4.ip_forward=1", "Sysctls"),
        ("--volume-driver=x", "VolumeDriver"),
        ("--log-driver=x", "LogConfig"),
    ],
)
async def test_no_container_gets_anything_of_the_host(place: Place, daemon: Daemon, flag: str, member: str) -> None:
    for words in ((flag,), ()):
        await asyncio.to_thread(place.run, "run", "--detach", *words, "alpine", "ls")
    with_flag, without = (each["HostConfig"].get(member) for each in daemon.bodies)
    assert with_flag != without
    daemon.bodies.clear()
    name, _, value = flag.removeprefix("--").partition("=")

    async with place.serve() as client:
        given = {"image": "alpine", name.replace("-", "_"): value or True}
        await refusal_of(client, "docker_run", given)
        await refusal_of(client, "docker_exec", {"container": "web", "command": ["ls"], **given})
        await client.call("it", "docker_run", {"image": flag, "command": ["alpine", "ls"], "detach": True})
        await output_of(client, "docker_run", {"image": "alpine", "command": [flag, "ls"], "detach": True})

    assert [each["HostConfig"].get(member) for each in daemon.bodies] == [without] * len(daemon.bodies)
    assert daemon.bodies


@pytest.mark.full
async def test_no_network_of_the_host_and_no_variable_of_the_proxy_is_given(place: Place, daemon: Daemon) -> None:
    (place.folder / "variables").write_text("SECRET=text\n")
    words = ("--network=host", "--env=HOME", f"--env-file={place.folder / 'variables'}")
    await asyncio.to_thread(place.run, "run", "--detach", *words, "alpine")
    assert daemon.bodies[0]["HostConfig"]["NetworkMode"] == "host"
    assert daemon.bodies[0]["Env"] == ["SECRET=text", f"HOME={place.folder}"]
    daemon.bodies.clear()

    async with place.serve() as client:
        for more in (
            {"network": "host"},
            {"network": "container:web"},
            {"env": ["HOME"]},
            {"env_file": ["variables"]},
        ):
            await error_of(client, "docker_run", {"image": "alpine", "detach": True, **more})

    assert daemon.bodies == []


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [("--host=unix:///nobody",), ("-Hunix:///nobody",), ("--context=other",), ("--config=other",)]
)
async def test_no_tool_talks_to_another_daemon(place: Place, daemon: Daemon, words: tuple[str, ...]) -> None:
    (place.work / "other").mkdir()
    await asyncio.to_thread(place.run, *words, "ps", DOCKER_HOST="")
    assert daemon.requests == []
    names = {"--host", "-H", "--context", "-c", "--config", "--tls", "--tlscacert", "--tlscert", "--tlskey"}
    for each in library.read_shipped("docker").commands:
        there = {name for flag in each.flags for name in (flag.name, *flag.aliases)} & names
        assert there <= ({"-H"} if each.name == "history" else set())

    async with place.serve() as client:
        for each in library.read_shipped("docker").commands:
            tool = tool_name("docker", each.name)
            flag = words[0].lstrip("-").partition("=")[0]
            if each.positionals and each.name != "build":
                needed = [one for one in each.positionals if one.required or one is each.positionals[0]]
                given = {one.name: [words[0]] if one.repeatable else words[0] for one in needed}
                await client.call("it", tool, given)
            await refusal_of(client, tool, {flag.lower(): "x"})

    assert daemon.requests


@pytest.mark.full
async def test_no_plugin_is_run_from_another_directory(place: Place, daemon: Daemon) -> None:
    place.make_script("work/settings/cli-plugins/docker-buildx")
    (place.work / "Dockerfile").write_text("FROM scratch\n")
    await asyncio.to_thread(place.run, "--config=settings", "build", ".")
    assert place.takes_mark()

    async with place.serve({"DOCKER_CONFIG": str(place.work / "settings")}) as client:
        for tool, arguments in (("docker_build", {"directory": "."}), ("docker_info", {}), ("docker_version", {})):
            await client.call("it", tool, arguments)
            assert not place.takes_mark()


@pytest.mark.full
async def test_nothing_is_built_from_another_place(place: Place, daemon: Daemon) -> None:
    (place.folder / "Dockerfile").write_text("FROM scratch\n")
    sources = ("-", "..", "https://127.0.0.1:1/x.git", "git@127.0.0.1:x/y", "https://127.0.0.1:1/x.git#main")
    async with place.serve() as client:
        for source in sources:
            await refusal_of(client, "docker_build", {"directory": source})
        given = {"directory": ".", "file": "../Dockerfile"}
        await refusal_of(client, "docker_build", given)
        for name in ("secret", "ssh", "output", "build_context", "allow", "network", "iidfile", "metadata_file"):
            await refusal_of(client, "docker_build", {"directory": ".", name: "x"})
