"""The registries that a launcher would ask for a package: by its flags, its variables and its files of settings.

npm: https://docs.npmjs.com/cli/using-npm/config; uv: https://docs.astral.sh/uv/configuration/; pip: "Configuration".
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser, Error
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from dynamic_mcp.features.provenance.packages import PackageUse, option_values
from dynamic_mcp.system.file_reader import decode, read_bytes
from dynamic_mcp.system.programs import find_program

NPM = "https://registry.npmjs.org"
PYPI = "https://pypi.org/simple"
_MOST_BYTES = 1 << 20
_REFERENCE = re.compile(r"\$\{([^}?]+)\??\}")
_TRUE = ("1", "true", "yes", "on")


class PackageSource(Struct, frozen=True):
    """The URL of a registry without a user in it, and the headers that it wants."""

    url: str
    headers: Mapping[str, str] = {}


class Offline(Exception):
    """Raised if a launcher is told not to use the network; the message says by what."""


def npm_source(use: PackageUse, environment: Mapping[str, str], cwd: Path | None) -> PackageSource:
    """Return the registry that npm would ask. Raises Offline."""
    variables = {
        name[len("npm_config_") :].lower(): value
        for name, value in environment.items()
        if name.lower().startswith("npm_config_")
    }
    settings = {} if cwd is None else _read_project(cwd)
    for file in _npm_files(use, environment, variables):  # the first has the last word
        settings = {**_read_npmrc(file, environment), **settings}
    settings = {**settings, **variables}
    if settings.get("offline", "").lower() == "true" or "--offline" in use.options:
        raise Offline("npm is set to be offline")
    scope = use.name.partition("/")[0] if use.name.startswith("@") else ""
    flag = next(option_values(use.options, "--registry"), "")
    url = settings.get(f"{scope}:registry", "") if scope else ""
    url = (url or flag or settings.get("registry", "") or NPM).rstrip("/")
    source = _without_user(url)
    return PackageSource(source.url, {**source.headers, **_npm_headers(source.url, settings)})


def python_sources(use: PackageUse, environment: Mapping[str, str]) -> list[PackageSource]:
    """Return the indexes that uv or pipx would ask, in their order: the first that has a package decides.

    Raises Offline.
    """
    if use.launcher == "pipx":
        if environment.get("PIP_NO_INDEX", "").lower() in _TRUE:
            raise Offline("pip is set to be offline")
        urls = _pip_indexes(use, environment)
    else:
        if environment.get("UV_OFFLINE", "").lower() in _TRUE or "--offline" in use.options:
            raise Offline("uv is set to be offline")
        urls = _uv_indexes(use, environment)
    return [_without_user(url) for url in dict.fromkeys(urls)]


def _read_project(folder: Path) -> dict[str, str]:
    """Return the registries that a directory names. A stranger may own it: no variable is filled in, no login."""
    found = _read_npmrc(folder / ".npmrc", {})
    return {name: text for name, text in found.items() if name == "registry" or name.endswith(":registry")}


def _npm_files(use: PackageUse, environment: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[Path]:
    user = variables.get("userconfig", "")
    if user:
        yield Path(user)
    elif home := _home(environment):
        yield home / ".npmrc"
    if each := variables.get("globalconfig", ""):
        yield Path(each)
    elif program := find_program(use.launcher, environment):
        yield Path(program).parent.parent / "etc" / "npmrc"


def _read_npmrc(file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a file of npm; none if it cannot be read. Lists are not needed."""
    found: dict[str, str] = {}
    for line in _read(file).splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith((";", "#", "[")):
            text = value.strip().strip("\"'")
            found[name.strip()] = _REFERENCE.sub(lambda match: environment.get(match[1], match[0]), text)
    return found


def _npm_headers(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the login of a registry: the one with the longest path that leads to it, as npm takes it."""
    place = f"//{urlsplit(url).netloc}{urlsplit(url).path}/".replace("//", "/")[1:]
    while place:
        for key in (f"//{place}", f"//{place.rstrip('/')}"):
            if token := settings.get(f"{key}:_authToken"):
                return {"authorization": f"Bearer {token}"}
            if basic := settings.get(f"{key}:_auth"):
                return {"authorization": f"Basic {basic}"}
        place = place.rstrip("/").rpartition("/")[0]
        place = f"{place}/" if place else ""
    return {}


def _uv_indexes(use: PackageUse, environment: Mapping[str, str]) -> list[str]:
    settings = _read_uv_settings(use, environment)
    entries = [each for each in _as_list(settings.get("index")) if isinstance(each, dict)]
    extra = [
        *option_values(use.options, "--index", "--extra-index-url"),
        *environment.get("UV_INDEX", "").split(),
        *environment.get("UV_EXTRA_INDEX_URL", "").split(),
        *(str(each.get("url", "")) for each in entries if not each.get("default") and not each.get("explicit")),
        *(str(each) for each in _as_list(settings.get("extra-index-url"))),
    ]
    defaults = [
        *option_values(use.options, "--default-index", "--index-url", "-i"),
        environment.get("UV_DEFAULT_INDEX", ""),
        environment.get("UV_INDEX_URL", ""),
        *(str(each.get("url", "")) for each in entries if each.get("default")),
        str(settings.get("index-url") or ""),
        PYPI,
    ]
    words = [*extra, next(filter(None, defaults))]
    return [re.sub(r"^[A-Za-z0-9_.-]+=(?=[a-z]+:)", "", word) for word in words if word]  # `name=url`


def _read_uv_settings(use: PackageUse, environment: Mapping[str, str]) -> Mapping[str, object]:
    named = next(option_values(use.options, "--config-file"), "") or environment.get("UV_CONFIG_FILE", "")
    home = _home(environment)
    config = environment.get("APPDATA") or environment.get("XDG_CONFIG_HOME") or (home and str(home / ".config"))
    files = [Path(named)] if named else [Path(str(config)) / "uv" / "uv.toml"] if config else []
    files += [] if named else [Path("/etc/uv/uv.toml")]
    for file in files:
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            if settings := tomllib.loads(_read(file)):
                return settings
    return {}


def _pip_indexes(use: PackageUse, environment: Mapping[str, str]) -> list[str]:
    settings: dict[str, str] = {}
    for file in _pip_files(environment):
        parser = ConfigParser(interpolation=None, strict=False)
        with suppress(Error):
            parser.read_string(_read(file))
            for section in ("global", "install"):
                settings |= dict(parser[section]) if parser.has_section(section) else {}
    main = [
        *option_values(use.options, "--index-url", "-i"),
        environment.get("PIP_INDEX_URL", ""),
        settings.get("index-url", ""),
        PYPI,
    ]
    extra = environment.get("PIP_EXTRA_INDEX_URL", "") or settings.get("extra-index-url", "")
    return [next(filter(None, main)), *extra.split()]


def _pip_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's files of settings: of later ones, the values count."""
    yield Path("/etc/pip.conf")
    if home := _home(environment):
        yield home / ".pip" / "pip.conf"
        yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if "APPDATA" in environment:
        yield Path(environment["APPDATA"]) / "pip" / "pip.ini"
    if file := environment.get("PIP_CONFIG_FILE"):
        yield Path(file)


def _without_user(url: str) -> PackageSource:
    """Return an index, with the user in its URL as a header."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        place = f"{host}:{parts.port}" if parts.port else host
    except ValueError:
        return PackageSource(url.rpartition("@")[2])
    plain = parts._replace(netloc=place, query="", fragment="").geturl().rstrip("/")
    if parts.username is None:
        return PackageSource(plain)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return PackageSource(plain, {"authorization": f"Basic {base64.b64encode(login).decode()}"})


def _read(file: Path) -> str:
    try:
        return decode(read_bytes(file, most=_MOST_BYTES))
    except (OSError, ValueError):
        return ""


def _home(environment: Mapping[str, str]) -> Path | None:
    name = environment.get("HOME") or environment.get("USERPROFILE") or str(Path.home())
    return Path(name) if name else None


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
