"""`settings.registries`: which registries commands ask, and with which headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.read import parse
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.registry.config import OFFICIAL, read_registries


def write(folder: Path, registries: object, **settings: object) -> Path:
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {}, "settings": {"registries": registries, **settings}}))
    return file


def test_without_a_config_and_without_registries_it_is_the_official_one(tmp_path: Path) -> None:
    assert read_registries(tmp_path / "none.json", {}) == (OFFICIAL,)
    assert read_registries(write(tmp_path, None), {}) == (OFFICIAL,)
    assert read_registries(write(tmp_path, []), {}) == ()


def test_headers_get_their_variables_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("TOKEN='s3cret'\n")
    headers = {"Authorization": "Bearer ${TOKEN}"}
    registries = [{"name": "ours", "url": "https://${HOST}/mcp/v0.1/", "headers": headers}]
    file = write(tmp_path, registries, variables_file="own.env")
    (registry,) = read_registries(file, {"HOST": "example.com"})
    assert registry.url == "https://example.com/mcp"
    assert registry.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(registry)


def test_a_variable_that_is_not_set_is_an_error_of_who_asks_and_not_of_who_serves(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer ${TOKEN}"}
    file = write(tmp_path, [{"name": "ours", "url": "https://example.com", "headers": headers}])
    with pytest.raises(ConfigError, match="TOKEN"):
        read_registries(file, {})
    assert parse(file).resolve({}).warnings == ()


@pytest.mark.parametrize(
    "registries",
    [
        [{"name": "a", "url": "https://a"}, {"name": "a", "url": "https://b"}],
        [{"name": "a\u200b", "url": "https://a"}],
        [{"name": "a"}],
        [{"name": "a", "url": "not a url"}],
        {"a": "https://a"},
    ],
)
def test_registries_that_make_no_sense_are_refused(tmp_path: Path, registries: object) -> None:
    with pytest.raises(ConfigError):
        read_registries(write(tmp_path, registries), {})
