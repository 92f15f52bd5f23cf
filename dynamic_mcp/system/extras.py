"""Optional packages: the contents of each extra, and the command that installs them beside this program."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

DISTRIBUTION = "dynamic-mcp-proxy"
# As in `[project.optional-dependencies]` of pyproject.toml, without the versions.
PACKAGES = {
    "cel": ("cel-expr-python",),
    "keyring": ("keyring",),
    "otel": ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"),
}


def install_hint(extra: str, prefix: Path | None = None) -> str:
    """Return the command that adds an extra's packages to the environment in `prefix`, by default the running one.

    pipx and uv mark the environments of their tools with a file.
    """
    prefix = prefix or Path(sys.prefix)
    packages = PACKAGES[extra]
    if (prefix / "pipx_metadata.json").is_file():
        command = ["pipx", "inject", DISTRIBUTION, *packages]
    elif (receipt := prefix / "uv-receipt.toml").is_file():
        command = ["uv", "tool", "install", *_list_requirements(receipt, packages)]
    elif find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", sys.executable, *packages]
    else:
        command = [sys.executable, "-m", "pip", "install", *packages]
    return f"install it: `{' '.join(map(quote, command))}`"


def _list_requirements(receipt: Path, packages: tuple[str, ...]) -> Iterator[str]:
    """Yield these packages after those of the receipt, as uv removes packages that are not named again."""
    import tomllib

    installed = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    others = (_describe_source(each) for each in installed if each["name"] not in (DISTRIBUTION, *packages))
    for package in (*others, *packages):
        yield from ("--with", package)
    yield next((_describe_source(each) for each in installed if each["name"] == DISTRIBUTION), DISTRIBUTION)


def _describe_source(requirement: Mapping[str, str]) -> str:
    """Return a requirement in the syntax of uv's command line."""
    if git := requirement.get("git"):
        return f"git+{git}"
    sources = ("directory", "editable", "path", "url")
    return next((requirement[key] for key in sources if key in requirement), requirement["name"])
