"""The folder of stored scripts of a config, for commands."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.stored import list_files
from dynamic_mcp.system.text import os_reason

GROUP = "scripts"


def find_settings(config: Config, *, hint: str = "`true` switches scripts on") -> Scripts:
    """Return the settings of scripts. Raises ConfigError where they are off."""
    settings = config.settings_of("scripts", Scripts)
    if settings is None:
        raise ConfigError(str(config.file), "settings.scripts", "is not set", hint=hint)
    return settings


def find_folder(config: Config) -> Path:
    """Return the folder of stored scripts. Raises ConfigError where there is none."""
    folder = find_settings(config, hint='`{"folder": "scripts"}` switches scripts on, and names the folder').folder
    if folder is None:
        hint = "it is a folder, relative to the config"
        raise ConfigError(str(config.file), "settings.scripts.folder", "is not set", hint=hint)
    return Path(folder)


def list_scripts(config: Config) -> list[Path]:
    """Return the files of the stored scripts. Raises ConfigError."""
    folder = find_folder(config)
    try:
        return list_files(folder)
    except OSError as exc:
        why = f"the folder `{folder}` cannot be read: {os_reason(exc)}"
        raise ConfigError(str(config.file), "settings.scripts.folder", why) from exc


def list_names(config: Config) -> list[str]:
    """Return the names of the stored scripts; none where there are no such scripts."""
    try:
        return [file.stem for file in list_scripts(config)]
    except ConfigError:
        return []
