"""The embeddings endpoint: none unless the config names one and all its variables are set."""

from collections.abc import Callable

import pytest

from dynamic_mcp.config.resolved import Config, Embeddings
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]


def document(**fields: object) -> object:
    return {"mcpServers": {}, "settings": {"search": {"embeddings": fields}}}


@pytest.mark.parametrize("settings", [{}, {"search": {}}, {"search": {"embeddings": None}}])
def test_embeddings_are_off_by_default(read_config: ReadConfig, settings: object) -> None:
    assert read_config({"mcpServers": {}, "settings": settings}).embeddings is None


def test_an_endpoint_has_a_url_a_model_and_maybe_a_key(read_config: ReadConfig) -> None:
    given = document(url="http://${HOST}:1/v1", model="m", api_key="${KEY}")

    config = read_config(given, HOST="h", KEY="hunter2")

    assert config.embeddings == Embeddings("http://h:1/v1", "m", "hunter2")
    assert "hunter2" not in repr(config)
    assert config.warnings == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://h", "model": "m", "api_key": "${KEY}"},
        {"url": "http://${KEY}", "model": "m"},
        {"url": "http://h", "model": "m", "api_key": "two\nlines"},
    ],
)
def test_what_cannot_be_filled_in_leaves_them_off_with_a_warning(
    read_config: ReadConfig, fields: dict[str, object]
) -> None:
    config = read_config(document(**fields))

    assert config.embeddings is None
    assert [warning.startswith("settings.search.embeddings.") for warning in config.warnings] == [True]
    assert "words only" in config.warnings[0]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"model": "m"}, "url"),
        ({"url": "http://h"}, "model"),
        ({"url": "http://h", "model": ""}, "model"),
        ({"url": "localhost:11434", "model": "m"}, "url"),
        ({"url": "http://h", "model": "m", "apikey": "x"}, "apikey"),
    ],
)
def test_what_is_wrong_is_named(refuse: Refuse, fields: dict[str, object], where: str) -> None:
    assert f"settings.search.embeddings.{where}" in str(refuse(document(**fields)))
