"""What `settings.cluster` may say, and what is found wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Config, Remote
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.cluster.check import check
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.probe import probe
from dynamic_mcp.features.cluster.store_address import parse_address
from tests.fakes import Json, config_of, group_config
from tests.features.cluster.replicas import KEY, replicas

Read = Callable[..., Config]


@pytest.fixture
def read(read_config: Callable[..., Config]) -> Read:
    """Read a config with these settings of the cluster, and these variables."""
    return lambda cluster, **variables: read_config({"mcpServers": {}, "settings": {"cluster": cluster}}, **variables)


def cluster_of(config: Config) -> Cluster:
    found = config.settings_of("cluster", Cluster)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ("dns+http://replicas:8808", ("dns+http://replicas:8808",)),
        (["http://a:8808", "https://b"], ("http://a:8808", "https://b")),
        ("http://${HOST}:1", ("http://h:1",)),
    ],
)
def test_peers_are_one_url_or_several(read: Read, peers: Json, expected: Sequence[str]) -> None:
    assert cluster_of(read({"peers": peers, "keys": [KEY], "name": "a"}, HOST="h")).peers == expected


@pytest.mark.parametrize("peers", ["", [], ["x"], "ftp://a", "dns+", 7, [""], [7]])
def test_peers_that_are_no_urls_are_refused(read: Read, peers: Json) -> None:
    with pytest.raises(ConfigError) as refused:
        read({"peers": peers, "keys": [KEY]})
    assert "settings.cluster.peers" in str(refused.value)


def test_the_name_of_the_host_is_that_of_the_replica_by_default(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gateway_1.example.com.")
    assert cluster_of(read({"peers": "http://a", "keys": [KEY]})).replica == "gateway-1-example-com"


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"keys": ["short"]}, "fewer than 32 characters"),
        ({"keys": ["${UNSET}"]}, "`${UNSET}` is not set"),
        ({"name": "a.b"}, "letters, digits and `-` only"),
        ({"name": "${UNSET}"}, "`${UNSET}` is not set"),
    ],
)
def test_a_replica_that_cannot_be_one_of_several_serves_alone_and_says_so(
    read: Read, cluster: Json, words: str
) -> None:
    config = read({"peers": "http://a", "keys": [KEY], "name": "a", **cluster})
    assert config.cluster is None
    assert any(words in each for each in config.warnings)
    assert any("serves alone" in each for each in config.warnings)


@pytest.mark.parametrize("cluster", [{"keys": ["short"]}, {"keys": ["${UNSET}"]}, {"name": "a.b"}])
def test_a_replica_that_shares_a_store_does_not_go_on_without_it(read: Read, cluster: Json) -> None:
    with pytest.raises(ConfigError) as refused:
        read({"peers": "http://a", "keys": [KEY], "name": "a", "store": "sqlite:///tmp/a.sqlite", **cluster})
    assert refused.value.where.startswith(f"settings.cluster.{next(iter(cluster))}")


def test_a_short_key_comes_with_the_command_that_makes_one(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    cluster = {"peers": "http://a", "keys": ["${KEY}"], "name": "a"}
    file.write_text(json.dumps({"mcpServers": {}, "settings": {"cluster": cluster}}))
    _, findings = check_file(file, {"KEY": "short"})
    hints = {each.where: each.hint for each in findings if each.where.startswith("settings.cluster")}
    assert "openssl rand -hex 32" in hints["settings.cluster.keys[0]"]
    assert not hints["settings.cluster"]


def test_the_keys_are_not_shown(read: Read) -> None:
    assert KEY not in repr(cluster_of(read({"peers": "http://a", "keys": [KEY]})))


def test_a_server_that_each_replica_would_run_is_an_error() -> None:
    cluster = Cluster(peers=("http://a",), keys=(KEY,), name="a")
    remote = Remote(kind="http", url="http://server/mcp/x", headers={})
    config = config_of(group_config("own"), group_config("remote", upstream=remote), cluster=cluster)
    (finding,) = check(config, dict)
    assert (finding.level, finding.where) == (Level.ERROR, "mcpServers.own")


def test_a_server_that_each_replica_runs_on_purpose_is_none(read_config: Callable[..., Config]) -> None:
    servers = {"own": {"command": "own", "home": True}, "other": {"command": "other", "home": False}}
    cluster = {"peers": "http://a", "keys": [KEY], "name": "a"}
    config = read_config({"mcpServers": servers, "settings": {"cluster": cluster}})
    assert [each.where for each in check(config, dict)] == ["mcpServers.other"]


async def test_replicas_that_answer_are_named_and_others_counted() -> None:
    async with replicas() as pair:
        settings = Cluster(peers=(pair[0].url, pair[1].url, "http://127.0.0.1:1"), keys=(KEY,), name="doctor")
        missing, found = await probe(config_of(cluster=settings))
    assert missing.what == "addresses that do not answer as a replica: 1"
    assert found.what == "replicas: a, b"


async def test_a_name_without_an_address_is_reported() -> None:
    unresolvable = "a" * 64  # longer than a label may be, so no resolver is asked
    settings = Cluster(peers=(f"dns+http://{unresolvable}:8808",), keys=(KEY,), name="doctor")
    (finding,) = await probe(config_of(cluster=settings))
    assert (finding.level, finding.where) == (Level.WARNING, "settings.cluster.peers")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("valkey://cache", "valkey://cache:6379/0"),
        ("redis://user:${PASSWORD}@cache:7000/3", "redis://cache:7000/3"),
        ("valkeys://:p%40ss@[::1]/", "valkeys://[::1]:6379/0"),
        ("unix://:p@/run/valkey.sock?db=2", "unix:///run/valkey.sock"),
        ("sqlite:///var/lib/dynamic-mcp/shared.sqlite", "sqlite:///var/lib/dynamic-mcp/shared.sqlite"),
        ("rediss+sentinel://a,b:1/main?sentinel_password=s", "rediss+sentinel://a:26379,b:1/main/0"),
    ],
)
def test_a_store_is_shown_without_its_password(read: Read, url: str, shown: str) -> None:
    settings = cluster_of(read({"peers": "http://a", "keys": [KEY], "name": "a", "store": url}, PASSWORD="secret"))
    assert settings.store is not None
    address = parse_address(settings.store, Path())
    assert str(address) == shown
    assert "secret" not in repr(address) + repr(settings)
    assert address.password == {"redis": "secret", "valkeys": "p@ss", "unix": "p"}.get(address.scheme, "")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("cache:6379", "not a URL"),
        ("memcached://cache", "`memcached://`"),
        ("valkey://", "no valid host"),
        ("valkey://cache:port", "no valid host"),
        ("valkey://cache/one", "number of a database"),
        ("valkey://cache/0/1", "number of a database"),
        ("valkey://cache?timeout=1", "unknown option"),
        ("valkey://:pa#ss@cache", "`#`"),
        ("valkeys://cache?ssl_ca_certs=/none/ca.crt", "names no file"),
        ("valkey+sentinel://cache", "names no service"),
        ("unix://run/valkey.sock", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("valkey://${UNSET}", "`${UNSET}` is not set"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused(read: Read, url: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read({"peers": "http://a", "keys": [KEY], "name": "a", "store": url})
    assert (refused.value.where, words in refused.value.message) == ("settings.cluster.store", True), refused.value
    assert "pa#ss" not in str(refused.value)


def test_a_store_without_its_package_says_how_to_install_it(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.features.cluster.config.find_spec", lambda name: None)
    cluster = {"peers": "http://a", "keys": [KEY], "name": "a"}
    with pytest.raises(ConfigError) as refused:
        read({**cluster, "store": "valkey://cache"})
    assert re.search("install .*valkey`", refused.value.hint)
    assert cluster_of(read({**cluster, "store": "sqlite:///tmp/a.sqlite"})).store
