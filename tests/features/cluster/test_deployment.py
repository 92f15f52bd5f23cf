"""How replicas are run, as `doctor --deployment` asks them: keys, clocks, versions and configs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from dynamic_mcp.config.common_part import digest_of_replicas
from dynamic_mcp.config.read import read
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.features.cluster.deployment import check_keys, check_replicas, examine
from dynamic_mcp.features.cluster.peers import ReplicaFacts
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S, Json

RANDOM = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
OTHER = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ([RANDOM, OTHER], []),
        ([RANDOM], ["is one key"]),
        (["x" * 40, RANDOM], ["looks like an example"]),
        (["change-me-to-something-of-32-characters", RANDOM], ["looks like an example"]),
        ([RANDOM, RANDOM], ["is there twice"]),
    ],
)
def test_keys_that_are_guessed_or_alone_are_found(keys: list[str], what: list[str]) -> None:
    found = [*check_keys(keys)]
    assert len(found) == len(what)
    for each, words in zip(found, what, strict=True):
        assert words in each.what
        assert not [key for key in keys if key in each.what]


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (ReplicaFacts("b", __version__, "d1", 100.0), []),
        (ReplicaFacts("b", "0.0.1", "d1", 100.0), ["runs version 0.0.1"]),
        (ReplicaFacts("b", __version__, "d2", 100.0), ["has another config"]),
        (ReplicaFacts("b", __version__, "d1", 160.0), ["differs by 59 s"]),
        (ReplicaFacts("b", __version__, "d1", 40.0), ["differs by 60 s"]),
        ("it does not answer", ["10.0.0.1: it does not answer"]),
    ],
)
def test_replicas_that_disagree_are_named(said: ReplicaFacts | str, what: list[str]) -> None:
    found = [each for each in check_replicas({"10.0.0.1": said}, "d1", 100.0, 101.0) if each.level is not Level.OK]
    assert len(found) == len(what)
    assert all(words in each.what for each, words in zip(found, what, strict=True))


def test_the_common_part_is_the_same_whatever_the_name_and_the_form(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "c.json").write_text(text)
        return digest_of_replicas(tmp_path / "c.json")

    one = digest('{"mcpServers": {}, "settings": {"cluster": {"name": "a", "peers": "http://a", "keys": ["k"]}}}')
    same = digest('{"settings": {"cluster": {"keys": ["k"], "name": "b"}},\n// a comment\n"mcpServers": {}}')
    other = digest('{"mcpServers": {}, "settings": {"cluster": {"name": "a", "peers": "http://a", "keys": ["l"]}}}')
    assert one == same != other
    assert digest("{") == ""


async def test_replicas_that_run_are_compared_with_this_machine(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("same", "different", "stranger")}
    peers = [f"http://127.0.0.1:{port}" for port in (*ports.values(), free_port())]

    def settings(name: str, key: str = RANDOM, **more: Json) -> Json:
        return {"cluster": {"name": name, "peers": peers, "keys": [key]}, **more}

    folders = {name: tmp_path / name for name in (*ports, "doctor")}
    for each in folders.values():
        each.mkdir()
    file = folders["doctor"] / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {}, "settings": settings("doctor")}))
    async with (
        asyncio.timeout(BOUND_S),
        serving_http(folders["same"], {}, port=ports["same"], settings=settings("same")),
        serving_http(
            folders["different"], {}, port=ports["different"], settings=settings("different", log={"level": "debug"})
        ),
        serving_http(folders["stranger"], {}, port=ports["stranger"], settings=settings("stranger", OTHER)),
    ):
        found = {each.where: each for each in await examine(read(file, {})) if each.where.startswith("replica")}
        asked = [each.what for each in await examine(read(file, {})) if each.where == "settings.cluster.peers"]
    assert found["replica same"].level is Level.OK
    assert "has another config" in found["replica different"].what
    assert len(asked) == 2
    assert "has no valid signature: do the replicas have the same `keys`?" in asked[0]
    assert "it does not answer" in asked[1]
