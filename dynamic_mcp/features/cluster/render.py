"""Renders a config and values as manifests for Kubernetes. The same input gives the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dynamic_mcp.config import environment, read
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.cluster import chart
from dynamic_mcp.features.cluster.preconditions import Preconditions
from dynamic_mcp.features.cluster.tiers import Deployment
from dynamic_mcp.system.text import os_reason

Json = Any  # the config and values, as they are written


class Rendering(Struct, frozen=True):
    """The values of the chart with all that was given, the manifests that follow from them, and warnings."""

    values: Mapping[str, Json]
    manifests: str
    warnings: list[str]


def render(
    file: Path, name: str, *, values_file: Path | None, changes: Iterable[str], secrets_file: Path | None
) -> Rendering:
    """Render the config in a file, with changes `KEY=VALUE` of the values in another one. Raises ConfigError."""
    config = read_config(file)
    given: dict[str, Json] = {} if values_file is None else chart.read_values(values_file)
    for change in changes:
        given = chart.merge(given, _parse_change(change))
    secrets = _read_secrets(file, config, secrets_file)
    given = chart.merge(given, {"secrets": secrets} if secrets else {}) | {"config": config}
    values = chart.merge(chart.default_values(), given)
    chart.check_values(values, "values" if values_file is None else str(values_file))
    deployment = Deployment(config, values, name)
    warnings = Preconditions(deployment, str(file)).check()
    return Rendering(given, chart.render_chart(deployment.describe()), warnings)


def read_config(file: Path) -> dict[str, Json]:
    """Return the config in a file as it is written, with the newest names of fields. Raises ConfigError."""
    from dynamic_mcp.config.old_names import Renaming

    read.parse(file)
    tree = Renaming(read.read_document(file)).tree
    assert isinstance(tree, dict)
    return {key: value for key, value in tree.items() if key != "$schema"}


def _parse_change(text: str) -> dict[str, Json]:
    """Return the values that `a.b=VALUE` changes. Raises ConfigError."""
    key, equals, written = text.partition("=")
    if not key or not equals:
        raise ConfigError("--set", "", f"`{text}` is no change", hint="write `gateway.replicas=3`")
    value = chart.parse_value(written, "--set", key) if written else ""
    for member in reversed(key.split(".")):
        value = {member: value}
    assert isinstance(value, dict)
    return value


def _read_secrets(file: Path, config: Mapping[str, Json], secrets_file: Path | None) -> dict[str, str]:
    """Return the variables in the files that the config names, and in one for the cluster. Raises ConfigError."""
    written = (config.get("settings") or {}).get("variables_file") or []
    named = [written] if isinstance(written, str) else written
    files = [file.absolute().parent / each for each in named] + ([] if secrets_file is None else [secrets_file])
    variables: dict[str, str] = {}
    for each in files:
        try:
            variables.update(environment.read_env_file(each))
        except OSError as exc:
            raise ConfigError(str(each), "", f"cannot be read: {os_reason(exc)}") from exc
        except ValueError as exc:
            raise ConfigError(str(each), "", "is not UTF-8") from exc
    return variables
