"""What a daemon and an HTTP server load before they need it: all that an upgrade could take away."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynamic_mcp
from dynamic_mcp.config.read import read_all
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.host.loading import list_modules

PACKAGE = Path(str(dynamic_mcp.__file__)).parent
# Rooms of commands, of which no server is made.
COMMANDS = {"cli", "doctor", "features", "importer"}
# The page for people, which few open: after an upgrade it says that the program has to be restarted.
PAGE = "ui"
# Where the config asks for them, these are loaded at the start; the event loop is made before all else.
AT_THE_START = {
    "cel_expr_python",
    "keyring",
    "opentelemetry",
    "platformdirs",
    "uvloop",
    "pywintypes",
    "win32api",
    "win32gui",
}


def config(tmp_path: Path, server: str) -> Config:
    file = tmp_path / "config.json"
    file.write_text(f'{{"mcpServers": {{"a": {server}}}}}')
    return read_all(file, {}).base


@pytest.fixture
def with_url(tmp_path: Path) -> set[str]:
    url = config(tmp_path, '{"url": "http://127.0.0.1:9/mcp"}')
    return {*list_modules(url, serves_http=True, can_hand_over=False)}


def imports_of_functions(file: Path) -> Iterator[str]:
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module


def of_features(modules: set[str]) -> Iterator[str]:
    """What serving needs of features: the rooms of those that serve, without what is for commands."""
    rooms = [feature.name for feature in FEATURES if feature.serves]
    for _, room, *rest in (name.split(".")[1:] for name in modules if name.startswith("dynamic_mcp.features.")):
        if room in rooms and rest[0] not in {"check", "commands", "page", "probe", "status"}:
            yield ".".join(("dynamic_mcp.features", room, *rest))


def test_a_server_that_cannot_hand_over_loads_every_module_that_serving_can_need(with_url: set[str]) -> None:
    modules = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py" and len(file.relative_to(PACKAGE).parts) > 1
    }
    wanted = {name for name in modules if name.split(".")[1] not in {*COMMANDS, PAGE}} | {*of_features(modules)}
    extras = (
        *(f"{feature.package}." for feature in FEATURES if feature.extra),
        *(f"{feature.package}.{part}" for feature in FEATURES for part in feature.store_modules),
    )
    optional = {name for name in wanted if name.startswith(extras) and not name.endswith(".config")}
    assert wanted - with_url == {"dynamic_mcp.config.cel", *optional}


def test_what_replicas_share_is_loaded_where_the_config_has_a_store(tmp_path: Path, with_url: set[str]) -> None:
    file = tmp_path / "replica.json"
    cluster = f'''{{"peers": "http://a", "keys": ["{"k" * 32}"], "name": "a", "store": "valkey://cache"}}'''
    file.write_text(f'{{"mcpServers": {{}}, "settings": {{"cluster": {cluster}}}}}')
    shares = {*list_modules(read_all(file, {}).base, serves_http=True, can_hand_over=False)}
    assert {"dynamic_mcp.features.cluster.valkey_store", "dynamic_mcp.features.cluster.store"} <= shares - with_url


def test_it_loads_each_package_of_others_that_a_function_imports(with_url: set[str]) -> None:
    loaded = {name.split(".")[0] for name in with_url}
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in {*COMMANDS, PAGE}:
            continue
        for name in imports_of_functions(file):
            top = name.split(".")[0]
            if top != "dynamic_mcp" and top not in sys.stdlib_module_names and top not in AT_THE_START:
                # httpx2 comes with the modules of remote servers
                assert top in loaded | {"httpx2"}, f"{file}: {name}"


def test_a_daemon_that_can_hand_over_does_without_what_is_large_and_seldom_needed(tmp_path: Path) -> None:
    local = config(tmp_path, '{"command": "true"}')
    names = {*list_modules(local, serves_http=False, can_hand_over=True)}
    assert "dynamic_mcp.proxy.calls" in names
    assert not [name for name in names if name.startswith(("dynamic_mcp.face.http", "dynamic_mcp.config.model"))]
    assert not names & {"dynamic_mcp.oauth.login", "dynamic_mcp.web.endpoints", "dynamic_mcp.web.jwk"}
    assert not [name for name in names if name.startswith("authlib")]
