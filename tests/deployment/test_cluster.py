"""A service from its manifests, run without a cluster: two gateways, and a server in a pod of its own.

What `cluster render` prints is started by a small kubelet, from the image, in networks of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from dynamic_mcp.features.cluster.chart import parse_documents
from dynamic_mcp.features.cluster.render import render
from tests.deployment import containers, kubelet
from tests.deployment.containers import PORT, SERVERS_IMAGE, Network, open_network, wait_until
from tests.deployment.kubelet import Cluster, Pod
from tests.http_client import Disconnected, HttpClient
from tests.mcp_client import McpClient, Refused
from tests.program import Json, text_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(containers.BUILDS_WITHIN_S)]

NAME = "mcp"
SERVER = "mcp-server-it"
HOLDING = {"command": "python3", "args": ["/servers/holding.py", "/state"]}
TOKEN, NEW_TOKEN = "a-token-of-a-client-of-the-tests-1", "a-token-of-a-client-of-the-tests-2"


@pytest.fixture
def network() -> Iterator[Network]:
    """Return a network that nothing leaves."""
    containers.build(SERVERS_IMAGE)
    with open_network() as network:
        yield network


class Service:
    """A config with its secrets, and what they are rendered to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def render(self, token: str = TOKEN, **servers: Json) -> list[Json]:
        """Return the objects for a server `it`, and others."""
        auth = [{"kind": "bearer", "tokens": [{"token": "${CI_TOKEN}", "subject": "ci"}]}]
        http = {"public_url": "https://mcp.example.com/mcp", "auth": auth}
        config = {"mcpServers": {"it": HOLDING, **servers}, "settings": {"http": http}}
        file, secrets = self._folder / "dynamic-mcp.json", self._folder / "secrets.env"
        file.write_text(json.dumps(config), encoding="utf-8")
        secrets.write_text(
            f"CI_TOKEN={token}\nCLUSTER_KEY=a-key-that-is-only-for-tests-0123456789\n", encoding="utf-8"
        )
        changes = (f"image={SERVERS_IMAGE}",)
        rendering = render(file, NAME, values_file=None, changes=changes, secrets_file=secrets)
        return [each for each in parse_documents(rendering.manifests) if each is not None]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """Return a config whose only server is a program."""
    return Service(tmp_path / "service")


@asynccontextmanager
async def running(service: Service, network: Network, folder: Path) -> AsyncIterator[Cluster]:
    """Run the service."""
    async with kubelet.running(service.render(), network, folder) as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return where the volumes are."""
    folder = tmp_path / "node"
    folder.mkdir()
    return folder


class Clients:
    """Sessions whose requests all go to one address, until they are closed."""

    def __init__(self) -> None:
        self._all: list[HttpClient] = []

    async def begin(self, address: str, token: str = TOKEN) -> McpClient:
        """Begin a session. Raises Refused."""
        session = self._make(address, {"Host": "mcp.example.com", "Authorization": f"Bearer {token}"})
        await session.initialize()
        return session

    def move(self, session: McpClient, address: str) -> McpClient:
        """Return a session whose requests go to another address."""
        other = self._make(address, session.headers)
        other.id, other.version = session.id, session.version
        return other

    async def close(self) -> None:
        for each in self._all:
            await each.close()

    def _make(self, address: str, headers: Mapping[str, str]) -> McpClient:
        http = HttpClient(f"http://{address}:{PORT}")
        self._all.append(http)
        return McpClient(http, headers=headers)


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    """Return what begins sessions, which are closed at the end."""
    made = Clients()
    yield made
    await made.close()


def count_held(pod: Pod) -> int:
    """Return how many calls have reached the server of a pod."""
    return sum(each.name.startswith("held-") for each in (pod.folder / "state").iterdir())


def release(pod: Pod) -> None:
    """Let all calls of the server of a pod end."""
    (pod.folder / "state" / "release").touch()


async def hold(session: McpClient, name: str) -> str:
    """Make a call that lasts until it is released, and return what it answers."""
    return text_of((await session.call("it", "hold", {"name": name}))["result"])


async def until_held(cluster: Cluster, pod: Pod, count: int) -> None:
    async def are_held() -> bool:
        return count_held(pod) == count

    await wait_until(are_held, cluster.describe)


async def test_a_session_is_one_at_all_gateways_and_its_server_runs_once(
    service: Service, network: Network, place: Path, clients: Clients
) -> None:
    async with running(service, network, place) as cluster:
        first, second = cluster.pods_of(NAME)
        session = await clients.begin(first.address)
        seen = [
            json.loads(text_of((await clients.move(session, each.address).call("it", "who"))["result"]))
            for each in (first, second)
        ]
        (server,) = cluster.pods_of(SERVER)
        assert [(each["host"], each["uid"]) for each in seen] == [(server.name, 1000)] * 2
        assert seen[0]["pid"] == seen[1]["pid"]
        by_service = await clients.begin(cluster.address_of(NAME))
        assert json.loads(text_of((await by_service.call("it", "who"))["result"]))["pid"] == seen[0]["pid"]
        with pytest.raises(Refused):
            await clients.begin(server.address)  # it is for the gateways alone


async def test_no_call_is_lost_when_a_gateway_is_drained(
    service: Service, network: Network, place: Path, clients: Clients
) -> None:
    calls = 16
    async with running(service, network, place) as cluster:
        first, second = cluster.pods_of(NAME)
        (server,) = cluster.pods_of(SERVER)
        begun = [await clients.begin(each.address) for each in (first, second, first, second)]
        # two of the sessions are used at the gateway that has not begun them
        ways = [*begun[:2], clients.move(begun[2], second.address), clients.move(begun[3], first.address)]
        held = [asyncio.create_task(hold(ways[number % 4], str(number))) for number in range(calls)]
        await until_held(cluster, server, calls)
        ending = asyncio.create_task(cluster.drain(first))

        async def is_ending() -> bool:
            return not await containers.is_answered(_container_of(first), "/ready")

        await wait_until(is_ending, cluster.describe)
        release(server)
        assert sorted(await asyncio.gather(*held)) == sorted(f"released {number}" for number in range(calls))
        assert await ending == 0
        await cluster.until_ready()
        third = next(each for each in cluster.pods_of(NAME) if each is not second)
        session = await clients.begin(second.address)
        assert await hold(clients.move(session, third.address), "after") == "released after"


async def test_calls_of_a_gateway_that_is_killed_say_so_and_the_next_ones_work(
    service: Service, network: Network, place: Path, clients: Clients
) -> None:
    async with running(service, network, place) as cluster:
        first, second = cluster.pods_of(NAME)
        (server,) = cluster.pods_of(SERVER)
        session, other = await clients.begin(first.address), await clients.begin(first.address)
        through = asyncio.create_task(clients.move(other, second.address).call("it", "hold", {"name": "through"}))
        direct = asyncio.create_task(hold(session, "direct"))
        await until_held(cluster, server, 2)
        await cluster.kill(first)
        with pytest.raises((Disconnected, OSError)):
            await direct
        assert "may have run" in str(await through)
        release(server)
        assert await hold(await clients.begin(second.address), "other") == "released other"
        await until_started_again(cluster, first)
        assert await hold(await clients.begin(first.address), "again") == "released again"


async def test_calls_of_a_server_that_is_killed_say_so_and_the_next_ones_work(
    service: Service, network: Network, place: Path, clients: Clients
) -> None:
    async with running(service, network, place) as cluster:
        (server,) = cluster.pods_of(SERVER)
        session = await clients.begin(cluster.address_of(NAME))
        held = asyncio.create_task(session.call("it", "hold", {"name": "it"}))
        await until_held(cluster, server, 1)
        await cluster.kill(server)
        assert "may have run" in str(await held)
        await until_started_again(cluster, server)
        release(server)  # its volume is still there

        async def is_answered() -> bool:
            return "released" in str(await session.call("it", "hold", {"name": "again"}))

        await wait_until(is_answered, cluster.describe)


async def test_a_changed_config_and_a_changed_secret_take_effect_without_a_restart(
    service: Service, network: Network, place: Path, clients: Clients
) -> None:
    async with running(service, network, place) as cluster:
        gateways = cluster.pods_of(NAME)
        sessions = [await clients.begin(each.address) for each in gateways]
        url = f"http://{SERVER}:{PORT}/mcp/it"
        remote = {"url": url, "headers": {"Authorization": "Bearer ${SERVER_TOKEN_IT}"}}
        await cluster.apply(service.render(second=remote))
        for session in sessions:

            async def is_served(session: McpClient = session) -> bool:
                answer = await session.call("second", "who")
                return "result" in answer and not answer["result"].get("isError")

            await wait_until(is_served, cluster.describe)
        await cluster.apply(service.render(NEW_TOKEN, second=remote))
        for gateway in gateways:

            async def is_accepted(gateway: Pod = gateway) -> bool:
                try:
                    await clients.begin(gateway.address, NEW_TOKEN)
                except Refused:
                    return False
                return True

            await wait_until(is_accepted, cluster.describe)
            with pytest.raises(Refused):
                await clients.begin(gateway.address)
        assert [each.starts for each in cluster.pods.values()] == [1, 1, 1]


async def until_started_again(cluster: Cluster, pod: Pod) -> None:
    async def has_started() -> bool:
        return pod.starts > 1 and pod.is_ready

    await wait_until(has_started, cluster.describe)


def _container_of(pod: Pod) -> containers.Container:
    assert pod.container is not None
    return pod.container
