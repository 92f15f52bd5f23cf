"""From a file to a config."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_mcp.config.read import find, read
from dynamic_mcp.config.resolved import Config, OAuth, Program, Remote, Timeouts
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]


def test_a_config_of_the_old_form_is_read_unchanged(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "$schema": "https://example.com/config-schema.json",
            "mcpServers": {
                "files": {
                    "type": "stdio",
                    "description": "",
                    "command": "npx",
                    "args": ["-y", "@scope/files"],
                    "env": {"ROOT": "/data"},
                    "features": {"prompts": False},
                    "enabled": True,
                    "timeout": {"tools": "2min", "resources": None, "prompts": ""},
                },
                "search": {
                    "type": "http",
                    "description": "Search",
                    "url": "https://example.com/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"},
                    "oauth_client_id": "me-${N}",
                    "oauth_scopes": ["read"],
                    "timeout": {"tools": 90},
                },
                "off": {"description": "", "command": "", "enabled": False},
            },
        },
        TOKEN="t",
        N="1",
    )

    files, search = config.groups
    shown = config.presentations["files"]
    assert (files.name, shown.description, shown.features.prompts) == ("files", "", False)
    assert files.timeouts == Timeouts(connect_s=30, tools_s=120, resources_s=10, prompts_s=10)
    assert search.timeouts.tools_s == 90
    assert isinstance(search.upstream, Remote)
    assert search.upstream.headers == {"Authorization": "Bearer t"}
    assert search.upstream.oauth == OAuth("me-1", None, ("read",), None, None)
    assert config.warnings == ()


def test_comments_and_a_byte_order_mark_are_welcome(read_config: ReadConfig) -> None:
    config = read_config('\ufeff{\n  // mine\n  "mcpServers": {"a": {"command": "x",},},\n}')

    assert [group.name for group in config.groups] == ["a"]


def test_a_program_may_be_named_by_the_argument_the_variable_or_its_place(tmp_path: Path) -> None:
    here, user = tmp_path / "here", tmp_path / "user"
    here.mkdir()
    user.mkdir()
    named = {"DYNAMIC_MCP_CONFIG": "~/named.json", "HOME": "/home/me"}

    def found(argument: str | None, environment: dict[str, str]) -> Path:
        return find(argument, environment, cwd=here, user_dir=user)

    assert found("a.json", named) == here / "a.json"
    assert found("~/a.json", named) == here / "/home/me/a.json"
    assert found("/a.json", named) == here / "/a.json"
    assert found(None, named) == here / "/home/me/named.json"
    (user / "dynamic-mcp.json").touch()
    assert found(None, {"DYNAMIC_MCP_CONFIG": ""}) == user / "dynamic-mcp.json"
    (here / "dynamic-mcp.json").touch()
    assert found(None, {}) == here / "dynamic-mcp.json"


def test_a_new_config_goes_to_the_users_directory_unless_a_place_is_named_or_has_one(tmp_path: Path) -> None:
    here, user = tmp_path / "here", tmp_path / "user"
    here.mkdir()

    def found(argument: str | None, environment: dict[str, str]) -> Path:
        return find(argument, environment, cwd=here, user_dir=user, may_be_new=True)

    assert found(None, {}) == user / "dynamic-mcp.json"
    assert found(None, {"DYNAMIC_MCP_CONFIG": "/b.json"}) == here / "/b.json"
    assert found("a.json", {}) == here / "a.json"
    (here / "dynamic-mcp.json").touch()
    assert found(None, {}) == here / "dynamic-mcp.json"


def test_without_any_config_the_error_says_where_one_may_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find(None, {}, cwd=tmp_path / "here", user_dir=tmp_path / "user")

    assert caught.value.message == f"dynamic-mcp.json: not found in `{tmp_path / 'here'}` or `{tmp_path / 'user'}`"
    assert "DYNAMIC_MCP_CONFIG" in caught.value.hint


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs the permissions of a POSIX system")
def test_a_config_that_anybody_may_write_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text('{"mcpServers": {}}')
    assert read(file, {}).file_warnings == ()
    file.chmod(0o646)

    (warning,) = read(file, {}).file_warnings

    assert "every user of this machine can write this file" in warning


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to give a file away")
def test_a_config_of_another_user_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text('{"mcpServers": {}}')
    os.chown(file, 12345, -1)
    (warning,) = read(file, {}).file_warnings

    assert "12345" in warning


def test_own_keys_are_ignored_in_every_object(read_config: ReadConfig) -> None:
    own = {"x-note": {"any": ["thing"]}}

    config = read_config(
        {
            "mcpServers": {"a": {"command": "x", "timeout": {"tools": 1} | own, "retry": own, "features": own} | own},
            "settings": {"defaults": {"tools": own} | own} | own,
        }
        | own
    )

    assert config == read_config({"mcpServers": {"a": {"command": "x", "timeout": {"tools": 1}}}})


def test_own_keys_are_kept_where_any_name_may_stand(read_config: ReadConfig) -> None:
    config = read_config({"mcpServers": {"x-server": {"url": "http://h", "headers": {"x-api-key": "k"}}}})

    (group,) = config.groups
    assert isinstance(group.upstream, Remote)
    assert group.upstream.headers == {"x-api-key": "k"}


def test_null_is_the_same_as_left_out(read_config: ReadConfig) -> None:
    fields = "description type args env env_file cwd inherit_env enabled features timeout tools connect"
    fields += " idle_timeout concurrency retry"

    with_nulls = read_config(
        {"mcpServers": {"a": {"command": "x"} | dict.fromkeys(fields.split())}, "settings": None}
    )

    assert with_nulls == read_config({"mcpServers": {"a": {"command": "x"}}})


def test_a_config_may_have_no_servers(read_config: ReadConfig) -> None:
    assert read_config({"mcpServers": {}}).groups == ()


def test_reading_a_plain_config_imports_nothing_that_only_others_need(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://h"}}}')
    code = (
        "import sys; from pathlib import Path; from dynamic_mcp.config.read import read;"
        "read(Path(sys.argv[1]), {});"
        "print([m for m in ('pydantic', 'dotenv', 'difflib', 'platformdirs', 'jsonschema', 'mcp', 'httpx2',"
        " 'dynamic_mcp.config.problems', 'dynamic_mcp.config.schema', 'dynamic_mcp.config.http',"
        " 'dynamic_mcp.config.command_line', 'dynamic_mcp.packs') if m in sys.modules],"
        " [m for m in sys.modules if m.startswith('dynamic_mcp.features.') and not m.endswith('.table')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )

    assert done.stdout == "[] []\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_config_and_its_env_file_may_be_those_of_windows_programs(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "dynamic-mcp.json"
    text = '{\r\n  "mcpServers": {"ä": {"command": "x", "env_file": "a.env"}}\r\n}\r\n'
    file.write_bytes(text.encode(encoding))
    (tmp_path / "a.env").write_bytes("TOKEN=ä\r\nB=2\r\n".encode(encoding))
    (group,) = read(file, {}).groups
    assert group.name == "ä"
    assert isinstance(group.upstream, Program)
    assert group.upstream.env == {"TOKEN": "ä", "B": "2"}


def test_a_config_with_half_a_character_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_bytes(b"\xff\xfe{\0}")
    with pytest.raises(ConfigError, match="is not UTF-16"):
        read(file, {})
