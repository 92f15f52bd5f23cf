"""`sandbox` in a config: what the words stand for, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.config import form
from dynamic_mcp.config.problems import find_problems
from dynamic_mcp.config.resolve import resolve
from dynamic_mcp.config.resolved import Broken, CommandLine, Program
from dynamic_mcp.config.substitute import Surroundings
from dynamic_mcp.features.sandbox.confinement import SandboxConfinement
from tests.program import Json

HOME = "/home/me"
POSIX_PATHS = pytest.mark.posix_only("the paths of the expectation are those of POSIX; Windows has no sandbox")


def confinement_of(server: Json, settings: Json = None, *, platform: str = "linux") -> SandboxConfinement | None:
    """Return what confines the program of a server."""
    upstream = upstream_of(server, settings, platform=platform)
    assert isinstance(upstream, Program | CommandLine)
    confinement = upstream.confinement
    assert confinement is None or isinstance(confinement, SandboxConfinement)
    return confinement


def upstream_of(server: Json, settings: Json = None, *, platform: str = "linux") -> object:
    tree = {"mcpServers": {"notes": server}, "settings": settings or {}}
    assert not [*find_problems(tree)]
    surroundings = Surroundings({"HOME": HOME, "DATA": "/data"}, platform, Path("/config"))
    return resolve(form.root(tree), Path("/config/config.json"), surroundings=surroundings).groups[0].upstream


def test_without_the_word_nothing_confines_a_program() -> None:
    assert confinement_of({"command": "x"}) is None


def test_write_confines_writing_alone() -> None:
    assert confinement_of({"command": "x", "sandbox": "write"}) == SandboxConfinement("notes", HOME)


def test_strict_confines_reading_and_the_network_too() -> None:
    expected = SandboxConfinement("notes", HOME, read=(), hosts=())
    assert confinement_of({"command": "x", "sandbox": "strict"}) == expected


@POSIX_PATHS
def test_an_object_confines_what_it_names() -> None:
    words = {
        "read": ["~/docs", "here"],
        "write": ["${DATA}/notes"],
        "hosts": ["api.example.com", "*.example.org:8443"],
    }
    assert confinement_of({"command": "x", "sandbox": words}) == SandboxConfinement(
        "notes",
        HOME,
        read=("/home/me/docs", "/config/here"),
        write=("/data/notes",),
        hosts=("api.example.com", "*.example.org:8443"),
    )


@POSIX_PATHS
def test_the_default_is_for_all_programs_and_a_server_can_leave_it() -> None:
    defaults = {"defaults": {"sandbox": "write"}, "roots": ["~/work", "file:///srv", "https://example.com"]}
    expected = SandboxConfinement("notes", HOME, roots=("/home/me/work", "/srv", ""))
    assert confinement_of({"command": "x"}, defaults) == expected
    assert confinement_of({"command": "x", "sandbox": "off"}, defaults) is None
    assert confinement_of({"command": "x", "sandbox": {"enabled": False}}, defaults) is None


@POSIX_PATHS
def test_a_command_line_program_writes_in_its_roots() -> None:
    cli = {"use": "git", "commands": ["status"], "cwd": {"roots": ["~/work"]}}
    confinement = confinement_of({"cli": cli, "sandbox": "strict"})
    assert confinement is not None
    assert confinement.roots == ("/home/me/work",)


def test_a_server_over_http_has_none() -> None:
    tree = {"mcpServers": {"far": {"url": "https://example.com/mcp", "sandbox": "strict"}}}
    assert [each.message for each in find_problems(tree)] == ["is an unknown field"]


def test_a_variable_that_is_not_set_keeps_the_server_from_starting() -> None:
    upstream = upstream_of({"command": "x", "sandbox": {"write": ["${NOT_SET}"]}})
    assert upstream == Broken("mcpServers.notes.sandbox.write[0]: `${NOT_SET}` is not set")


@pytest.mark.parametrize(
    ("platform", "words", "needed"),
    [
        ("darwin", "write", "it needs Linux, or a `container`"),
        ("win32", "write", "it needs Linux, such as the Windows Subsystem for Linux"),
        ("win32", {"container": "image"}, "it needs Linux, such as the Windows Subsystem for Linux"),
    ],
)
def test_another_system_refuses_and_says_what_is_missing(platform: str, words: Json, needed: str) -> None:
    upstream = upstream_of({"command": "x", "sandbox": words}, platform=platform)
    assert isinstance(upstream, Broken)
    assert upstream.reason.endswith(f"this system has no sandbox that dynamic-mcp can use: {needed}")
    best_effort = {**(words if isinstance(words, dict) else {}), "best_effort": True}
    assert confinement_of({"command": "x", "sandbox": best_effort}, platform=platform) is None


def test_macos_runs_a_program_in_a_container() -> None:
    confinement = confinement_of({"command": "x", "sandbox": {"container": "image"}}, platform="darwin")
    assert confinement is not None
    assert confinement.container == "image"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lax", "must be `off`, `write`, `strict` or an object"),
        ({"hosts": ["https://example.com"]}, "is not a host: `https://example.com`"),
        ({"hosts": ["example.com:70000"]}, "is not a host: `example.com:70000`"),
        ({"container": "image", "hosts": ["example.com"]}, "`hosts` of a container can only be empty"),
        ({"container": " "}, "`container` must not be empty"),
        ({"reads": []}, "is an unknown field"),
    ],
)
def test_other_words_are_refused(words: Json, message: str) -> None:
    tree = {"mcpServers": {"notes": {"command": "x", "sandbox": words}}}
    assert [each.message for each in find_problems(tree)] == [message]
    with pytest.raises(ValueError, match=r".+"):
        form.root(tree)
