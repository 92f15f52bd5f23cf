"""Configs as real files, read as the program reads them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]


@pytest.fixture
def read_config(tmp_path: Path) -> ReadConfig:
    """Return a function that reads a document, or a text, with these variables set."""

    def read_it(document: object, *, platform: str = "linux", **environment: str) -> Config:
        file = tmp_path / "dynamic-mcp.json"
        text = document if isinstance(document, str) else json.dumps(document)
        file.write_text(text, encoding="utf-8")
        return read(file, environment, platform=platform)

    return read_it


@pytest.fixture
def refuse(read_config: ReadConfig) -> Refuse:
    """Return a function that reads an invalid document, or a text, and returns the error."""

    def refuse_it(document: object, **environment: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            read_config(document, **environment)
        return caught.value

    return refuse_it
