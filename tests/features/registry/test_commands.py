"""`add NAME` and `registry`: servers of a registry on loopback, from finding them to updating them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dynamic_mcp.config import jsonc
from tests.cli.commands import CliRunner
from tests.features.registry.documents import filesystem, git, github, named, package, remote, server, time
from tests.features.registry.fake_registry import FakeRegistry, fake_registry
from tests.terminal import DOWN, ENTER, terminal
from tests.windows import is_private

FILES = "io.github.modelcontextprotocol/server-filesystem"
TIME = "io.github.modelcontextprotocol/server-time"
GIT = "io.github.modelcontextprotocol/server-git"
GITHUB = "io.github.github/github-mcp-server"
WEATHER = "io.github.example/weather"
SECRET = "sk-do-not-show-this"


@pytest.fixture
def fake(cli: CliRunner) -> Iterator[FakeRegistry]:
    """A registry with the official servers in two versions each; the config names it, and has no servers."""
    with fake_registry() as running:
        for make in (filesystem, time, git):
            running.publish(make("1.0.0"))
            running.publish(make("2.0.0"))
        running.publish(github())
        configure(cli, running)
        yield running


def configure(cli: CliRunner, fake: FakeRegistry, **servers: Any) -> None:
    cli.configure(servers, settings={"registries": [{"name": "fake", "url": fake.url}]})


def entry(cli: CliRunner, name: str) -> Any:
    document: Any = jsonc.loads(cli.config.read_text())
    return document["mcpServers"][name]


def test_a_server_is_added_with_its_version_and_where_it_comes_from(cli: CliRunner, fake: FakeRegistry) -> None:
    done = cli.run("add", TIME, "--yes", "--set", "local-timezone=Asia/Tokyo")
    assert (done.code, done.out) == (0, "")
    assert "runs: uvx mcp-server-time==2.0.0 --local-timezone=Asia/Tokyo" in done.err
    added = entry(cli, "server-time")
    assert (added["command"], added["args"]) == ("uvx", ["mcp-server-time==2.0.0", "--local-timezone=Asia/Tokyo"])
    origin = added["x-registry"]
    assert (origin["registry"], origin["name"], origin["version"]) == ("fake", TIME, "2.0.0")
    assert origin["set"] == {"local-timezone": "Asia/Tokyo"}
    assert cli.run("check", PATH="/nowhere").json


def test_a_version_and_a_name_can_be_chosen_and_paths_become_absolute(cli: CliRunner, fake: FakeRegistry) -> None:
    paths = ("--set", "allowed_directory=.", "--set", "allowed_directory=~/x")
    home = cli.folder / "ada"
    done = cli.run("add", f"{FILES}@1.0.0", "--as", "files", "--yes", *paths, HOME=str(home))
    assert done.code == 0
    package = "@modelcontextprotocol/server-filesystem@1.0.0"
    assert entry(cli, "files")["args"] == ["-y", package, str(cli.folder), str(home / "x")]


@pytest.mark.parametrize("name", ["x", "io.github.user/files"])
def test_a_registry_that_cannot_be_asked_is_not_said_to_lack_a_server(cli: CliRunner, name: str) -> None:
    cli.configure({}, settings={"registries": [{"name": "gone", "url": "http://127.0.0.1:1"}]})
    done = cli.run("add", name, "--yes")
    assert done.code == 5
    assert "registry `gone`" in done.err
    assert "no server in the registry" not in done.err


def test_what_is_missing_is_listed_and_nothing_is_written(cli: CliRunner, fake: FakeRegistry) -> None:
    before = cli.config.read_text()
    done = cli.run("add", FILES, "--yes")
    assert done.code == 2
    assert "allowed_directory (required; filepath; may be repeated)" in done.err
    assert cli.config.read_text() == before


def test_nobody_who_could_agree_means_that_nothing_is_written(cli: CliRunner, fake: FakeRegistry) -> None:
    before = cli.config.read_text()
    done = cli.run("add", TIME)
    assert done.code == 2
    assert "--yes agrees to it" in done.err
    assert "runs: uvx" in done.err
    assert cli.config.read_text() == before


def test_print_shows_the_entry_and_writes_nothing(cli: CliRunner, fake: FakeRegistry) -> None:
    before = cli.config.read_text()
    done = cli.run("add", TIME, "--print")
    assert done.code == 0
    assert list(done.json["mcpServers"]) == ["server-time"]
    assert cli.config.read_text() == before


def test_a_secret_goes_to_a_private_file_and_nowhere_else(cli: CliRunner, fake: FakeRegistry) -> None:
    (cli.folder / "token").write_text(f"{SECRET}\n", encoding="utf-16")  # as Windows PowerShell writes
    done = cli.run("add", GITHUB, "--package", "--yes", "--json", "--set", "token=@token")
    assert done.code == 0
    assert SECRET not in done.out + done.err + cli.config.read_text()
    variables = cli.folder / "dynamic-mcp.env"
    assert variables.read_text() == f"GITHUB_PERSONAL_ACCESS_TOKEN='{SECRET}'\n"
    assert is_private(variables)
    assert entry(cli, "github-mcp-server")["env"] == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_PERSONAL_ACCESS_TOKEN}"
    }
    assert json.loads(cli.config.read_text())["settings"]["variables_file"] == "dynamic-mcp.env"
    assert cli.run("undo", "--yes").code == 0
    assert not variables.exists()


def test_a_secret_on_the_command_line_is_refused_and_not_repeated(cli: CliRunner, fake: FakeRegistry) -> None:
    done = cli.run("add", GITHUB, "--package", "--yes", "--set", f"token={SECRET}")
    assert done.code == 2
    assert "is a secret" in done.err
    assert SECRET not in done.err


def test_a_secret_that_another_server_has_by_the_same_name_stays(cli: CliRunner, fake: FakeRegistry) -> None:
    variables = cli.folder / "dynamic-mcp.env"
    variables.write_text("GITHUB_PERSONAL_ACCESS_TOKEN='other'\n")
    variables.chmod(0o600)
    assert cli.run("add", GITHUB, "--package", "--yes", "--set", "token=@-", stdin=SECRET).code == 0
    text = variables.read_text()
    assert "GITHUB_PERSONAL_ACCESS_TOKEN='other'" in text
    assert f"GITHUB_MCP_SERVER_GITHUB_PERSONAL_ACCESS_TOKEN='{SECRET}'" in text


def test_a_secret_of_the_environment_is_referred_to(cli: CliRunner, fake: FakeRegistry) -> None:
    done = cli.run("add", GITHUB, "--package", "--yes", GITHUB_PERSONAL_ACCESS_TOKEN=SECRET)
    assert done.code == 0
    assert "`GITHUB_PERSONAL_ACCESS_TOKEN` has a value already, which this server gets" in done.err
    assert not (cli.folder / "dynamic-mcp.env").exists()
    assert SECRET not in cli.config.read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["add", "io.github.modelcontextprotocol/server-tim", "--yes"], f"did you mean `{TIME}`"),
        (["add", "filesystem", "--yes"], f"did you mean `{FILES}`"),
        (["add", f"{TIME}@7", "--yes"], "it has `2.0.0`, `1.0.0`"),
        (["registry", "show", "time"], f"did you mean `{TIME}`"),
        (["add", TIME, "--yes", "--set", "local-timezon=x"], "did you mean `local-timezone`"),
        (["add", TIME, "--yes", "--set", "hunter2"], "is not KEY=VALUE"),
        (["add", TIME, "--yes", "--set", "local-timezone=a", "--set", "local-timezone=b"], "is given twice"),
        (["add", TIME, "--registry", "official", "--yes"], "no registry is named `official`"),
        (["add", TIME, "--header", "A=b"], "--header goes with"),
        (["add", "x", "--yes", "--", "true"], "--yes goes with a server of a registry"),
        (["registry", "update", "nobody"], "no server is named `nobody`"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    cli: CliRunner, fake: FakeRegistry, args: list[str], said: str
) -> None:
    before = cli.config.read_text()
    done = cli.run(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert cli.config.read_text() == before


def test_a_deleted_server_is_refused_and_a_deprecated_one_warned_of(cli: CliRunner, fake: FakeRegistry) -> None:
    fake.publish(server(packages=[package()]), status="deprecated", message="use \x1b[31mtime")
    done = cli.run("add", WEATHER, "--yes")
    assert done.code == 0
    assert "is deprecated: use" in done.err
    assert "\x1b" not in done.err
    fake.publish(server(version="2", packages=[package()]), status="deleted", message="malware")
    refused = cli.run("add", WEATHER, "--as", "again", "--yes")
    assert refused.code == 1
    assert "was deleted from the registry: malware" in refused.err


def test_a_server_with_nothing_to_run_says_why(cli: CliRunner, fake: FakeRegistry) -> None:
    bundle = package("mcpb", "https://example.com/a.mcpb")
    fake.publish(server(packages=[bundle, package(identifier="--evil")], remotes=[remote("http://example.com/")]))
    done = cli.run("add", WEATHER, "--yes")
    assert done.code == 1
    for reason in ("bundles are added by themselves", "begins with `-`", "is not https"):
        assert reason in done.err


def test_of_several_ways_one_is_taken_and_another_can_be_picked(cli: CliRunner, fake: FakeRegistry) -> None:
    done = cli.run("add", GITHUB, "--yes")
    assert done.code == 0
    assert entry(cli, "github-mcp-server")["url"] == "https://api.githubcopilot.com/mcp/"
    assert "--pick takes another" in done.err
    picked = cli.run("add", GITHUB, "--as", "b", "--pick", "oci", "--yes", "--set", "token=${TOKEN}")
    assert picked.code == 0
    assert entry(cli, "b")["command"] == "docker"


def test_search_and_show_tell_what_there_is(cli: CliRunner, fake: FakeRegistry) -> None:
    found = cli.run("registry", "search", "server").json
    assert {each["name"] for each in found} == {FILES, TIME, GIT, GITHUB}
    shown = cli.run("registry", "show", FILES).json
    (option,) = shown["options"]
    assert option["values"][0]["key"] == "allowed_directory"
    on_terminal = cli.run_on_terminal("registry", "show", GITHUB, width=200).out
    assert "docker run -i --rm -e GITHUB_PERSONAL_ACCESS_TOKEN" in on_terminal
    assert "token (required; secret)" in on_terminal


def test_a_hostile_description_does_not_reach_the_terminal(cli: CliRunner, fake: FakeRegistry) -> None:
    fake.publish(server(description="\x1b]0;owned\x07\u202eevil\n\nname: fake", packages=[package()]))
    for args in (("search", "weather"), ("show", WEATHER)):
        shown = cli.run_on_terminal("registry", *args, width=200).out
        assert "\x07" not in shown
        assert "\u202e" not in shown
        assert "]0;owned evil name: fake" in shown


def test_an_update_shows_what_it_replaces_and_keeps_settings_that_start_nothing(
    cli: CliRunner, fake: FakeRegistry
) -> None:
    directory = str(cli.folder / "a")
    setting = f"allowed_directory={directory}"
    assert cli.run("add", f"{FILES}@1.0.0", "--as", "files", "--yes", "--set", setting).code == 0
    written = json.dumps(directory)
    text = cli.config.read_text()
    text = text.replace(f"{written}],", f'{written}, "/mine"], // mine\n "timeout": {{"tools": "5m"}},', 1)
    text = text.replace('"description": "', '"description": "mine: ', 1)
    cli.config.write_text(text)
    (row,) = cli.run("registry", "outdated").json
    assert (row["current"], row["latest"], row["state"]) == ("1.0.0", "2.0.0", "outdated")
    assert cli.run("registry", "update", "--print").json[0]["entry"]["timeout"] == {"tools": "5m"}
    assert cli.config.read_text() == text
    done = cli.run("registry", "update", "--yes")
    assert done.code == 0
    assert "@modelcontextprotocol/server-filesystem@2.0.0" in done.err
    assert '-    "/mine"' in done.err
    assert "// mine" in cli.config.read_text()
    updated = entry(cli, "files")
    assert updated["args"] == ["-y", "@modelcontextprotocol/server-filesystem@2.0.0", directory]
    assert updated["timeout"] == {"tools": "5m"}
    assert updated["description"].startswith("mine: ")
    assert updated["x-registry"]["version"] == "2.0.0"
    assert cli.run("registry", "update", "--yes").err == "nothing to update\n"


def test_an_update_shows_all_that_the_registry_changes_and_no_secret_of_a_person(
    cli: CliRunner, fake: FakeRegistry
) -> None:
    for version in ("1", "2"):
        fake.publish(
            server(
                version=f"{version}.0.0",
                packages=[
                    package(
                        version=f"{version}.0.0",
                        packageArguments=[named("--token", value=f"as-the-registry-says-{version}")],
                        environmentVariables=[{"name": "AUTH_TOKEN", "value": f"https://{version}.example.com"}],
                    )
                ],
            )
        )
    assert cli.run("add", f"{WEATHER}@1.0.0", "--yes").code == 0
    mine = '"env": {"MY_TOKEN": "' + SECRET + '", "AUTH_TOKEN"'
    changed = re.sub(r'"env":\s*{\s*"AUTH_TOKEN"', mine, cli.config.read_text())
    assert SECRET in changed
    cli.config.write_text(changed)
    done = cli.run("registry", "update", "--yes")
    assert '+    "--token=as-the-registry-says-2"' in done.err
    assert '"AUTH_TOKEN": "https://2.example.com"' in done.err
    assert SECRET not in done.err + done.out


def test_an_update_asks_for_what_is_new_and_refuses_what_was_deleted(cli: CliRunner, fake: FakeRegistry) -> None:
    fake.publish(server(packages=[package()]))
    assert cli.run("add", WEATHER, "--yes").code == 0
    required = package(version="2.0.0", packageArguments=[named("--city", isRequired=True)])
    fake.publish(server(version="2.0.0", packages=[required]))
    before = cli.config.read_text()
    done = cli.run("registry", "update", "--yes")
    assert done.code == 2
    assert "city (required)" in done.err
    fake.publish(server(version="3.0.0", packages=[package()]), status="deleted")
    assert "was deleted from the registry" in cli.run("registry", "update", "--yes").err
    assert cli.config.read_text() == before


def test_servers_that_are_in_a_registry_are_recognised_and_then_updated(cli: CliRunner, fake: FakeRegistry) -> None:
    configure(
        cli,
        fake,
        files={"command": "npx", "args": ["@modelcontextprotocol/server-filesystem@1.0.0", "/a"]},
        clock={"command": "uvx", "args": ["mcp_server_time@1.0.0"]},
        github={"url": "https://api.githubcopilot.com/mcp"},
        image={"command": "docker", "args": ["run", "-i", "ghcr.io/github/github-mcp-server"]},
        other={"command": "npx", "args": ["-y", "something-else"]},
    )
    linked = cli.run("registry", "link", "--yes", "--json")
    assert linked.code == 0
    assert {name: (each["name"], each["version"]) for name, each in linked.json.items()} == {
        "files": (FILES, "1.0.0"),
        "clock": (TIME, "1.0.0"),
        "github": (GITHUB, "0.20.1"),
        "image": (GITHUB, "0.20.1"),
    }
    assert cli.run("registry", "update", "--yes").code == 0
    assert entry(cli, "files")["args"] == ["@modelcontextprotocol/server-filesystem@2.0.0", "/a"]
    assert entry(cli, "clock")["args"] == ["mcp_server_time@2.0.0"]
    assert entry(cli, "files")["x-registry"]["linked"] is True
    assert "x-registry" not in entry(cli, "other")


def test_without_a_config_a_server_can_be_found_and_added(cli: CliRunner, fake: FakeRegistry) -> None:
    """The official registry is asked then; here, nothing answers in its place."""
    cli.config.unlink()
    done = cli.run("registry", "search", "time", HTTPS_PROXY="http://127.0.0.1:9")
    assert done.code == 5
    assert "registry `official`" in done.err


def test_offline_the_cache_answers_and_says_so(cli: CliRunner, fake: FakeRegistry) -> None:
    assert cli.run("registry", "show", TIME).code == 0
    fake.close()
    done = cli.run("registry", "show", TIME)
    assert (done.code, done.json["version"]) == (0, "2.0.0")
    assert "refuses connections; this is what it answered" in done.err
    assert cli.run("registry", "show", GIT).code == 5


def test_on_a_terminal_what_is_missing_is_asked_for_and_secrets_are_not_shown(
    cli: CliRunner, fake: FakeRegistry
) -> None:
    secret = {"name": "API_KEY", "isRequired": True, "isSecret": True}
    city = named("--city", isRequired=True, choices=["oslo", "bergen"])
    fake.publish(server(packages=[package(packageArguments=[city], environmentVariables=[secret])]))
    with terminal(cli.folder, "add", WEATHER) as person:
        person.shows("city - argument:")
        person.types(DOWN + ENTER)
        person.shows("API_KEY - environment variable")
        person.types(SECRET.encode() + ENTER)
        person.shows("runs: npx -y @example/weather@1.0.0 --city=bergen")
        person.shows("Add it to")
        assert SECRET.encode() not in person.shown
        person.types(b"y")
        assert person.ends() == 0
    assert entry(cli, "weather")["env"] == {"API_KEY": "${API_KEY}"}
    assert (cli.folder / "dynamic-mcp.env").read_text() == f"API_KEY='{SECRET}'\n"


def test_a_default_that_looks_like_a_variable_is_not_taken_by_enter(cli: CliRunner, fake: FakeRegistry) -> None:
    city = named("--city", isRequired=True, default="${CANARY}")
    fake.publish(server(packages=[package(packageArguments=[city])]))
    with terminal(cli.folder, "add", WEATHER) as person:
        person.shows("city - argument:")
        person.types(b"oslo" + ENTER)
        person.shows("runs: npx -y @example/weather@1.0.0 --city=oslo")
        person.types(b"y")
        assert person.ends() == 0
    assert entry(cli, "weather")["args"][-1] == "--city=oslo"


def test_who_does_not_agree_gets_nothing_written(cli: CliRunner, fake: FakeRegistry) -> None:
    before = cli.config.read_text()
    with terminal(cli.folder, "add", TIME) as person:
        person.shows("Add it to")
        person.types(b"n")
        assert person.ends() == 1
    assert cli.config.read_text() == before
