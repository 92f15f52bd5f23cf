"""Folders of skills in a config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Broken, Config, SkillFolders
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]


def test_folders_are_relative_to_the_config_and_take_variables(read_config: ReadConfig, tmp_path: Path) -> None:
    config = read_config({"mcpServers": {"own": {"skills": ["./skills", "${MORE}"]}}}, MORE="/srv/skills")
    (group,) = config.groups
    assert group.upstream == SkillFolders((str(tmp_path / "skills"), str(tmp_path / "/srv/skills")))
    assert group.eager
    assert group.idle_after_s is None


def test_a_folder_with_an_unset_variable_breaks_the_group(read_config: ReadConfig) -> None:
    (group,) = read_config({"mcpServers": {"own": {"skills": ["${UNSET_FOLDER}"]}}}).groups
    assert isinstance(group.upstream, Broken)
    assert "UNSET_FOLDER" in group.upstream.reason


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"skills": []}, "must not be empty"),
        ({"skills": "./skills"}, "mcpServers.own.skills"),
        ({"skills": ["./skills"], "command": "x"}, "cannot stand beside `command`"),
        ({"skills": ["./skills"], "args": []}, "or `skills`, if it is folders of skills"),
        ({}, "or `skills`, if it is folders of skills"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(refuse: Refuse, server: object, words: str) -> None:
    assert words in str(refuse({"mcpServers": {"own": server}})) + refuse({"mcpServers": {"own": server}}).hint
