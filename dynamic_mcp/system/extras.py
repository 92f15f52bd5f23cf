"""Optional packages: the contents of each extra, and how to add them to this program as it was installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from dynamic_mcp.system.shell import quote

DISTRIBUTION = "dynamic-mcp-proxy"
# As in `[project.optional-dependencies]` of pyproject.toml, without the versions.
PACKAGES = {
    "cel": ("cel-expr-python",),
    "cluster": ("valkey",),
    "keyring": ("keyring",),
    "otel": ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"),
    "scripts": ("pydantic-monty-client", "pydantic-monty-runtime"),
    "ui": ("jinja2",),
}
# Cache directories of runners: uvx, `uv run --with`, npx.
_CACHES = frozenset(("archive-v0", "builds-v0", "environments-v2", "_npx"))
# Where `pipx --global` keeps its environments.
_PIPX_GLOBAL = Path("/opt/pipx")


def install_hint(
    extra: str, prefix: Path | None = None, *, python: str = sys.executable, has_pip: bool | None = None
) -> str:
    """Return how to add an extra's packages to the environment in `prefix`, by default the running one.

    pipx and uv mark the environments of their tools with a file. Those of `pipx run` and uvx are built anew from the
    command line, so adding a package to them would not last.
    """
    prefix = prefix or Path(sys.prefix)
    packages = PACKAGES[extra]
    if is_temporary(prefix):
        return f"add `{' '.join(f'--with {each}' for each in packages)}` to the command that runs dynamic-mcp"
    if (prefix / "pipx_metadata.json").is_file():
        scope = ["--global"] if prefix.is_relative_to(_PIPX_GLOBAL) else []
        command = ["pipx", "inject", *scope, prefix.name, *packages]
    elif (receipt := prefix / "uv-receipt.toml").is_file():
        command = ["uv", "tool", "install", *_list_requirements(receipt, packages)]
    elif has_pip or (has_pip is None and find_spec("pip") is not None):
        command = [python, "-m", "pip", "install", *packages]
    else:
        command = ["uv", "pip", "install", "--python", python, *packages]
    return f"install it: `{quote(*command)}`"


def is_temporary(path: Path) -> bool:
    """Return whether a program or environment is in the cache of a runner, which may be cleared at any time."""
    parts = path.parts
    return not _CACHES.isdisjoint(parts) or ("pipx" in parts and ".cache" in parts)


def _list_requirements(receipt: Path, packages: tuple[str, ...]) -> Iterator[str]:
    """Yield these packages after those of the receipt, as uv removes packages that are not named again."""
    import tomllib

    installed = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    for each in installed:
        if each["name"] not in (DISTRIBUTION, *packages):
            yield "--with-editable" if "editable" in each else "--with"
            yield _describe_source(each)
    for package in packages:
        yield from ("--with", package)
    program = next((each for each in installed if each["name"] == DISTRIBUTION), {"name": DISTRIBUTION})
    if "editable" in program:
        yield "--editable"
    yield _describe_source(program)


def _describe_source(requirement: Mapping[str, str | list[str]]) -> str:
    """Return a requirement of a receipt in the syntax of uv's command line."""
    name, extras = requirement["name"], ",".join(requirement.get("extras", ()))
    extras = f"[{extras}]" if extras else ""
    if isinstance(git := requirement.get("git"), str):
        source = _describe_repository(git)
        return f"{name}{extras} @ {source}" if extras else source
    sources = ("directory", "editable", "path", "url")
    source = next((str(requirement[key]) for key in sources if key in requirement), f"{name}")
    if "url" in requirement and extras:
        return f"{name}{extras} @ {source}"
    specifier = requirement.get("specifier", "") if source == name else ""
    return f"{source}{extras}{specifier}"


def _describe_repository(git: str) -> str:
    """Return the URL of a repository; uv's receipts have its revision and folder in the query."""
    parts = urlsplit(git)
    query = parse_qs(parts.query)
    revision = next((f"@{query[key][0]}" for key in ("rev", "tag", "branch") if key in query), "")
    folder = "".join(f"#subdirectory={each}" for each in query.get("subdirectory", ()))
    return f"git+{git.partition('?')[0]}{revision}{folder}"
