"""The upstream of a server, with its variables substituted."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Broken, Config, GroupConfig, IdentityProviderConfig, OAuth, Program, Remote
from dynamic_mcp.system.text import os_reason

ReadConfig = Callable[..., Config]


def one(config: Config) -> GroupConfig:
    (group,) = config.groups
    return group


def program(config: Config) -> Program:
    upstream = one(config).upstream
    assert isinstance(upstream, Program)
    return upstream


def remote(config: Config) -> Remote:
    upstream = one(config).upstream
    assert isinstance(upstream, Remote)
    return upstream


def reason(config: Config) -> str:
    upstream = one(config).upstream
    assert isinstance(upstream, Broken)
    return upstream.reason


@pytest.mark.parametrize(("kind", "expected"), [(None, None), ("http", "http"), ("sse", "sse")])
def test_a_remote_server_needs_no_more_than_its_url(
    read_config: ReadConfig, kind: object, expected: Literal["http", "sse"] | None
) -> None:
    config = read_config({"mcpServers": {"docs": {"type": kind, "url": "https://example.com/mcp"}}})

    assert remote(config) == Remote(expected, "https://example.com/mcp", {}, OAuth())


def test_variables_are_filled_in_wherever_a_program_is_described(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {
                "${A}": {
                    "description": "${A}",
                    "command": "${A}/run",
                    "args": ["--x=${A}", "$A", "${NOPE:-none}"],
                    "env": {"${A}": "${A}"},
                    "cwd": "${A}",
                }
            }
        },
        A="/opt",
    )

    assert program(config) == Program(
        command="/opt/run",
        args=("--x=/opt", "$A", "none"),
        env={"${A}": "/opt"},
        cwd=str(config.file.parent / "/opt"),
        own=frozenset({"${A}"}),
        withheld=frozenset({"A"}),
    )
    assert (one(config).name, config.presentations["${A}"].description) == ("${A}", "${A}")


@pytest.mark.parametrize("inherit", ["safe", "all"])
def test_a_config_reads_the_same_once_the_proxy_has_marked_its_own_environment(
    read_config: ReadConfig, inherit: str
) -> None:
    document = {"mcpServers": {"a": {"command": "run", "inherit_env": inherit}}}

    assert read_config(document, A="1") == read_config(document, A="1", DYNAMIC_MCP_SERVER="none.1")


def test_variables_are_filled_in_wherever_a_remote_server_is_described(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {
                "a": {
                    "url": "http://${A}/mcp",
                    "headers": {"X": "${A}"},
                    "oauth": {
                        "client_id": "${A}1",
                        "client_secret": "${A}2",
                        "scopes": ["${A}3"],
                        "redirect_port": 8123,
                        "metadata_url": "https://${A}/meta",
                        "issuer": "https://${A}",
                        "account": "${A}4",
                        "grant": "client_credentials",
                        "private_key_file": "/${A}.pem",
                        "private_key_alg": "ES256",
                        "client_metadata_url": "https://${A}/client",
                    },
                }
            }
        },
        A="aa",
    )

    assert remote(config) == Remote(
        kind=None,
        url="http://aa/mcp",
        headers={"X": "aa"},
        oauth=OAuth(
            client_id="aa1",
            client_secret="aa2",
            scopes=("aa3",),
            redirect_port=8123,
            metadata_url="https://aa/meta",
            issuer="https://aa",
            account="aa4",
            grant="client_credentials",
            private_key_file=str(config.file.parent / "/aa.pem"),
            private_key_alg="ES256",
            client_metadata_url="https://aa/client",
        ),
    )


@pytest.mark.parametrize("word", ["http", "streamable-http", "streamable_http", "streamableHttp"])
def test_streamable_http_may_have_the_names_that_other_tools_give_it(read_config: ReadConfig, word: str) -> None:
    assert remote(read_config({"mcpServers": {"a": {"type": word, "url": "http://h"}}})).kind == "http"


def test_the_settings_say_where_tokens_are_kept_and_whether_a_browser_opens(read_config: ReadConfig) -> None:
    settings = {"open_browser": "never", "token_store": "keyring"}
    config = read_config({"mcpServers": {"a": {"url": "http://h"}}, "settings": settings})

    assert remote(config).oauth == OAuth(may_open_browser=False, token_store="keyring")


@pytest.mark.parametrize("oauth", [{}, {"client_id": "me"}, {"client_secret": "s"}])
def test_client_credentials_without_a_client_and_its_secret_fail_the_group(
    read_config: ReadConfig, oauth: dict[str, str]
) -> None:
    server = {"url": "http://h", "oauth": {"grant": "client_credentials", **oauth}}
    config = read_config({"mcpServers": {"a": server}})

    made = one(config).upstream
    assert isinstance(made, Broken)
    assert "mcpServers.a.oauth.grant" in made.reason


PROVIDER = {"token_endpoint": "https://idp.test/${A}", "client_id": "${A}1", "client_secret": "${A}2"}


def test_a_secret_that_is_empty_since_its_variable_is_not_set_is_named(read_config: ReadConfig) -> None:
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "${SECRET:-}"}
    config = read_config({"mcpServers": {"a": {"url": "http://h", "oauth": oauth}}})

    assert reason(config).endswith("; `client_secret` is empty, as `${SECRET:-}` has no value")


def test_an_assertion_and_an_identity_provider_are_filled_in_and_a_file_is_found_beside_the_config(
    read_config: ReadConfig, tmp_path: Path
) -> None:
    oauth = {"grant": "cross_app", "client_id": "me", "identity_provider": PROVIDER}
    servers = {
        "a": {"url": "http://h", "oauth": {**oauth, "assertion": "${A}3"}},
        "b": {"url": "http://h", "oauth": {**oauth, "assertion_file": "${A}.jwt"}},
    }

    config = read_config({"mcpServers": servers}, A="aa")

    provider = IdentityProviderConfig("https://idp.test/aa", "aa1", "aa2")
    here = [each.upstream.oauth for each in config.groups if isinstance(each.upstream, Remote)]
    assert [each.identity_provider for each in here] == [provider, provider]
    assert [each.assertion for each in here] == ["aa3", None]
    assert [each.assertion_file for each in here] == [None, str(tmp_path / "aa.jwt")]
    assert {each.grant for each in here} == {"cross_app"}


@pytest.mark.parametrize(
    ("oauth", "where"),
    [
        ({"grant": "jwt_bearer", "client_id": "me"}, "grant"),
        ({"grant": "jwt_bearer", "assertion": "a"}, "grant"),
        ({"grant": "cross_app", "client_id": "me", "assertion": "a"}, "grant"),
        ({"grant": "cross_app", "client_id": "me", "identity_provider": PROVIDER}, "grant"),
        ({"grant": "cross_app", "assertion": "a", "identity_provider": PROVIDER}, "grant"),
        ({"grant": "jwt_bearer", "client_id": "me", "assertion": "a", "assertion_file": "b"}, "assertion_file"),
        ({"grant": "jwt_bearer", "client_id": "me", "assertion": "${UNSET}"}, "assertion"),
        ({"grant": "jwt_bearer", "client_id": "me", "assertion": "a\nb"}, "assertion"),
        (
            {"grant": "jwt_bearer", "client_id": "me", "assertion": "a", "identity_provider": PROVIDER},
            "identity_provider",
        ),
        ({"assertion": "a"}, "assertion"),
        ({"assertion_file": "a"}, "assertion_file"),
        ({"identity_provider": PROVIDER}, "identity_provider"),
        (
            {
                "grant": "cross_app",
                "client_id": "me",
                "assertion": "a",
                "identity_provider": {**PROVIDER, "token_endpoint": "https://${UNSET}/"},
            },
            "identity_provider.token_endpoint",
        ),
    ],
)
def test_what_a_grant_lacks_or_does_not_use_fails_the_group_with_its_place(
    read_config: ReadConfig, oauth: dict[str, object], where: str
) -> None:
    config = read_config({"mcpServers": {"a": {"url": "http://h", "oauth": oauth}}}, A="aa")

    made = one(config).upstream
    assert isinstance(made, Broken)
    assert made.reason.startswith(f"mcpServers.a.oauth.{where}: ")


def test_a_variable_that_is_not_set_is_a_warning_with_its_place(read_config: ReadConfig) -> None:
    config = read_config(
        {
            "mcpServers": {
                "github": {"command": "x", "args": ["-v", "${ONE}"], "env": {"TOKEN": "${TWO}-${SET}"}},
                "my.docs": {"url": "http://h", "headers": {"X": "${THREE}"}},
                "off": {"command": "x", "args": ["${UNSEEN}"], "enabled": False},
            },
            "settings": {"defaults": {"env": {"ALL": "${FOUR}"}}},
        },
        SET="very secret",
    )

    assert config.warnings == (
        "mcpServers.github.args[1]: `${ONE}` is not set and is left unchanged",
        "settings.defaults.env.ALL: `${FOUR}` is not set and is left unchanged",
        "mcpServers.github.env.TOKEN: `${TWO}` is not set and is left unchanged",
        'mcpServers["my.docs"].headers.X: `${THREE}` is not set and is left unchanged',
    )
    assert isinstance(config.groups[0].upstream, Program)
    assert config.groups[0].upstream.args == ("-v", "${ONE}")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"command": "${NOPE}"}, "mcpServers.a.command: `${NOPE}` is not set"),
        ({"command": ""}, "mcpServers.a.command: is empty"),
        ({"command": "${EMPTY}"}, "mcpServers.a.command: is empty"),
        ({"command": "x\0"}, "mcpServers.a.command: contains a NUL character"),
        ({"url": "${NOPE}"}, "mcpServers.a.url: `${NOPE}` is not set"),
        ({"url": "${SECRET}"}, "mcpServers.a.url: is not a URL once its variables are substituted"),
        (
            {"url": "http://h", "oauth": {"metadata_url": "x${SECRET}"}},
            "mcpServers.a.oauth.metadata_url: is not a URL once its variables are substituted",
        ),
        ({"url": "http://h", "headers": {"X": "${LINES}"}}, "mcpServers.a.headers.X: contains a line break"),
        (
            {"command": "x", "env": {"T": "${NOPE:?log in}"}, "args": ["${EMPTY:?}"]},
            "mcpServers.a.args[0]: `${EMPTY}` is not set; mcpServers.a.env.T: `${NOPE}` is not set: log in",
        ),
    ],
)
def test_a_server_that_cannot_start_says_why_and_shows_no_value(
    read_config: ReadConfig, server: object, expected: str
) -> None:
    config = read_config(
        {"mcpServers": {"a": server, "b": {"command": "x"}}}, EMPTY="", SECRET="secret", LINES="secret\nX: y"
    )

    broken, fine = config.groups
    assert broken.upstream == Broken(expected)
    assert isinstance(fine.upstream, Program)


def test_env_files_are_layers_between_what_is_inherited_and_env(read_config: ReadConfig, tmp_path: Path) -> None:
    (tmp_path / "one.env").write_text("A=one\nB=one\nC=one\nHOME=/one\n")
    (tmp_path / "two.env").write_text("B=two\nC=two\n")

    config = read_config(
        {"mcpServers": {"a": {"command": "x", "env_file": ["one.env", "${DIR}/two.env"], "env": {"C": "env"}}}},
        HOME="/home/me",
        TERM="xterm",
        DIR=str(tmp_path),
    )

    assert program(config).env == {"HOME": "/one", "TERM": "xterm", "A": "one", "B": "two", "C": "env"}


def test_one_env_file_needs_no_list(read_config: ReadConfig, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=one\n")

    own = read_config({"mcpServers": {"a": {"command": "x", "env_file": "~/.env"}}}, HOME=str(tmp_path))
    shared = read_config({"mcpServers": {"a": {"command": "x"}}, "settings": {"defaults": {"env_file": ".env"}}})

    assert program(own).env["A"] == program(shared).env["A"] == "one"


def test_a_variables_file_fills_in_what_the_config_names_and_gives_programs_nothing_else(
    read_config: ReadConfig, tmp_path: Path
) -> None:
    (tmp_path / "own.env").write_text("TOKEN='a $b'\nOTHER=secret\n")
    document = {
        "mcpServers": {"a": {"command": "x", "env": {"T": "${TOKEN}"}, "args": ["${HOME}"]}},
        "settings": {"variables_file": "own.env"},
    }
    config = read_config(document, TOKEN="of the environment", HOME="/h")
    made = program(config)
    assert made.env == {"HOME": "/h", "T": "a $b"}
    assert made.args == ("/h",)
    assert config.env_files == (tmp_path / "own.env",)


def test_roots_are_uris_or_directories_beside_the_config(read_config: ReadConfig, tmp_path: Path) -> None:
    roots = ["file:///srv", "work", "${HOME}/x", "https://example.com/"]
    config = read_config({"mcpServers": {}, "settings": {"roots": roots}}, HOME="/h")
    assert config.roots == (
        "file:///srv",
        (tmp_path / "work").as_uri(),
        (tmp_path / "/h/x").as_uri(),
        "https://example.com/",
    )
    assert read_config({"mcpServers": {}, "settings": {"roots": "."}}).roots == (tmp_path.as_uri(),)
    one = read_config({"mcpServers": {}, "settings": {"roots": "work"}})
    assert one.roots == ((tmp_path / "work").as_uri(),)
    assert read_config({"mcpServers": {}}).roots == ()


def test_a_root_without_a_value_is_a_warning(read_config: ReadConfig) -> None:
    config = read_config({"mcpServers": {}, "settings": {"roots": ["${NOWHERE}/x"]}})
    assert "settings.roots" in config.warnings[0]
    assert "NOWHERE" in config.warnings[0]


def test_a_variables_file_that_is_not_there_is_a_warning(read_config: ReadConfig) -> None:
    config = read_config({"mcpServers": {"a": {"command": "x"}}, "settings": {"variables_file": "none.env"}})
    assert "settings.variables_file: cannot read" in config.warnings[0]
    assert program(config).command == "x"


def test_an_env_file_that_cannot_be_read_is_named(read_config: ReadConfig, tmp_path: Path) -> None:
    (tmp_path / "latin.env").write_bytes(b"A=\xe9\n")
    files = ["gone.env", ".", "latin.env"]

    config = read_config({"mcpServers": {"a": {"command": "x", "env_file": files}}})

    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "gone.env").stat()
    assert reason(config).split("; ") == [
        f"mcpServers.a.env_file[0]: cannot read `{tmp_path / 'gone.env'}`: {os_reason(caught.value)}",
        f"mcpServers.a.env_file[1]: cannot read `{tmp_path}`: is a directory",
        f"mcpServers.a.env_file[2]: cannot read `{tmp_path / 'latin.env'}`: it is not UTF-8",
    ]


@pytest.mark.parametrize(("cwd", "expected"), [("sub", "sub"), ("./sub/..", "sub/.."), (".", "")])
def test_a_directory_is_relative_to_the_file(
    read_config: ReadConfig, tmp_path: Path, cwd: str, expected: str
) -> None:
    assert program(read_config({"mcpServers": {"a": {"command": "x", "cwd": cwd}}})).cwd == str(tmp_path / expected)


def test_a_directory_is_relative_to_the_file_even_if_that_was_named_relatively(
    read_config: ReadConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_config({"mcpServers": {"a": {"command": "x", "cwd": "sub"}}})
    monkeypatch.chdir(tmp_path)

    assert program(read(Path("dynamic-mcp.json"), {})).cwd == str(tmp_path / "sub")


def test_windows_variables_reach_a_program_once(read_config: ReadConfig) -> None:
    config = read_config(
        {"mcpServers": {"a": {"command": "x", "env": {"PATH": "C:\\own"}}}}, platform="win32", Path="C:\\bin"
    )

    assert program(config).env == {"PATH": "C:\\own"}
