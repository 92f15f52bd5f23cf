"""What a confined program gets without being told: its own files and places, and what known programs need."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.places import find_places, state_folder
from dynamic_mcp.features.sandbox.words import Restrictions

pytestmark = pytest.mark.posix_only("Windows has no sandbox")


def make_program(folder: Path, *parts: str, text: str = "#!/bin/sh\n") -> str:
    file = folder.joinpath(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def program(command: str, *args: str, cwd: Path, **env: str) -> Program:
    return Program(command, args, {"PATH": "/usr/bin:/bin", **env}, str(cwd), frozenset(env))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Provide the home of a user, with a directory to work in."""
    (tmp_path / "home" / "work").mkdir(parents=True)
    return tmp_path / "home"


def test_a_program_reads_where_it_is_installed_and_writes_where_it_works(home: Path) -> None:
    command = make_program(home, "tools", "node", "bin", "server")
    places = find_places(Restrictions("notes", str(home)), program(command, cwd=home / "work"))
    assert str(home / "tools" / "node") in places.read
    assert places.write == (str(state_folder("notes")), str(home / "work"))


def test_the_home_is_given_only_if_the_config_names_it(home: Path) -> None:
    command = make_program(home, "bin", "server")
    words = Restrictions("notes", str(home))
    places = find_places(words, program(command, str(home), "/", cwd=home))
    assert not {str(home), "/"} & {*places.read, *places.write}
    named = find_places(Restrictions("notes", str(home), write=(str(home),)), program(command, cwd=home))
    assert str(home) in named.write


def test_what_runs_a_script_and_its_project_can_be_read(home: Path) -> None:
    runtime = make_program(home, "runtime", "bin", "python3")
    script = make_program(home, "project", "src", "server.py")
    (home / "project" / "pyproject.toml").touch()
    places = find_places(Restrictions("notes", str(home)), program(runtime, script, cwd=home / "work"))
    assert {str(home / "runtime"), str(home / "project"), script} <= {*places.read}
    wrapper = make_program(home, "wrappers", "bin", "run", text=f"#!{runtime}\n")
    places = find_places(Restrictions("notes", str(home)), program(wrapper, cwd=home / "work"))
    assert str(home / "runtime") in places.read


def test_arguments_can_be_read_and_the_file_server_writes_them(home: Path) -> None:
    data = home / "data"
    data.mkdir()
    command = make_program(home, "node", "bin", "npx")
    args = ("-y", "@modelcontextprotocol/server-filesystem@1.2.3", str(data), "--log=/dev/null")
    places = find_places(Restrictions("files", str(home)), program(command, *args, cwd=home / "work"))
    assert str(data) in places.write
    assert "/dev/null" not in places.read
    other = find_places(Restrictions("files", str(home)), program(command, "other", str(data), cwd=home / "work"))
    assert str(data) in other.read
    assert str(data) not in other.write


@pytest.mark.parametrize("name", ["mcp-server-filesystem", "mcp-server-git", "mcp-server-sqlite"])
def test_a_known_server_writes_its_arguments_also_if_it_is_installed(home: Path, name: str) -> None:
    data = home / "data"
    data.mkdir()
    command = make_program(home, "tools", "bin", name)
    assert str(data) in find_places(Restrictions("it", str(home)), program(command, str(data), cwd=home)).write


def test_a_program_in_node_modules_reads_the_packages_beside_it(home: Path) -> None:
    index = make_program(home, "app", "node_modules", "@x", "server", "dist", "index.js")
    (home / "app" / "node_modules" / "@x" / "server" / "package.json").touch()
    command = home / "app" / "node_modules" / ".bin" / "server"
    command.parent.mkdir()
    command.symlink_to(index)
    runtime = make_program(home, "runtime", "bin", "node")
    words = Restrictions("it", str(home))
    for each in (program(str(command), cwd=home / "work"), program(runtime, index, cwd=home / "work")):
        assert str(home / "app" / "node_modules") in find_places(words, each).read


def test_a_known_installer_has_a_cache_of_the_server_unless_the_config_sets_one(home: Path) -> None:
    command = make_program(home, "node", "bin", "npx")
    words = Restrictions("files", str(home))
    places = find_places(words, program(command, "x", cwd=home / "work"))
    assert places.env["npm_config_cache"] == str(state_folder("files") / "npm")
    places = find_places(words, program(command, "x", cwd=home / "work", npm_config_cache="/mine"))
    assert "npm_config_cache" not in places.env


def test_the_names_of_servers_are_no_paths() -> None:
    folders = {state_folder(name) for name in ("a", "../b", "..", ".", "a/b", "ä")}
    assert {folder.parent for folder in folders} == {state_folder("a").parent}
    assert len(folders) == 6


def test_a_program_that_is_not_there_is_said_to_be_missing(home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_places(Restrictions("notes", str(home)), program("no-such-program", cwd=home / "work"))
