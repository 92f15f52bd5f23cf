"""`install --profile`: the entry in a tool's settings carries the profile, in its command line or in its URL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.importer.world import Json, World

URL = "https://mcp.example.com/mcp"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = World(tmp_path, monkeypatch, capsys)
    servers = {"a": {"command": "true"}}
    made.output.write_text(
        json.dumps({"mcpServers": servers, "profiles": {"review": {}, "two words é": {}}}), encoding="utf-8"
    )
    return made


def entry_of(world: World, name: str = "mcp.json") -> Json:
    """Return our entry in the settings of the one tool that has any."""
    (file,) = (each for each in world.home.rglob(name) if "state" not in each.parts)
    return json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["dynamic-mcp"]


def test_a_tool_starts_the_program_in_the_profile(world: World) -> None:
    ran = world.run("install", "cursor", "--profile", "two words é")
    assert ran.code == 0, ran.err
    assert entry_of(world)["args"][-3:] == [str(world.output), "--profile", "two words é"]

    assert world.run("install", "cursor", "--profile", "review").code == 0
    assert entry_of(world)["args"][-2:] == ["--profile", "review"]
    assert "already has the entry" in world.run("install", "cursor", "--profile", "review").err
    assert world.run("install", "cursor").code == 0
    assert entry_of(world)["args"][-1] == str(world.output)


def test_a_profile_that_the_config_does_not_have_changes_nothing(world: World) -> None:
    ran = world.run("install", "cursor", "--profile", "reviw")
    assert ran.code == 2
    assert "did you mean `review`?" in ran.err
    assert not [*world.home.rglob("mcp.json")]


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_the_profile_is_in_the_path_of_a_url(world: World, url: str) -> None:
    ran = world.run("install", "cursor", "--url", url, "--profile", "two words é")
    assert ran.code == 0, ran.err
    assert entry_of(world)["url"] == f"{URL}/profile/two%20words%20%C3%A9"


def test_a_tool_that_takes_no_url_connects_to_that_of_the_profile(world: World) -> None:
    assert world.run("install", "claude-desktop", "--url", URL, "--profile", "review").code == 0
    assert entry_of(world, "claude_desktop_config.json")["args"][-2:] == ["connect", f"{URL}/profile/review"]


@pytest.mark.parametrize(
    ("url", "profile", "words"),
    [
        (f"{URL}?x=1", "review", "--profile needs a --url without `?` and `#`"),
        (URL, "a/b", "the name of a profile must be"),
        (URL, "..", "the name of a profile must be"),
        (URL, "", "the name of a profile must be"),
    ],
)
def test_what_cannot_be_a_path_is_refused(world: World, url: str, profile: str, words: str) -> None:
    ran = world.run("install", "cursor", "--url", url, "--profile", profile)
    assert ran.code == 2
    assert words in ran.err
