import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dynamic_mcp.config.schema import schema, schema_text
from dynamic_mcp.errors import ConfigError

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "schemas" / "dynamic-mcp.schema.json"


def server(**fields: object) -> object:
    return {"mcpServers": {"a": fields}}


def program(**fields: object) -> object:
    return server(command="x", **fields)


def remote(**fields: object) -> object:
    return server(url="https://h", **fields)


def settings(**fields: object) -> object:
    return {"mcpServers": {}, "settings": fields}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(schema())


def test_the_published_schema_is_the_one_of_the_model() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text()


def test_the_module_prints_the_schema() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dynamic_mcp.config.schema"], capture_output=True, check=True, cwd=ROOT
    )

    assert done.stdout.decode() == schema_text()


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_every_field_is_described_for_an_editor() -> None:
    definitions = schema()["$defs"]
    assert isinstance(definitions, dict)
    fields = {(name, field): made for name, part in definitions.items() for field, made in part["properties"].items()}

    assert [where for where, made in fields.items() if not made.get("description")] == []


def test_everyday_fields_come_first_in_each_object_and_where_an_editor_proposes_them() -> None:
    definitions = schema()["$defs"]
    assert isinstance(definitions, dict)
    for part in definitions.values():
        levels = [field["x-level"] for field in part["properties"].values()]
        ranks = [field["suggestSortText"] for field in part["properties"].values()]
        assert levels == sorted(levels, key=["everyday", "advanced"].index)
        assert ranks == sorted(set(ranks))
    server = definitions["ProgramEntry"]["properties"]
    assert server["timeout"]["x-level"] == "everyday"
    assert server["retry"]["x-level"] == "advanced"


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {}},
        {"mcpServers": {}, "$schema": "x", "settings": {}, "x-own": [1]},
        {"mcpServers": {}, "settings": None},
        {"mcpServers": {}, "settings": {"max_message_bytes": 65536, "x-a": 1}},
        {"mcpServers": {}, "settings": {"defaults": {"env_file": ["a"], "enabled": False, "x-a": 1}}},
        {
            "mcpServers": {},
            "settings": {"search": {"embeddings": {"url": "http://h", "model": "m", "api_key": None}}},
        },
        {"mcpServers": {"x-a": {"command": ""}, "日本": {"url": "http://h"}}},
        program(type="stdio"),
        program(type=None),
        remote(type="sse"),
        remote(type=None),
        server(url="${HOST}"),
        program(**{"x-a": 1}),
        *(program(timeout={"tools": form}) for form in ("", " ", "5", "5 MIN ", "1.5s", "+2h", 0, 0.5, None)),
        *(program(idle_timeout=form) for form in ("never", "NEVER", "", "500ms", 9, None)),
        *(program(inherit_env=form) for form in ("safe", "all", [], ["AWS_*"], None)),
        *(program(env_file=form) for form in (".env", [], ["a", "b"], None)),
        program(env={"A": ""}, retry={"attempts": 20}, connect="eager"),
        program(tools={"include": [], "exclude": None}, features={"tools": False}),
        remote(headers={"x-key": "k"}, oauth={"client_id": "x", "scopes": ["y"]}),
        *(remote(type=form) for form in ("http", "streamable-http", "streamable_http", "streamableHttp")),
        *(program(direct=form) for form in (True, False, [], ["get_*"], None)),
        remote(oauth={"redirect_port": 65535, "scopes": []}),
        remote(oauth={"grant": "client_credentials", "client_id": "a", "private_key_file": "k.pem"}),
        remote(oauth={"identity_provider": {"token_endpoint": "https://h", "client_id": "a"}}),
        {"mcpServers": {}, "settings": {"open_browser": "never", "token_store": "keyring"}},
        *(settings(daemon=form) for form in (True, False, None)),
        *(settings(daemon={"linger": form, "x-a": 1}) for form in (None, 0)),
        *(settings(daemon={"linger": form}) for form in ("5min", "0s", "never", "")),
        *(settings(http=form) for form in (True, False, None, {}, {"x-a": 1})),
        *(settings(http={"listen": form}) for form in (0, 65535, "80", "h.example:80", "[::1]:80", "unix:s", None)),
        *(settings(http={"path": form, "root_path": form}) for form in ("/mcp", "/a/b.c~1", None)),
        settings(http={"root_path": "", "tls": {"cert": "c", "key": "k"}, "insecure": True, "max_sessions": 1}),
        settings(http={"allowed_hosts": ["h", "h:80", "[::1]"], "allowed_origins": ["https://h", "http://h:80"]}),
        settings(http={"trusted_proxies": ["unix", "10.0.0.1", "10.0.0.0/8", "::1"], "session_timeout": "30min"}),
    ],
)
def test_schema_and_reader_accept_the_same(
    read_config: Callable[..., object], validator: Draft202012Validator, document: object
) -> None:
    assert [error.message for error in validator.iter_errors(document)] == []
    read_config(document)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"mcpServers": []},
        {"mcpServers": {}, "servers": {}},
        {"mcpServers": {}, "settings": {"command": "x"}},
        {"mcpServers": {}, "settings": {"max_message_bytes": 65535}},
        {"mcpServers": {}, "settings": {"search": {"embeddings": {"url": "http://h"}}}},
        {"mcpServers": {}, "settings": {"search": {"model": "m"}}},
        {"mcpServers": {"": {"command": "x"}}},
        {"mcpServers": {"n" * 65: {"command": "x"}}},
        server(),
        server(command="x", url="http://h"),
        server(command=1),
        server(url=None),
        program(type="http"),
        remote(type="stdio"),
        remote(type="ws"),
        program(bogus=1),
        program(headers={}),
        remote(env={}),
        *(program(timeout={"tools": form}) for form in ("x", "1m30s", "-1s", -1, 10**9, True, "never")),
        *(program(timeout=form) for form in ("30s", {"all": 1})),
        *(program(inherit_env=form) for form in ("none", [1])),
        *(program(env_file=form) for form in (1, [1])),
        *(program(env=form) for form in ({"A": 1}, {"A=B": ""}, {"": ""})),
        program(env=[]),
        *(remote(headers=form) for form in ({"a b": ""}, {"A": None})),
        *(program(retry={"attempts": form}) for form in (0, 21, 1.5, "3", True)),
        *(remote(oauth=form) for form in ({"redirect_port": 0}, {"secret": ""}, {"grant": "password"}, "x")),
        {"mcpServers": {}, "settings": {"open_browser": True}},
        *(settings(daemon=form) for form in ("on", "5min", 0, 1)),
        settings(daemon=[]),
        settings(daemon={"idle": "5min"}),
        *(settings(daemon={"linger": form}) for form in ("ever", "-1s", -1, True)),
        *(settings(http=form) for form in ("on", 8808)),
        *(
            settings(http={"listen": form})
            for form in (-1, 65536, True, 1.5, "", "h", "h:", ":80", "::1:80", "unix:")
        ),
        *(
            settings(http={"path": form})
            for form in ("", "mcp", "/", "/mcp/", "//mcp", "/a/../b", "/a%20b", "/mcp?a")
        ),
        *(settings(http={"allowed_hosts": form}) for form in (["*"], ["*.h"], ["http://h"], ["h/a"])),
        *(
            settings(http={"allowed_origins": form})
            for form in (["*"], ["null"], ["h"], ["https://H"], ["https://h/"])
        ),
        *(settings(http={"trusted_proxies": form}) for form in (["localhost"], ["*"])),
        settings(http={"tls": True}),
        settings(http={"tls": {}}),
        *(settings(http={"tls": form}) for form in ({"cert": "c"}, {"key": "k"}, {"cert": "", "key": "k"})),
        *(settings(http={"session_timeout": form}) for form in ("never", -1)),
        *(settings(http={"max_sessions": form}) for form in (0, "many")),
        program(http=True),
        program(daemon=True),
        program(idle_timeout="ever"),
        program(enabled="false"),
        program(features={"tool": True}),
        program(connect="x"),
    ],
)
def test_schema_and_reader_refuse_the_same(
    read_config: Callable[..., object], validator: Draft202012Validator, document: object
) -> None:
    assert not validator.is_valid(document), json.dumps(document)
    with pytest.raises(ConfigError):
        read_config(document)
