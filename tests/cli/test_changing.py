"""`add`, `remove`, `enable`, `disable`, `check --fix`: the file changes where it must, and stays valid."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import CliRunner
from tests.terminal import strip_escapes
from tests.windows import is_private, user_dir

TEXT = """{
  // the ones I use
  "mcpServers": {
    "time": {"command": "uvx", "args": ["mcp-server-time"]}, // clocks
  },
}
"""


@pytest.fixture
def written(cli: CliRunner) -> CliRunner:
    cli.config.write_text(TEXT, encoding="utf-8")
    return cli


def test_a_program_is_added_and_comments_stay(written: CliRunner) -> None:
    done = written.run(
        "add", "git", "--env", "A=${B}", "--cwd", ".", "--description", "History", "--", "uvx", "-q", "x"
    )
    assert (done.code, done.out) == (0, "")
    assert "added `git` to" in done.err
    text = written.config.read_text(encoding="utf-8")
    assert "// the ones I use" in text
    assert "// clocks" in text
    assert {each["name"] for each in _servers(written)} == {"time", "git"}
    (git,) = [each for each in _servers(written) if each["name"] == "git"]
    entry = {"description": "History", "command": "uvx", "args": ["-q", "x"], "env": {"A": "${B}"}, "cwd": "."}
    assert git["entry"] == entry


def test_a_program_that_does_not_exist_is_added_with_a_warning(written: CliRunner) -> None:
    done = written.run("add", "git", "--", "no-such-program")
    assert done.code == 0
    assert "warning: the command `no-such-program` was not found\nhint: install it" in done.err
    assert "warning" not in written.run("add", "python", "--", sys.executable).err
    assert "warning" not in written.run("add", "here", "--cwd", "bin", "--", "./server").err


@pytest.mark.parametrize("words", [("npx", "-y", "package"), ("uvx", "mcp-server-time", "--local-timezone", "UTC")])
def test_a_command_without_the_dashes_before_it_is_refused_and_told_of_them(
    written: CliRunner, words: tuple[str, ...]
) -> None:
    done = written.run("add", "new", *words)
    assert done.code == 2
    assert "come after `--`, as in `dynamic-mcp add NAME -- npx -y PACKAGE`" in done.err


def test_arguments_in_the_command_are_an_error_that_says_where_they_belong(written: CliRunner) -> None:
    python, path = Path(sys.executable).name, str(Path(sys.executable).parent)
    hint = f'hint: the arguments belong in `args`: `"command": "{python}", "args": ["-m", "a_server"]`'
    assert hint in written.run("add", "whole", "--", f"{python} -m a_server", PATH=path).err
    assert f"    {hint}\n" in strip_escapes(written.run_on_terminal("check", width=200, PATH=path).out)


@pytest.mark.parametrize("kind", ["http", "streamable-http"])
@pytest.mark.parametrize("header", ["Authorization=Bearer ${TOKEN}", "Authorization: Bearer ${TOKEN}"])
def test_a_remote_server_is_added_with_its_headers(written: CliRunner, header: str, kind: str) -> None:
    args = ("--url", "https://example.com/mcp", "--header", header, "--type", kind)
    done = written.run("add", "gh", *args, "--json")
    assert done.code == 0
    assert done.json["entry"] == {
        "type": "http",
        "url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }


def test_a_service_is_added_by_its_document(written: CliRunner) -> None:
    url = ("--url", "https://shop.example.com/v1", "--header", "X-Key: ${KEY}")
    done = written.run("add", "shop", "--openapi", "./shop.yaml", *url, "--json")
    entry = {"openapi": "./shop.yaml", "url": "https://shop.example.com/v1", "headers": {"X-Key": "${KEY}"}}
    assert (done.code, done.json["entry"]) == (0, entry)
    assert written.run("add", "more", "--openapi", "https://more.example.com/openapi.json").code == 0
    for wrong in (("--type", "http"), ("--env", "A=b"), ("--", "x")):
        assert written.run("add", "other", "--openapi", "x.json", *wrong).code == 2


def test_the_first_server_makes_a_private_config_in_the_users_directory(cli: CliRunner) -> None:
    cli.config.unlink()
    assert cli.run("add", "a", "--", "x").code == 0
    made = user_dir(cli.folder / "home") / "dynamic-mcp.json"
    assert json.loads(made.read_text(encoding="utf-8")) == {"mcpServers": {"a": {"command": "x"}}}
    assert is_private(made)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["add", "time", "--", "x"], "already has a server `time`\nhint: --replace overwrites it"),
        (["add", "x", "--url", "http://h", "--env", "A=b"], "--env and --cwd go with a command"),
        (["add", "x", "--url", "not a url"], "is not a URL"),
        (["add", "x", "--env", "hunter2", "--", "y"], "--env: `hunter2` is not NAME=VALUE"),
        (["remove", "tme"], "error: no server is named `tme`\nhint: did you mean `time`?"),
        (["disable", "nothing"], "error: no server is named `nothing`"),
    ],
)
def test_what_cannot_be_done_changes_nothing(written: CliRunner, args: list[str], said: str) -> None:
    done = written.run(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert written.config.read_text(encoding="utf-8") == TEXT


def test_a_file_that_is_wrong_is_not_touched(cli: CliRunner) -> None:
    cli.config.write_text('{"mcpServers": {,}}', encoding="utf-8")
    done = cli.run("add", "a", "--", "x")
    assert done.code == 2
    assert "is not JSON" in done.err
    assert cli.config.read_text(encoding="utf-8") == '{"mcpServers": {,}}'


def test_replace_takes_the_place_of_a_server(written: CliRunner) -> None:
    done = written.run("add", "time", "--replace", "--", "other")
    assert done.err.startswith("replaced `time` in")
    assert [each["entry"] for each in _servers(written)] == [{"command": "other"}]


def test_a_literal_secret_is_warned_of_without_showing_it(written: CliRunner) -> None:
    done = written.run("add", "gh", "--url", "https://h/mcp", "--header", "Authorization=Bearer s3cr3t-t0ken")
    assert done.code == 0
    assert "`mcpServers.gh.headers.Authorization` looks like a secret in plain text" in done.err
    assert "s3cr3t" not in done.err


def test_a_server_is_removed_disabled_and_enabled(written: CliRunner) -> None:
    assert written.run("disable", "time").err.startswith("disabled `time` in")
    assert written.run("disable", "time").err.startswith("`time` is already disabled in")
    assert [each["entry"]["enabled"] for each in _servers(written)] == [False]
    assert written.run("enable", "time").err.startswith("enabled `time` in")
    assert [each["entry"]["enabled"] for each in _servers(written)] == [True]
    assert written.run("remove", "time").err.startswith("removed `time` from")
    assert _servers(written) == []
    assert "// the ones I use" in written.config.read_text(encoding="utf-8")


def test_old_names_are_replaced_in_the_file_and_undo_brings_them_back(cli: CliRunner) -> None:
    old = '{"mcpServers": {}, "settings": {\n  // slow\n  "timeout": {"tools": 9}, // so\n  "share": "all"\n}}\n'
    cli.config.write_text(old, encoding="utf-8")
    assert "`dynamic-mcp check --fix` rewrites the file" in cli.run("check").out
    done = cli.run("check", "--fix")
    assert done.code == 0
    assert "`settings.share` is now `settings.defaults.share`" in done.err
    text = cli.config.read_text(encoding="utf-8")
    assert "// slow\n" in text
    assert text.index('"defaults"') < text.index("// slow") < text.index("// so") < text.index('"share"')
    assert "--fix" not in cli.run("check").out
    assert cli.run("undo", "--yes").code == 0
    assert cli.config.read_text(encoding="utf-8") == old


def test_where_no_name_is_old_nothing_is_replaced(written: CliRunner) -> None:
    done = written.run("check", "--fix", "--json")
    assert (done.code, done.json) == (0, {"file": str(written.config), "renamed": [], "undo": None})
    assert "nothing was changed" in done.err
    assert written.config.read_text(encoding="utf-8") == TEXT


def test_a_file_that_is_wrong_besides_keeps_its_old_names(cli: CliRunner) -> None:
    old = '{"mcpServers": {"a": {"command": 1, "trusted": true}}}'
    cli.config.write_text(old, encoding="utf-8")
    done = cli.run("check", "--fix")
    assert done.code == 2
    assert "mcpServers.a.command" in done.err
    assert cli.config.read_text(encoding="utf-8") == old


@pytest.mark.posix_only("modes are those of POSIX, and links need a privilege on Windows")
def test_mode_and_link_of_the_file_stay(written: CliRunner) -> None:
    real = written.folder / "real.json"
    written.config.rename(real)
    real.chmod(0o640)
    written.config.symlink_to(real)
    assert written.run("disable", "time").code == 0
    assert written.config.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "enabled" in real.read_text(encoding="utf-8")


def test_changes_that_are_made_at_once_are_all_made(cli: CliRunner) -> None:
    names = [f"new{n}" for n in range(10)]
    cli.configure({f"old{n}": {"command": "x"} for n in range(6)})

    done = cli.run_at_once(
        *(["add", name, "--", "uvx", name] for name in names),
        *(["remove", f"old{n}"] for n in range(3)),
        *(["disable", f"old{n}"] for n in range(3, 6)),
    )

    assert [each.code for each in done] == [0] * len(done), [each.err for each in done if each.code]
    found = {each["name"]: each["entry"] for each in _servers(cli)}
    assert set(found) == {*names, "old3", "old4", "old5"}
    assert [found[f"old{n}"]["enabled"] for n in range(3, 6)] == [False] * 3


def _servers(cli: CliRunner) -> list[dict[str, Any]]:
    from dynamic_mcp.config import jsonc

    tree = jsonc.loads(cli.config.read_text(encoding="utf-8"))
    assert isinstance(tree, dict)
    return [{"name": name, "entry": entry} for name, entry in tree["mcpServers"].items()]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_a_config_of_a_windows_editor_keeps_its_encoding_its_mark_and_its_line_ends(
    cli: CliRunner, encoding: str
) -> None:
    text = "\ufeff" + TEXT.replace("clocks", "ührs").replace("\n", "\r\n")
    cli.config.write_bytes(text.removeprefix("\ufeff" if encoding == "utf-8-sig" else "").encode(encoding))
    before = cli.config.read_bytes()
    assert cli.run("disable", "time").code == 0
    changed = cli.config.read_bytes().decode(encoding.removesuffix("-sig"))
    assert changed.startswith("\ufeff{\r\n")
    assert '"enabled": false' in changed
    assert changed.count("\n") == changed.count("\r\n")
    assert cli.run("add", "git", "--", "x").code == 0
    assert cli.run("remove", "git").code == 0
    assert cli.run("enable", "time").code == 0
    assert cli.config.read_bytes().decode(encoding).replace(', "enabled": true', "") == before.decode(encoding)
