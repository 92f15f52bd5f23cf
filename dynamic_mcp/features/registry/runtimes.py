"""Starts packages: builds commands with `npx`, `uvx`, `docker run`, `dnx` and others, with a fixed version.

No shell is involved, and the word for the package can never be a flag, a path or an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.features.registry.document import Package
from dynamic_mcp.features.registry.hazards import examine

# npm treats a name that ends like an archive as a file.
_NPM = re.compile(
    r"(@[a-zA-Z0-9~_][a-zA-Z0-9._~-]*/)?[a-zA-Z0-9~_][a-zA-Z0-9._~-]*(?<!\.tgz)(?<!\.tar)(?<!\.tar\.gz)",
    re.IGNORECASE,
)
_PYPI = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?")
_NUGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_IMAGE = re.compile(
    r"[a-z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[a-f0-9]{64})?"
)
_VERSION = re.compile(r"v?[0-9][0-9A-Za-z.+!_-]*")
# To npm, `1.2` is a range, and other incomplete versions are tags or files.
_SEMANTIC_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_SOURCE = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~%/+-]*)?")
_DEFAULT_HOSTS = {
    "npm": {"registry.npmjs.org", "npmjs.com", "www.npmjs.com"},
    "pypi": {"pypi.org", "files.pythonhosted.org"},
    "oci": {"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com"},
    "nuget": {"api.nuget.org", "nuget.org", "www.nuget.org"},
}
_REFUSED = {
    "mcpb": "bundles are added by themselves: `dynamic-mcp add URL`",
}


class UnusableOption(Exception):
    """A package that cannot be started, with the reason."""


class StartWords(Struct, frozen=True):
    """The words for the runtime and for the package, and the server's variables."""

    runtime: tuple[str, ...]
    package: tuple[str, ...]
    variables: tuple[str, ...]


def programs_of(package: Package) -> tuple[str, ...]:
    """Return the command that starts a package. Raises UnusableOption."""
    _check(package)
    programs = _PROGRAMS[package.kind]
    if package.hint in programs:
        return programs[package.hint]
    if package.hint and package.runtime_arguments:
        raise UnusableOption(f"it is to be started by `{package.hint[:50]}`, with arguments for that")
    return next(iter(programs.values()))


def start(package: Package, words: StartWords) -> list[str]:
    """Return the whole command line. Raises UnusableOption."""
    program = programs_of(package)
    runtime = own_words(package, words.runtime)
    if (operand := examine(package.kind, runtime)[1]) is not None:
        raise UnusableOption(f"`{operand[:100]}` would be started instead of the package")
    return [*program, *_STARTS[package.kind](package, program[0], replace(words, runtime=runtime))]


def own_words(package: Package, runtime: Sequence[str]) -> tuple[str, ...]:
    """Return the runtime's arguments without the package, which some documents repeat among them."""
    if package.kind == "oci":
        names = {image_of(package), package.identifier}
        runtime = runtime[1:] if runtime[:1] and runtime[0] == "run" else runtime
    else:
        versions = {f"{package.identifier}{sign}{package.version}" for sign in ("@", "==")}
        names = {package.identifier, *versions}
    return tuple(word for word in runtime if word not in names)


def warnings_about(package: Package) -> list[str]:
    """Return what the user should know before the package is started."""
    found = []
    if not package.version and package.kind != "oci":
        found.append(f"`{package.identifier}` has no version here, so the newest one is started each time")
    if package.kind == "oci" and not _is_pinned_image(image_of(package)):
        found.append(f"`{package.identifier}` names no version, so what it stands for may change")
    if (source := _foreign_source(package)) and package.kind != "oci":
        found.append(f"the package does not come from the usual place, but from {source}")
    if package.hint and package.hint not in _PROGRAMS.get(package.kind, {}):
        found.append(f"it is to be started by `{package.hint}`, which is not used here")
    return found


def image_of(package: Package) -> str:
    """Return the full reference of an image; before 2025-10, the host and the version were separate."""
    image = package.identifier
    host = _host(package.base_url)
    first = image.partition("/")[0]
    if host and host not in _DEFAULT_HOSTS["oci"] and first != host and not ("/" in image and _is_host(first)):
        image = f"{host}/{image}"
    if package.version and "@" not in image and ":" not in image.rpartition("/")[2]:
        image = f"{image}:{package.version}"
    return image


def _check(package: Package) -> None:
    """Refuse packages that cannot be started, and names that mean something else. Raises UnusableOption."""
    kind, identifier = package.kind, package.identifier
    versions = _SEMANTIC_VERSION if kind == "npm" else _VERSION
    if kind not in _PROGRAMS:
        raise UnusableOption(_REFUSED.get(kind, f"this program does not know how to start packages of `{kind[:50]}`"))
    if package.transport != "stdio":
        raise UnusableOption(
            f"it serves over HTTP (`{package.transport[:50]}`); start it yourself, and add it with `--url`"
        )
    if identifier.startswith("-"):
        raise UnusableOption(f"its identifier begins with `-`: `{identifier[:100]}`")
    if not _FORMS[kind].fullmatch(image_of(package) if kind == "oci" else identifier):
        raise UnusableOption(f"its identifier is not the name of a package: `{identifier[:100]}`")
    if kind != "oci" and package.version and not versions.fullmatch(package.version):
        raise UnusableOption(f"its version is not an exact one: `{package.version[:100]}`")


def _start_npm(package: Package, program: str, words: StartWords) -> list[str]:
    target = f"{package.identifier}@{package.version}" if package.version else package.identifier
    runtime = words.runtime
    yes = ["-y"] if program == "npx" and not {"-y", "--yes"} & set(runtime) else []
    source = _foreign_source(package)
    return [*yes, *([f"--registry={source}"] if source else []), *runtime, target, *words.package]


def _start_pypi(package: Package, program: str, words: StartWords) -> list[str]:
    target = f"{package.identifier}=={package.version}" if package.version else package.identifier
    source = _foreign_source(package)
    option = "--index-url" if program == "pipx" else "--default-index"
    return [*([f"{option}={source}"] if source else []), *words.runtime, target, *words.package]


def _start_oci(package: Package, program: str, words: StartWords) -> list[str]:
    image = image_of(package)
    runtime = words.runtime
    basics = [flag for flag in ("-i", "--rm") if flag not in runtime]
    if {"--interactive", "-it"} & set(runtime):
        basics = [flag for flag in basics if flag != "-i"]
    passed = [word for name in words.variables for word in ("-e", name)]
    return ["run", *basics, *passed, *runtime, image, *words.package]


def _start_nuget(package: Package, program: str, words: StartWords) -> list[str]:
    target = f"{package.identifier}@{package.version}" if package.version else package.identifier
    runtime = [word for word in words.runtime if word != "--"]
    yes = ["--yes"] if not {"-y", "--yes"} & set(runtime) else []
    source = _foreign_source(package)
    arguments = ["--", *words.package] if words.package else []
    return [target, *yes, *(["--source", source] if source else []), *runtime, *arguments]


def _foreign_source(package: Package) -> str:
    """Return the URL of the package registry, unless it is the default one."""
    host = _host(package.base_url)
    if not host or host in _DEFAULT_HOSTS.get(package.kind, set()):
        return ""
    if not package.base_url.startswith("https://"):
        raise UnusableOption(f"the URL of its package registry is not https: `{package.base_url[:100]}`")
    if not _SOURCE.fullmatch(package.base_url):
        raise UnusableOption(f"the URL of its package registry is not a plain one: `{package.base_url[:100]}`")
    return package.base_url


def _host(url: str) -> str:
    try:
        return urlsplit(url if "://" in url else f"https://{url}").netloc.lower() if url else ""
    except ValueError:
        raise UnusableOption(f"`{url[:100]}` is not a URL") from None


def _is_host(text: str) -> bool:
    return "." in text or ":" in text or text == "localhost"


def _is_pinned_image(image: str) -> bool:
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return bool(at) or tag not in ("", "latest")


_PROGRAMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "npm": {"npx": ("npx",), "bunx": ("bunx",), "pnpm": ("pnpm", "dlx")},
    "pypi": {"uvx": ("uvx",), "uv": ("uv", "tool", "run"), "pipx": ("pipx", "run")},
    "oci": {"docker": ("docker",), "podman": ("podman",)},
    "nuget": {"dnx": ("dnx",)},
}
_FORMS = {"npm": _NPM, "pypi": _PYPI, "oci": _IMAGE, "nuget": _NUGET}
_STARTS: Mapping[str, Callable[[Package, str, StartWords], list[str]]] = {
    "npm": _start_npm,
    "pypi": _start_pypi,
    "oci": _start_oci,
    "nuget": _start_nuget,
}
