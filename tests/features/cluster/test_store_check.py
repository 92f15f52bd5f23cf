"""`dynamic-mcp cluster check` says what a store lacks; the users and certificates of the documents are enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.store import reseal
from dynamic_mcp.features.cluster.store_address import parse_address
from dynamic_mcp.features.cluster.store_probe import ACL_RULES, COMMANDS, probe_store
from dynamic_mcp.system.shared_store import StoreFailure, StoreSpace
from tests.features.cluster.replicas import KEY
from tests.features.cluster.store_servers import StoreServer, failure_of, open_valkey, store_server, until
from tests.journeys.remote_server import free_port

PLAIN = StoreSpace("plain")
SCALING = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoreServer]:
    with store_server(tmp_path) as running:
        yield running


async def check_store(url: str, folder: Path = Path()) -> list[Finding]:
    return await probe_store(Cluster(peers=("http://a",), keys=(KEY,), name="a", store=url), folder)


def worst(findings: list[Finding]) -> str:
    """Return what the errors say."""
    return "; ".join(f"{each.what} ({each.hint})" for each in findings if each.level is Level.ERROR)


async def test_a_file_of_one_machine_is_tried_too(tmp_path: Path) -> None:
    (finding,) = await check_store((tmp_path / "store" / "shared.sqlite").as_uri().replace("file:", "sqlite:"))
    assert finding.level is Level.OK
    assert finding.what.startswith("all operations work")


async def test_a_file_has_nothing_to_seal_anew(tmp_path: Path) -> None:
    settings = Cluster(peers=("http://a",), keys=(KEY,), name="a", store="sqlite:///shared.sqlite")
    with pytest.raises(DynamicMcpError, match="is not sealed"):
        await reseal(settings, tmp_path)


async def test_a_store_that_is_not_there_is_an_error() -> None:
    assert "cannot be reached" in worst(await check_store(f"valkey://127.0.0.1:{free_port()}"))


@pytest.mark.full
async def test_a_store_that_has_all_is_told_how_fast_it_is(server: StoreServer) -> None:
    server.ask("CONFIG", "SET", "appendonly", "yes")
    server.ask("CONFIG", "SET", "maxmemory", "64mb")
    findings = await check_store(server.url)
    assert [each.level for each in findings] == [Level.OK, Level.OK]
    assert re.fullmatch(r"(Redis|Valkey) \d+\.\d+\.\d+", findings[0].what)
    assert re.search(r"waits \d+\.\d+ ms", findings[1].what)


@pytest.mark.full
async def test_a_store_that_may_forget_is_warned_of(server: StoreServer) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    said = {each.what: each.hint for each in await check_store(server.url) if each.level is not Level.OK}
    assert len(said) == 3
    assert (
        "maxmemory-policy noeviction"
        in said["it forgets entries when it is full (`allkeys-lru`), revocations among them"]
    )
    assert "appendonly yes" in "".join(said.values())


@pytest.mark.full
async def test_the_user_of_the_documents_is_enough_and_may_do_nothing_else(
    server: StoreServer, tmp_path: Path
) -> None:
    assert ACL_RULES in SCALING.read_text(encoding="utf-8")
    server.ask("ACL", "SETUSER", "dynamic-mcp", "on", ">secret", *ACL_RULES.split())
    url = server.url.replace("//", "//dynamic-mcp:secret@")
    assert worst(await check_store(url)) == ""
    async with open_valkey(parse_address(url, tmp_path)) as store:
        heard: list[bytes | None] = []
        store.subscribe(PLAIN, heard.append)
        await until(lambda: None in heard)
        await store.publish(PLAIN, b"hello")
        await until(lambda: b"hello" in heard)
    login = ("--user", "dynamic-mcp", "--pass", "secret")
    for command in (
        ("GET", "other"),
        ("FLUSHALL",),
        ("KEYS", "*"),
        ("CONFIG", "GET", "*"),
        ("PUBLISH", "other", "x"),
    ):
        assert "NOPERM" in server.ask(*login, *command)


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
async def test_each_command_of_the_documents_is_needed_and_its_lack_is_named(
    server: StoreServer, command: str
) -> None:
    server.ask("ACL", "SETUSER", "dynamic-mcp", "on", ">secret", *ACL_RULES.split(), f"-{command}")
    url = server.url.replace("//", "//dynamic-mcp:secret@")
    findings = await check_store(f"{url.removesuffix('/0')}/1")
    if command == "info":
        assert any(each.level is Level.NOTE and "`info`" in each.what for each in findings)
    elif command == "select":
        assert "refuses" in worst(findings)
        assert "select" in worst(findings)
    else:
        assert f"may not use: `{command}`" in worst(findings)


@pytest.mark.full
async def test_a_user_who_may_not_use_the_keys_is_told_so(server: StoreServer) -> None:
    server.ask("ACL", "SETUSER", "other", "on", ">secret", "~other:*", "&*", "+@all")
    said = worst(await check_store(server.url.replace("//", "//other:secret@")))
    assert "may not use" in said
    assert "~dynamic-mcp:1:*" in said


@pytest.mark.full
async def test_a_server_of_a_valkey_cluster_is_an_error(tmp_path: Path) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--databases", "1")
    with store_server(tmp_path, "redis-server", *options) as server:
        assert "cluster" in worst(await check_store(server.url))


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Make the certificates as the documents do; return their folder."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    text = SCALING.read_text(encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(openssl req -x509.*?)```", text, re.DOTALL)
    commands = commands.replace("DNS:valkey.internal", "DNS:valkey.internal,IP:127.0.0.1")
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    return tmp_path


@pytest.fixture
def secure_server(tmp_path: Path, certificates: Path) -> Iterator[tuple[StoreServer, int]]:
    """A server that takes TLS on a second port."""
    port = free_port()
    files = ("--tls-cert-file", "valkey.crt", "--tls-key-file", "valkey.key", "--tls-ca-cert-file", "ca.crt")
    with store_server(certificates, "redis-server", "--tls-port", str(port), *files) as running:
        yield running, port


@pytest.mark.full
async def test_the_certificates_of_the_documents_are_enough(
    secure_server: tuple[StoreServer, int], certificates: Path
) -> None:
    _, port = secure_server
    client = "ssl_ca_certs=ca.crt&ssl_certfile=replica.crt&ssl_keyfile=replica.key"
    assert worst(await check_store(f"valkeys://127.0.0.1:{port}/0?{client}", certificates)) == ""
    async with open_valkey(parse_address(f"rediss://127.0.0.1:{port}/0?{client}", certificates)) as store:
        assert await store.put(PLAIN, "a", b"1", 60)


@pytest.mark.full
@pytest.mark.parametrize("query", ["", "?ssl_ca_certs=ca.crt"])
async def test_a_certificate_that_is_not_trusted_or_not_shown_is_refused(
    secure_server: tuple[StoreServer, int], certificates: Path, query: str
) -> None:
    _, port = secure_server
    address = parse_address(f"valkeys://127.0.0.1:{port}{query}", certificates)
    async with open_valkey(address) as store:
        assert await failure_of(store.put(PLAIN, "a", b"1", 60)) in (StoreFailure.DOWN, StoreFailure.SLOW)


@pytest.mark.full
async def test_a_certificate_for_another_name_is_refused(
    secure_server: tuple[StoreServer, int], certificates: Path
) -> None:
    _, port = secure_server
    query = "ssl_ca_certs=ca.crt&ssl_certfile=replica.crt&ssl_keyfile=replica.key"
    async with open_valkey(parse_address(f"valkeys://localhost:{port}?{query}", certificates)) as store:
        assert await failure_of(store.put(PLAIN, "a", b"1", 60)) is StoreFailure.DOWN
