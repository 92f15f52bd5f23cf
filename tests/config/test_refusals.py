"""Invalid configs, and the messages about them."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.read import read
from dynamic_mcp.errors import ConfigError

Refuse = Callable[..., ConfigError]

FIELDS = (
    "type command args env env_file cwd inherit_env url headers oauth client_id scopes metadata_url redirect_port"
    " issuer account grant assertion assertion_file identity_provider token_endpoint private_key_file private_key_alg"
    " client_metadata_url open_browser token_store"
    " oauth_client_id pinned expose defaults"
    " enabled features tools timeout connect idle_timeout concurrency retry attempts include"
    " settings daemon linger http listen path tls cert allowed_origins trusted_proxies max_sessions x-a bogus"
)
VALUES = st.recursive(
    st.sampled_from(
        [None, True, 0, -1, 3, 1.5, 10**400, "", "30s", "never", "all", "http", "stdio", "lazy", "http://h"]
    )
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS.split()) | st.text(max_size=3), inner)
    ),
    max_leaves=12,
)


def server(**fields: object) -> object:
    return {"mcpServers": {"git": fields}}


def http(**fields: object) -> object:
    return {"mcpServers": {}, "settings": {"http": fields}}


@pytest.mark.parametrize(
    ("document", "where", "message"),
    [
        ([], "", "must be an object"),
        ({}, "mcpServers", "is missing"),
        ({"mcpServers": None}, "mcpServers", "must be an object"),
        ({"mcpServers": []}, "mcpServers", "must be an object"),
        ({"mcpServers": {"git": "x"}}, "mcpServers.git", "must be an object"),
        ({"mcpServers": {"a.b": {"command": 1}}}, 'mcpServers["a.b"].command', "must be a string"),
        (server(), "mcpServers.git.command", "is missing"),
        (server(command=None), "mcpServers.git.command", "must be a string"),
        (server(type="stdio"), "mcpServers.git.command", "is missing"),
        (server(type="http"), "mcpServers.git.url", "is missing"),
        (server(type="ws", url="http://h"), "mcpServers.git.type", "must be `stdio`, `http` or `sse`"),
        (server(type=["http"], url="http://h"), "mcpServers.git.type", "must be `stdio`, `http` or `sse`"),
        (server(command="x", args="y"), "mcpServers.git.args", "must be a list"),
        (server(command="x", args=["y", 1]), "mcpServers.git.args[1]", "must be a string"),
        (server(command="x", env={"A": 1}), "mcpServers.git.env.A", "must be a string"),
        (server(command="x", env={"A": None}), "mcpServers.git.env.A", "must be a string"),
        (server(command="x", env=[]), "mcpServers.git.env", "must be an object"),
        (server(command="x", enabled="false"), "mcpServers.git.enabled", "must be true or false"),
        (server(command="x", enabled=0), "mcpServers.git.enabled", "must be true or false"),
        (server(command="x", features={"tools": 1}), "mcpServers.git.features.tools", "must be true or false"),
        (server(command="x", features=[]), "mcpServers.git.features", "must be an object"),
        (server(command="x", timeout="30s"), "mcpServers.git.timeout", "must be an object"),
        (server(command="x", retry={"attempts": 0}), "mcpServers.git.retry.attempts", "must be at least 1"),
        (server(command="x", retry={"attempts": 21}), "mcpServers.git.retry.attempts", "must be at most 20"),
        (server(command="x", retry={"attempts": 2.5}), "mcpServers.git.retry.attempts", "must be a whole number"),
        (server(command="x", retry={"attempts": True}), "mcpServers.git.retry.attempts", "must be a whole number"),
        (server(command="x", connect="soon"), "mcpServers.git.connect", "must be `lazy` or `eager`"),
        (server(command="x", tools={"include": "a"}), "mcpServers.git.tools.include", "must be a list"),
        (server(command="x", env_file=1), "mcpServers.git.env_file", "must be a string or a list of strings"),
        (server(command="x", env_file=["a", 1]), "mcpServers.git.env_file[1]", "must be a string"),
        (server(command="x", description=1), "mcpServers.git.description", "must be a string"),
        (
            server(command="x", inherit_env="none"),
            "mcpServers.git.inherit_env",
            "must be `safe`, `all` or a list of variable names",
        ),
        (server(url="http://h", headers={"A": 1}), "mcpServers.git.headers.A", "must be a string"),
        (
            server(url="http://h", oauth={"redirect_port": 0}),
            "mcpServers.git.oauth.redirect_port",
            "must be at least 1",
        ),
        (server(url="http://h", oauth="me"), "mcpServers.git.oauth", "must be an object"),
        (
            {"mcpServers": {}, "settings": {"max_message_bytes": 65535}},
            "settings.max_message_bytes",
            "must be at least 65536",
        ),
        (
            {"mcpServers": {}, "settings": {"defaults": {"env": {"A": 1}}}},
            "settings.defaults.env.A",
            "must be a string",
        ),
        *(
            ({"mcpServers": {}, "settings": {"daemon": form}}, "settings.daemon", "must be true, false or an object")
            for form in ("5min", 1, ["5min"])
        ),
        (
            {"mcpServers": {}, "settings": {"daemon": {"linger": "ever"}}},
            "settings.daemon.linger",
            "is not a duration: `ever`",
        ),
        (http(listen="localhost"), "settings.http.listen", "is not an address: `localhost`"),
        (http(listen="a..example:80"), "settings.http.listen", "is not an address: `a..example:80`"),
        (http(listen=f"{'a' * 64}:80"), "settings.http.listen", f"is not an address: `{'a' * 64}:80`"),
        (http(listen="h:70000"), "settings.http.listen", "has a port that is not between 0 and 65535"),
        (http(listen="unix:"), "settings.http.listen", "names no path after `unix:`"),
        (http(listen=[]), "settings.http.listen", "must be an address"),
        (http(path="mcp"), "settings.http.path", "must be a path such as `/mcp`"),
        (http(path="/health"), "settings.http.path", "must not be `/health`, which dynamic-mcp uses itself"),
        (http(tls={"cert": "c.pem"}), "settings.http.tls.key", "is missing"),
        (
            http(allowed_origins=["https://a.dev", "*"]),
            "settings.http.allowed_origins",
            "`*` would let any web page call the servers",
        ),
        (
            http(allowed_hosts=["*.a.dev"]),
            "settings.http.allowed_hosts",
            "`*.a.dev` would let any web page reach the servers, by DNS rebinding",
        ),
        (
            http(trusted_proxies=["10.0.0.1/8"]),
            "settings.http.trusted_proxies",
            "`10.0.0.1/8` is not an address or a network",
        ),
    ],
)
def test_a_value_of_the_wrong_form_is_named_with_what_it_must_be(
    refuse: Refuse, document: object, where: str, message: str
) -> None:
    error = refuse(document)

    assert error.where == where
    assert error.message.endswith(f": {message}")


@pytest.mark.parametrize(
    ("document", "where", "hint"),
    [
        (server(command="x", comand="y"), "mcpServers.git.comand", "did you mean `command`?"),
        (server(command="x", envFile=".env"), "mcpServers.git.envFile", "did you mean `env_file`"),
        (server(command="x", bogus=1), "mcpServers.git.bogus", "docs/configuration.md lists them"),
        (server(command="x", timeout={"tool": 1}), "mcpServers.git.timeout.tool", "did you mean `tools`?"),
        (server(command="x", features={"x": 1}), "mcpServers.git.features.x", "are `tools`, `resources`, `prompts`"),
        (server(command="x", tools={"only": []}), "mcpServers.git.tools.only", "are `include`, `exclude`"),
        (server(command="x", retry={"delay": 1}), "mcpServers.git.retry.delay", "are `attempts`"),
        (server(url="http://h", oauth={"scope": []}), "mcpServers.git.oauth.scope", "did you mean `scopes`?"),
        (
            server(
                url="http://h",
                oauth={"identity_provider": {"token_endpoint": "https://h", "client_id": "me", "id": "me"}},
            ),
            "mcpServers.git.oauth.identity_provider.id",
            "the fields here are `token_endpoint`, `client_id`, `client_secret`",
        ),
        (server(url="http://h", cwd="x"), "mcpServers.git.cwd", "either `command`, if it is a program, or `url`"),
        ({"mcpServers": {}, "setings": {}}, "setings", "did you mean `settings`?"),
        (
            {"mcpServers": {}, "settings": {"headers": {}}},
            "settings.headers",
            "docs/configuration.md lists them",
        ),
        ({"mcpServers": {}, "settings": {"daemon": {"lingr": 1}}}, "settings.daemon.lingr", "did you mean `linger`?"),
        (http(port=1), "settings.http.port", "docs/configuration.md lists them"),
        (http(tls={"crt": 1, "cert": "c", "key": "k"}), "settings.http.tls.crt", "did you mean `cert`?"),
    ],
)
def test_an_unknown_field_comes_with_the_known_ones(refuse: Refuse, document: object, where: str, hint: str) -> None:
    error = refuse(document)

    assert error.where == where
    assert error.message.endswith("is an unknown field")
    assert hint in error.hint


def test_of_many_fields_only_the_three_closest_are_suggested(refuse: Refuse) -> None:
    hint = refuse({"mcpServers": {}, "settings": {"http": {"allowed_timeout": 1}}}).hint

    assert hint == "did you mean `allowed_hosts` or `shutdown_timeout` or `session_timeout`?"


def test_a_program_and_a_url_in_one_server_are_said_to_exclude_each_other(refuse: Refuse) -> None:
    error = refuse(server(url="http://h", command="x"))

    assert error.where == "mcpServers.git.command"
    assert error.message.endswith("cannot stand beside `url`")
    assert "either `command`, if it is a program, or `url`" in error.hint


def test_a_guard_without_a_condition_is_named_by_its_place(refuse: Refuse) -> None:
    error = refuse(server(command="x", guards=[{"argument": "$.a", "deny": "x"}, {"argument": "$.a"}]))

    assert error.where == "mcpServers.git.guards[1]"
    assert error.message.endswith(": needs `deny` or `allow`, and not both")


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        ("5 parsecs", "is not a duration: `5 parsecs`"),
        ("1m30s", "is not a duration: `1m30s`"),
        ("s", "is not a duration: `s`"),
        ("1e3", "is not a duration: `1e3`"),
        ("nan", "is not a duration: `nan`"),
        ("inf", "is not a duration: `inf`"),
        ("never", "is not a duration: `never`"),
        ("\u0661s", "is not a duration: `\u0661s`"),
        ("\x1b[31m", "is not a duration: `\ufffd[31m`"),
        ("-1s", "must not be negative"),
        (-0.5, "must not be negative"),
        (10**9, "must not be longer than ten years"),
        ("9" * 5000, "must not be longer than ten years"),
        (True, "must be a duration"),
        ([], "must be a duration"),
    ],
)
def test_what_is_no_duration_says_so(refuse: Refuse, duration: object, message: str) -> None:
    error = refuse(server(command="x", timeout={"tools": duration}))

    assert error.where == "mcpServers.git.timeout.tools"
    assert error.message.endswith(f": {message}")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
def test_a_number_beyond_all_bounds_is_no_duration(refuse: Refuse, number: str) -> None:
    error = refuse('{"mcpServers": {"git": {"command": "x", "idle_timeout": ' + number + "}}}")

    assert error.where == "mcpServers.git.idle_timeout"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("htp://x", "did you mean `http://x` or `https://x`?"),
        ("https:/x.dev/mcp", "did you mean `https://x.dev/mcp`?"),
        ("https//x.dev", "did you mean `https://x.dev`?"),
        ("example.com/mcp", "did you mean `https://example.com/mcp`?"),
        ("localhost:3000/mcp", "did you mean `http://localhost:3000/mcp`?"),
        ("ws://x", "write `https://host/path` or `http://host/path`"),
        ("http://", "write `https://host/path` or `http://host/path`"),
        ("http://a b", "write `https://host/path` or `http://host/path`"),
        ("http://x:99999", "write `https://host/path` or `http://host/path`"),
        ("http://[::1", "write `https://host/path` or `http://host/path`"),
        ("file:///etc/passwd", "write `https://host/path` or `http://host/path`"),
        ("", "write `https://host/path` or `http://host/path`"),
    ],
)
def test_what_is_no_url_comes_with_the_nearest_one(refuse: Refuse, url: str, hint: str) -> None:
    error = refuse(server(url=url))

    assert error.where == "mcpServers.git.url"
    assert error.message.endswith(f"is not a URL: `{url}`")
    assert error.hint == hint


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[2J", "a\u202eb", "a\u200bb", "n" * 65])
def test_a_server_needs_a_name_that_can_be_shown(refuse: Refuse, name: str) -> None:
    error = refuse({"mcpServers": {name: {"command": "x"}}})

    assert error.where == (f"mcpServers.{name}" if len(name) == 65 else f"mcpServers[{json.dumps(name)}]")
    assert error.message.endswith("the name of a server must be 1 to 64 printable characters")


def test_all_problems_are_told_at_once(refuse: Refuse, tmp_path: Path) -> None:
    error = refuse(
        {
            "mcpServers": {
                "a": {"command": "x", "timeout": {"tools": "soon"}},
                "b": {"url": "htp://x", "enabled": 1},
                "c": {"type": "tcp"},
                "d": {},
            },
            "settings": {"conect": "lazy"},
        }
    )

    first, *others = str(error).splitlines()
    assert first.startswith(
        f"{tmp_path / 'dynamic-mcp.json'}: `mcpServers.a.timeout.tools`: is not a duration: `soon` ("
    )
    assert [line.split(":")[0] for line in others] == [
        "  `mcpServers.b.url`",
        "  `mcpServers.b.enabled`",
        "  `mcpServers.c.type`",
        "  `mcpServers.d.command`",
        "  `settings.conect`",
    ]


@pytest.mark.parametrize(
    "document",
    [
        server(command="x", env={"A": ["SECRET"]}),
        server(command="x", env={"A=SECRET": "x"}),
        server(url="http://h", headers={"A": ["SECRET"]}),
        server(url="http://h", headers={"Authorization: SECRET": ""}),
        server(url="htp://h/mcp?key=SECRET"),
        server(url="htp://me:SECRET@h/mcp#SECRET"),
        server(url="http://h", oauth={"client_secret": ["SECRET"]}),
        server(url="http://h", oauth={"assertion": ["SECRET"]}),
        server(url="http://h", oauth={"identity_provider": {"client_secret": ["SECRET"]}}),
        server(command="x", type="SECRET"),
    ],
)
def test_a_message_never_shows_a_secret(refuse: Refuse, document: object) -> None:
    assert "SECRET" not in str(refuse(document))


@given(VALUES, VALUES)
def test_any_document_is_a_config_or_a_config_error(servers: object, settings: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "c.json"
        file.write_text(json.dumps({"mcpServers": {"a": servers, "b": settings}, "settings": settings}))
        try:
            config = read(file, {"A": "1"})
        except ConfigError as exc:
            str(exc).encode()
        else:
            repr(config).encode()


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "", "is empty"),
        (" \n\t", "", "is empty"),
        ("{", "line 1, column 2", "is not JSON: expecting property name enclosed in double quotes"),
        ('{\n  "mcpServers": {\n    "a" {}\n  }\n}', "line 3, column 9", "is not JSON: expecting `:` delimiter"),
        ('{"mcpServers": {}} x', "line 1, column 20", "is not JSON: extra data"),
        ('{"mcpServers": {} /* }', "line 1, column 19", "is not JSON: unterminated comment"),
        ('{"a": "x', "line 1, column 7", "is not JSON: unterminated string"),
        ('{"a": NaN}', "line 1, column 7", "is not JSON: `NaN`"),
        ("[" * 200_000, "line 1, column 1", "is not JSON: nested too deeply"),
        ('{"mcpServers": {"\\ud800": {}}}', "line 1, column 18", "is not JSON: half of a surrogate pair"),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "mcpServers.a",
            "appears more than once",
        ),
    ],
)
def test_broken_json_is_shown_where_it_breaks(refuse: Refuse, text: str, where: str, message: str) -> None:
    error = refuse(text)

    assert error.where == where
    assert error.message.endswith(f": {message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: does not exist"):
        read(tmp_path / "gone.json", {})


def test_a_directory_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        read(tmp_path, {})


def test_a_file_that_is_not_utf_8_says_at_which_byte(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_bytes('{"mcpServers": {"é": 1}}'.encode("latin-1"))

    with pytest.raises(ConfigError, match="`byte 18`: is not UTF-8"):
        read(file, {})


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.touch(mode=0o000)

    with pytest.raises(ConfigError, match="cannot be read: permission denied"):
        read(file, {})
