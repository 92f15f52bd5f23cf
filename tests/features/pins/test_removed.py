"""A program without this room ignores nothing that a config says of definitions; where it says nothing, it trusts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.features.test_table import copy_without, run

# For each config, its first error, or the policy of its server.
PROBLEMS = """
import sys
from pathlib import Path
from dynamic_mcp.config.read import read
from dynamic_mcp.errors import ConfigError
for file in sys.argv[1:]:
    try:
        print(read(Path(file), {}).presentations["a"].pinning.policy)
    except ConfigError as exc:
        print(exc.problem)
"""


def read(folder: Path, *written: tuple[Mapping[str, object], Mapping[str, object]]) -> list[str]:
    """Return what such a program says of configs with these fields of a server and of the settings."""
    copy_without("pins", folder / "dynamic_mcp")
    for number, (server, settings) in enumerate(written):
        tree = {"mcpServers": {"a": {"command": "x", **server}}, "settings": settings}
        (folder / f"{number}.json").write_text(json.dumps(tree))
    return run(folder, PROBLEMS, *(str(folder / f"{number}.json") for number in range(len(written)))).splitlines()


def test_what_a_config_says_of_definitions_is_refused(tmp_path: Path) -> None:
    policies = [{"definitions": policy} for policy in ("trust", "warn", "hold")]
    of_servers = read(tmp_path / "servers", *((policy, {}) for policy in policies))
    assert of_servers == ["`mcpServers.a.definitions`: is an unknown field"] * 3
    of_all = read(
        tmp_path / "settings", *(({}, {"defaults": policy}) for policy in policies), ({}, {"lock_file": "pins.json"})
    )
    assert of_all == ["`settings.defaults.definitions`: is an unknown field"] * 3 + [
        "`settings.lock_file`: is an unknown field"
    ]


def test_a_config_that_says_nothing_of_them_trusts_its_servers(tmp_path: Path) -> None:
    authenticates = {"http": {"auth": [{"kind": "bearer"}]}}
    assert read(tmp_path, ({}, {}), ({}, authenticates)) == ["trust", "trust"]
