"""`add`, `doctor`, `check`, `packages` and `registry update` about packages, with registries on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dynamic_mcp.config import jsonc
from tests.cli.commands import CliRunner
from tests.features.provenance.fake_packages import FakePackages
from tests.features.provenance.looking import fake
from tests.features.provenance.signing import REPOSITORY
from tests.features.registry.documents import time
from tests.features.registry.fake_registry import FakeRegistry, fake_registry

__all__ = ["fake"]

NAME = "@acme/weather"
# What the tests set for all, so that no registry of the world is asked.
ONLINE = {"npm_config_offline": "false", "UV_OFFLINE": "false"}
DIGEST = f"sha256:{'ab' * 32}"


def args_of(cli: CliRunner, name: str) -> Any:
    document: Any = jsonc.loads(cli.config.read_text())
    return document["mcpServers"][name]["args"]


def test_add_shows_where_a_package_comes_from_and_writes_what_was_given(cli: CliRunner, fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", is_attested=True)
    done = cli.run("add", "weather", "--", "npx", "-y", NAME, **fake.environment)
    assert done.code == 0
    assert f"package: npm package `{NAME}` `1.0.0` (the newest, since its entry names no version)" in done.err
    assert f"warning: npm package `{NAME}` `1.0.0` is attested to be built from `{REPOSITORY}`" in done.err
    assert "hint: anyone could have made this attestation" in done.err
    assert args_of(cli, "weather") == ["-y", NAME]


@pytest.mark.parametrize(
    ("words", "pinned"),
    [
        (["npx", "-y", NAME, "x"], ["-y", f"{NAME}@1.0.0", "x"]),
        (["npx", f"--package={NAME}@latest", "weather"], [f"--package={NAME}@1.0.0", "weather"]),
        (["uvx", "--from", "mcp-weather[all]", "weather"], ["--from", "mcp-weather[all]==2.0", "weather"]),
        (["uvx", "mcp-weather==1.0"], ["mcp-weather==1.0"]),
    ],
)
def test_add_pins_the_version_of_now(cli: CliRunner, fake: FakePackages, words: list[str], pinned: list[str]) -> None:
    fake.publish_npm(NAME, "1.0.0")
    fake.publish_pypi("mcp-weather", "1.0")
    fake.publish_pypi("mcp-weather", "2.0")
    done = cli.run("add", "weather", "--pin", "--", *words, **fake.environment)
    assert done.code == 0, done.err
    assert args_of(cli, "weather") == pinned


def test_add_pins_the_digest_of_an_image(cli: CliRunner, fake: FakePackages) -> None:
    fake.answer("/v2/acme/weather/manifests/1.0", {}, docker_content_digest=DIGEST)
    image = f"{fake.host}/acme/weather:1.0"
    assert cli.run("add", "weather", "--pin", "--", "docker", "run", "-i", image).code == 0
    assert args_of(cli, "weather") == ["run", "-i", f"{image}@{DIGEST}"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--", "npx", f"{NAME}@^1"], "it asks for `^1`: write the version that you want instead"),
        (["--", "npx", "github:acme/weather"], "which is not in a registry"),
        (["--", "npx", "no-such-package"], "its registry has no such package"),
        (["--", "python", "server.py"], "it runs no package"),
        (["--url", "https://example.com/mcp"], "--pin goes with a package"),
    ],
)
def test_what_cannot_be_pinned_is_not_added(cli: CliRunner, fake: FakePackages, words: list[str], why: str) -> None:
    fake.publish_npm(NAME, "1.0.0")
    cli.configure({})
    before = cli.config.read_bytes()
    done = cli.run("add", "weather", "--pin", *words, **fake.environment)
    assert done.code == 2
    assert why in done.err
    assert cli.config.read_bytes() == before


def test_a_package_that_is_not_what_is_attested_is_not_added(cli: CliRunner, fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", provenance=fake.attest(NAME, "0.0.1"))
    cli.configure({})
    before = cli.config.read_bytes()
    done = cli.run("add", "weather", "--", "npx", NAME, **fake.environment)
    assert done.code == 3
    assert "has an attestation that does not hold: it is about another file" in done.err
    assert "hint: do not run it" in done.err
    assert cli.config.read_bytes() == before


def test_add_works_where_no_registry_can_be_asked(cli: CliRunner) -> None:
    silent = {"npm_config_registry": "http://127.0.0.1:1", "npm_config_offline": "false"}
    done = cli.run("add", "weather", "--", "npx", NAME, **silent)
    assert done.code == 0
    assert "could not be asked: `127.0.0.1` refuses connections" in done.err
    assert args_of(cli, "weather") == [NAME]


def test_a_name_that_looks_like_a_known_one_is_a_warning_also_offline(cli: CliRunner) -> None:
    done = cli.run("add", "files", "--", "npx", "-y", "modelcontextprotocol-server-filesystem")
    assert done.code == 0
    assert "is not `@modelcontextprotocol/server-filesystem`, whose name looks like it" in done.err
    assert "npm is set to be offline" in done.err


@pytest.fixture
def registry(cli: CliRunner) -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        cli.configure({}, settings={"registries": [{"name": "fake", "url": running.url}]})
        yield running


def test_it_is_said_of_a_server_of_a_registry_too(cli: CliRunner, fake: FakePackages, registry: FakeRegistry) -> None:
    fake.publish_pypi("mcp-server-time", "1.0.0", days=90, is_attested=True)
    fake.publish_pypi("mcp-server-time", "2.0.0", days=80)
    registry.publish(time("1.0.0"))
    words = ("--yes", "--set", "local-timezone=UTC")
    done = cli.run("add", "io.github.modelcontextprotocol/server-time", *words, **fake.environment)
    assert done.code == 0
    assert "PyPI package `mcp-server-time` `1.0.0`; published" in done.err
    registry.publish(time("2.0.0"))
    updated = cli.run("registry", "update", "--print", **fake.environment)
    assert "`2.0.0` is not attested, and `1.0.0` before it was" in updated.err


def configure(cli: CliRunner, fake: FakePackages) -> None:
    """Have servers that float, one that does not, and one that runs no package; none of them can be started."""
    env = fake.environment
    cli.configure(
        {
            "weather": {"command": "/nonexistent/npx", "args": ["-y", NAME], "env": env},
            "clock": {"command": "/nonexistent/uvx", "args": ["mcp-clock"], "env": env},
            "old": {"command": "/nonexistent/npx", "args": ["-y", f"{NAME}@0.9.0"], "env": env},
            "here": {"command": "/nonexistent/here"},
        }
    )


def test_check_has_one_finding_for_all_servers_that_float(cli: CliRunner, fake: FakePackages) -> None:
    configure(cli, fake)
    found = [each for each in cli.run("check", "--json").json if "no exact version" in each["what"]]
    assert [(each["level"], each["where"]) for each in found] == [("note", "mcpServers")]
    assert found[0]["what"].startswith("`weather`, `clock` name no exact version")
    assert "dynamic-mcp packages pin" in found[0]["hint"]
    assert fake.requests == []


def test_doctor_says_it_of_each_server_with_a_package(cli: CliRunner, fake: FakePackages) -> None:
    fake.publish_npm(NAME, "0.9.0", days=90, is_attested=True)
    fake.publish_npm(NAME, "1.0.0", days=80)
    fake.publish_pypi("mcp-clock", "1.0")
    configure(cli, fake)
    done = cli.run("doctor", "--json", **ONLINE)
    found = {each["where"]: each for each in done.json["findings"] if "package" in each["what"]}
    assert {"mcpServers.weather", "mcpServers.clock", "mcpServers.old"} <= found.keys()
    assert "is not attested, and `0.9.0` before it was" in str(done.json["findings"])
    one = cli.run("doctor", "clock", "--json", **ONLINE).json["findings"]
    assert {each["where"] for each in one if "PyPI package" in each["what"]} == {"mcpServers.clock"}
    assert not [each for each in one if "npm package" in each["what"]]


def test_doctor_asks_while_it_starts_the_servers(cli: CliRunner, fake: FakePackages) -> None:
    """The registry answers once the other server has started."""
    fake.publish_npm(NAME, "1.0.0")
    fake.delayed.add(f"/{NAME}")
    release = f"import urllib.request; urllib.request.urlopen('{fake.url}/release')"
    cli.configure(
        {
            "weather": {"command": "/nonexistent/npx", "args": [NAME], "env": fake.environment},
            "here": {"command": sys.executable, "args": ["-c", release], "env": {"no_proxy": "*"}},
        }
    )
    findings = cli.run("doctor", "--json", **ONLINE).json["findings"]
    assert [each["level"] for each in findings if each["where"] == "mcpServers.weather"].count("ok") == 1


def test_packages_prints_what_is_known_and_fails_for_one_that_does_not_hold(
    cli: CliRunner, fake: FakePackages
) -> None:
    fake.publish_npm(NAME, "1.0.0", provenance=fake.attest(NAME, "0.0.1"))
    configure(cli, fake)
    done = cli.run_on_terminal("packages", width=400, npm_config_offline="false", UV_OFFLINE="false")
    assert done.code == 3
    assert "mcpServers.weather: npm package" in done.out
    assert "does not hold: it is about another file" in done.out
    (facts,) = cli.run("packages", "show", "weather", "--json", **ONLINE).json
    assert (facts["server"], facts["kind"], facts["name"], facts["pinned"]) == ("weather", "npm", NAME, False)
    assert facts["attested"][0]["state"] == "failed"
    assert facts["release"]["version"] == "1.0.0"
    assert cli.run("packages", "no-such").code == 2


def test_packages_pin_writes_the_versions_of_now_and_undo_takes_it_back(cli: CliRunner, fake: FakePackages) -> None:
    fake.publish_npm(NAME, "0.9.0")
    fake.publish_npm(NAME, "1.0.0")
    configure(cli, fake)
    before = cli.config.read_text()
    assert cli.run("packages", "pin", **ONLINE).code == 2  # nobody agrees
    printed = cli.run("packages", "pin", "--print", **ONLINE)
    assert cli.config.read_text() == before
    assert printed.json["mcpServers"]["weather"]["args"] == ["-y", f"{NAME}@1.0.0"]
    done = cli.run("packages", "pin", "--yes", **ONLINE)
    assert done.code == 0, done.err
    assert f"weather: {NAME} -> {NAME}@1.0.0" in done.err
    assert "clock: not pinned: its registry has no such package" in done.err
    assert args_of(cli, "weather") == ["-y", f"{NAME}@1.0.0"]
    assert args_of(cli, "old") == ["-y", f"{NAME}@0.9.0"]
    assert cli.run("undo", "--yes").code == 0
    assert cli.config.read_text() == before


def test_packages_pin_writes_nothing_of_a_package_that_does_not_hold(cli: CliRunner, fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", provenance=fake.attest(NAME, "0.0.1"))
    configure(cli, fake)
    before = cli.config.read_text()
    done = cli.run("packages", "pin", "weather", "--yes", **ONLINE)
    assert done.code == 3
    assert "mcpServers.weather: npm package" in done.err
    assert cli.config.read_text() == before
