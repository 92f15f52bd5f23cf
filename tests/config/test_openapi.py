"""Services with an OpenAPI document in a config: what is resolved, without calling anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.config.resolved import ApiDocument, Broken, Config, Remote
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.groups.catalog_store import key
from tests.fakes import Json
from tests.upstream.openapi.mirror import document

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]
URL = "https://api.example.com/openapi.json"


def entry(**members: Any) -> Json:  # Any: JSON
    return {"mcpServers": {"it": {"openapi": URL, **members}}}


def remote(config: Config) -> tuple[Remote, ApiDocument]:
    (group,) = config.groups
    assert isinstance(group.upstream, Remote), group.upstream
    assert group.upstream.api is not None
    return group.upstream, group.upstream.api


def reason(config: Config) -> str:
    (group,) = config.groups
    assert isinstance(group.upstream, Broken), group.upstream
    return group.upstream.reason


def write(folder: Path, name: str = "it.json", **members: Any) -> None:  # Any: JSON
    (folder / name).write_text(json.dumps(document({}, servers=[{"url": "https://it.example/v1"}], **members)))


def test_a_document_at_a_url_is_on_the_site_of_its_service(read_config: ReadConfig) -> None:
    server, api = remote(read_config(entry(openapi="https://api.example.com/a/${NAME}.json"), NAME="b"))
    assert (server.url, api.base_url) == ("https://api.example.com/", "")
    assert api.location == "https://api.example.com/a/b.json"
    server, api = remote(read_config(entry(url="http://10.0.0.5/v1")))
    assert (server.url, api.base_url) == ("http://10.0.0.5/v1", "http://10.0.0.5/v1")


def test_a_document_in_a_file_is_relative_to_the_config_and_names_its_service(
    read_config: ReadConfig, tmp_path: Path
) -> None:
    write(tmp_path)
    server, api = remote(read_config(entry(openapi="./${NAME}.json"), NAME="it"))
    assert (server.url, api.location) == ("https://it.example/v1", str(tmp_path / "it.json"))
    server, api = remote(read_config(entry(openapi="it.json", url="http://localhost:8000")))
    assert server.url == api.base_url == "http://localhost:8000"


def test_a_changed_file_is_another_server(read_config: ReadConfig, tmp_path: Path) -> None:
    write(tmp_path)
    before = read_config(entry(openapi="it.json"))
    same = read_config(entry(openapi="it.json"))
    write(tmp_path, tags=[])
    after = read_config(entry(openapi="it.json"))
    assert before.env_files == (tmp_path / "it.json",)
    assert before.groups == same.groups
    assert before.groups != after.groups
    assert key(before.groups[0]) != key(after.groups[0])
    assert key(after.groups[0]) != key(read_config(entry(openapi="it.json", exclude=["x"])).groups[0])


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"openapi": "none.json"}, "none.json` cannot be read: "),
        ({"openapi": "${NONE}"}, "`${NONE}` is not set"),
        ({"openapi": "https://${NONE}/x"}, "`${NONE}` is not set"),
        ({"openapi": "old.json"}, "is Swagger 2.0, not OpenAPI 3.0 or 3.1; convert it"),
        ({"openapi": "bare.json"}, "names no server with a full URL; set `url`"),
        ({"openapi": "text.json"}, "is neither JSON nor YAML"),
        ({"url": "https://a.example/?key=1"}, "must have no query"),
        ({"url": "${NONE}"}, "`${NONE}` is not set"),
        ({"headers": {"A": "a\r\nb"}}, "contains a line break"),
    ],
)
def test_what_cannot_be_used_breaks_the_server_with_its_reason(
    read_config: ReadConfig, tmp_path: Path, members: Json, words: str
) -> None:
    (tmp_path / "old.json").write_text('{"swagger": "2.0"}')
    (tmp_path / "bare.json").write_text('{"openapi": "3.1.0"}')
    (tmp_path / "text.json").write_text("a: b: c")
    assert words in reason(read_config(entry(**members)))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"openapi": URL, "command": "x"}, "cannot stand beside `openapi`"),
        ({"openapi": URL, "args": []}, "`openapi`, if it is a service with an OpenAPI document"),
        ({"openapi": 5}, "mcpServers.it.openapi"),
        ({"openapi": ""}, "mcpServers.it.openapi"),
        ({"openapi": URL, "include": []}, "must not be empty"),
        ({"openapi": URL, "url": "htp:/x"}, "is not a URL"),
        ({"openapi": URL, "query": {"": "x"}}, "must not be empty"),
        ({"openapi": URL, "headers": {"a b": "x"}}, "the name of a header"),
        ({"openapi": URL, "includes": ["x"]}, "did you mean `include`"),
        ({"openapi": URL, "type": "http"}, "cannot stand beside `url`"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(refuse: Refuse, server: Json, words: str) -> None:
    error = refuse({"mcpServers": {"it": server}})
    assert words in f"{error} {error.hint}"


def test_secrets_of_programs_may_be_in_headers_and_queries(read_config: ReadConfig) -> None:
    found, _ = remote(read_config(entry(headers={"A": "${op:a}"}, query={"k": "x${pass:b}"})))
    assert found.lookups is not None
    assert [(each.place, each.key) for each in found.lookups.texts] == [("headers", "A"), ("query", "k")]


def test_there_is_a_login_only_if_the_config_says_so(read_config: ReadConfig) -> None:
    without, _ = remote(read_config(entry()))
    assert (without.may_log_in, without.has_own_authorization) == (False, True)
    (group,) = read_config(entry(oauth={"client_id": "${ID}"}), ID="me").groups
    assert isinstance(group.upstream, Remote)
    assert group.upstream.may_log_in
    assert group.upstream.oauth.client_id == "me"
    assert group.has_personal_logins


def test_arguments_are_checked_strictly_and_methods_are_trusted_unless_the_config_says_otherwise(
    read_config: ReadConfig,
) -> None:
    presentation = read_config(entry()).presentations["it"]
    assert presentation.answers.validate == "strict"
    assert presentation.effects.trusts_annotations
    changed = read_config(entry(validate="assist", effects={"write": ["getAndDelete"]})).presentations["it"]
    assert (changed.answers.validate, changed.effects.write) == ("assist", ("getAndDelete",))


def test_the_variables_of_an_entry_are_those_that_its_client_must_pass_on(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps(entry(openapi="${A}", url="${B}", headers={"X": "${C}"}, query={"k": "${D}"})))
    assert find_required_variables(file, {}).names == ("A", "B", "C", "D")


def test_no_secret_is_in_a_representation(read_config: ReadConfig) -> None:
    secrets = {"headers": {"A": "hush-1"}, "query": {"k": "hush-2"}}
    config = read_config(entry(openapi="https://u:hush-3@api.example.com/x?key=hush-4", **secrets))
    assert "hush" not in repr(config)
