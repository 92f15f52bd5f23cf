"""`compose.yaml`: what it says is valid, and its services run together as it says, with Caddy and Valkey's protocol.

Its containers are started by podman with what the file says of them; Caddy and Redis are this machine's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.features.cluster.chart import parse_yaml
from tests.deployment import containers
from tests.deployment.containers import PORT, SERVERS, SERVERS_IMAGE, Network, open_network, run_container, wait_until
from tests.http_client import HttpClient
from tests.mcp_client import McpClient, Refused
from tests.program import text_of
from tests.reverse_proxies import caddy_login, find_program

pytestmark = [pytest.mark.full, pytest.mark.timeout(containers.BUILDS_WITHIN_S)]

Json = Any  # what a compose file says
FOLDER = containers.ROOT / "deploy" / "compose"
VARIABLES = {
    "DOMAIN": "mcp.example.com",
    "CLUSTER_KEY": "a-key-that-is-only-for-tests-0123456789",
    "VALKEY_PASSWORD": "a-password-of-the-tests",
}


def variables_of_example() -> list[str]:
    """Return the names in the example of `.env`, also those that are only for logins."""
    return re.findall(r"^#?([A-Z_0-9]+)=", (FOLDER / "example.env").read_text(encoding="utf-8"), re.MULTILINE)


def read_compose() -> Json:
    """Return the compose file with its variables filled in, as compose does."""
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    values = {**VARIABLES, "CONFIG": "dynamic-mcp.json"}
    filled = re.sub(r"(?<!\$)\$\{(\w+)(?::-([^}]*))?\}", lambda found: values.get(found[1], found[2] or ""), text)
    return parse_yaml(filled.replace("$$", "$"))


@pytest.mark.parametrize("profile", ["", "login"])
def test_the_file_is_valid_and_asks_for_no_variable_that_the_example_lacks(tmp_path: Path, profile: str) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("not installed: docker-compose")
    environment = tmp_path / "env"
    given = {**dict.fromkeys(variables_of_example(), "x"), **VARIABLES}
    environment.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
    options = ["--profile", profile] if profile else []
    done = subprocess.run(
        [program, *options, "--env-file", str(environment), "-f", str(FOLDER / "compose.yaml"), "config"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "variable is not set" not in done.stderr
    services = parse_yaml(done.stdout)["services"]
    wanted = {"dynamic-mcp", "caddy", "valkey"} | ({"oauth2-proxy"} if profile else set())
    assert wanted <= set(services)


@pytest.mark.parametrize("name", ["dynamic-mcp", "login"])
def test_its_configs_are_valid_and_go_with_the_rest(name: str) -> None:
    config = read(FOLDER / "config" / f"{name}.json", VARIABLES)
    assert config.http is not None
    assert config.http.public_url is not None
    compose = read_compose()
    assert config.http.public_url.startswith(f"https://{VARIABLES['DOMAIN']}/")
    caddy = compose["services"]["caddy"]["networks"]["front"]["ipv4_address"]
    assert set(config.http.forwarders) <= {caddy}
    assert "valkey" in compose["services"]
    assert "@valkey:6379/" in str(getattr(config.cluster, "store", None))


@pytest.fixture
def network() -> Iterator[Network]:
    """Return a network that nothing leaves."""
    containers.build(SERVERS_IMAGE)
    for program in ("caddy", "redis-server"):
        if find_program(program) is None:
            pytest.skip(f"not installed: {program}")
    with open_network() as network:
        yield network


@contextmanager
def running_store(command: list[str], folder: Path, address: str) -> Iterator[None]:
    """Run what the file starts as Valkey, as Redis of this machine at an address."""
    words = [each.replace("valkey-server", f"redis-server --bind {address}") for each in command]
    environment = {"PATH": os.environ["PATH"], "VALKEY_PASSWORD": VARIABLES["VALKEY_PASSWORD"]}
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def test_its_services_run_together(network: Network, tmp_path: Path) -> None:
    compose = read_compose()
    service = compose["services"]["dynamic-mcp"]
    config = tmp_path / "config"
    shutil.copytree(FOLDER / "config", config)
    replace_servers(config / "dynamic-mcp.json")
    hosts = tmp_path / "hosts"
    here = f"{network.prefix}.1"
    hosts.write_text(f"127.0.0.1 localhost\n{here} valkey\n", encoding="utf-8")
    volumes = [each.replace("./config:", f"{config}:") for each in service["volumes"] if not each.startswith("state")]
    options = [f"--env={name}={value}" for name, value in service["environment"].items()]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])  # as all containers of the tests
    with running_store(compose["services"]["valkey"]["command"], tmp_path, here):
        async with run_container(
            SERVERS_IMAGE,
            *service["command"],
            network=network,
            volumes=[*volumes, f"{hosts}:/etc/hosts:ro", f"{SERVERS}:/servers:ro"],
            options=options,
        ) as container:

            async def is_healthy() -> bool:
                return (await container.check_health()).code == 0

            await wait_until(is_healthy, container.log)
            token = await container.make_token("alice")
            address = f"{container.address}:{PORT}"
            async with caddy_login(tmp_path, address, "127.0.0.1:9") as site, HttpClient(site.origin) as http:
                headers = {"Host": site.headers["host"], "Authorization": f"Bearer {token}"}
                session = McpClient(http, headers=headers)
                await session.initialize()
                who = json.loads(text_of((await session.call("it", "who"))["result"]))
                assert who["uid"] == 1000
                with pytest.raises(Refused):
                    await McpClient(http, headers={**headers, "Authorization": "Bearer dmcp_x"}).initialize()
            found = json.loads(await container.run("dynamic-mcp", "cluster", "check", "--json"))
            assert [each for each in found if each["level"] == "error"] == []


def replace_servers(file: Path) -> None:
    """Put a server of the tests in the place of those that are fetched."""
    server = {"command": "python3", "args": ["/servers/holding.py", "/state"], "home": True}
    text = file.read_text(encoding="utf-8")
    servers = f'"mcpServers": {json.dumps({"it": server})},'
    text, count = re.subn(r'"mcpServers": \{.*?^  \},', servers, text, flags=re.DOTALL | re.MULTILINE)
    assert count == 1
    file.write_text(text, encoding="utf-8")
