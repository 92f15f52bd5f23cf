"""The package that a command line runs: of npm, PyPI or a registry of images, and the version that it asks for.

Only what `npx`, `uvx`, `docker run` and their like take as the package counts. A word that names code elsewhere, such
as a repository or an archive, is no package of a registry, and is kept as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from dynamic_mcp.importer.convert.identity import NPM_LAUNCHERS, PYPI_LAUNCHERS, program_name

PackageKind = Literal["npm", "pypi", "oci"]

_NPM = re.compile(r"(?P<name>@[^\s/@:]+/[^\s/@:]+|[^\s/@:.][^\s/@:]*)(?:@(?P<wanted>[^\s/:]*))?")
_PYPI = re.compile(r"(?P<name>\w[\w.-]*)(?P<extras>\[[^\]\s]*\])?\s*(?P<wanted>(?:@|[=<>~!]=?)[^/:]*)?")
_IMAGE = re.compile(
    r"(?P<name>(?!\S*(?:\.\.|//))[^\s@?#%\\]+?)(?::(?P<wanted>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[a-f0-9]{64}))?"
)
_EXACT_NPM = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_EXACT_PYPI = re.compile(r"(?:@|===?)\s*(v?\d[\w.+!-]*)")

# Flags that take the next word: without them, that word would be taken for the package.
_WITH_VALUE = {
    "npm": "--registry -c --call --userconfig --cache --loglevel --prefix --workspace -w --node-options",
    "pypi": "--with --with-editable --with-requirements -p --python --index-url -i --default-index --index"
    " --extra-index-url --find-links -f --python-platform --constraints -c --overrides --env-file --config-file"
    " --cache-dir --directory --project --color --resolution --prerelease --index-strategy --keyring-provider"
    " --exclude-newer --refresh-package --reinstall-package --upgrade-package -P --config-setting -C"
    " --no-build-package --no-binary-package --link-mode --allow-insecure-host --pip-args --fetch-python",
}
_PACKAGE_FLAGS = {"npm": ("-p", "--package"), "pypi": ("--from", "--spec")}
_SWITCHES_OF_IMAGES = (
    "--detach --interactive --tty --rm --init --privileged --read-only --publish-all --no-healthcheck --rmi"
    " --oom-kill-disable --sig-proxy --disable-content-trust --quiet --no-hosts --replace"
)
_SHORT_SWITCHES = frozenset("ditPq")


class PackageUse(Struct, frozen=True, kw_only=True):
    """A package in a command line: `index` is its word in `[command, *args]`, `text` that word or its part.

    `wanted` is the version, range or tag that it asks for, as it is written; `version` the exact one. An image has
    its `digest`. `options` are the words before it, which may name a registry.
    """

    kind: PackageKind
    name: str
    index: int
    text: str
    wanted: str = ""
    version: str = ""
    digest: str = ""
    options: tuple[str, ...] = ()
    launcher: str = ""

    @property
    def label(self) -> str:
        return {"npm": "npm package", "pypi": "PyPI package", "oci": "image"}[self.kind]

    @property
    def is_fixed(self) -> bool:
        """Return whether each start runs the same version."""
        return bool(self.digest if self.kind == "oci" else self.version)

    def with_version(self, version: str) -> str:
        """Return its text with a version, or for an image with a digest."""
        if self.kind == "oci":
            return f"{self.text.partition('@')[0]}@{version}"
        if self.kind == "npm":
            return f"{self.name}@{version}"
        extras = _PYPI.fullmatch(self.text)
        assert extras is not None
        return f"{self.name}{extras['extras'] or ''}=={version}"


class ForeignCode(Struct, frozen=True):
    """Code that a launcher fetches from elsewhere than a registry: the launcher's word for it."""

    text: str


def find_package(words: Sequence[str]) -> PackageUse | ForeignCode | None:
    """Return what a command line of these words runs; None if it starts no package."""
    offset = 0
    if len(words) > 2 and program_name(words[0]) == "cmd" and words[1].lower() == "/c":
        offset = 2
    words = words[offset:]
    if not words:
        return None
    command = (program_name(words[0]), *words[1:])
    for kind, launchers in _LAUNCHERS.items():
        launcher = next((each for each in launchers if command[: len(each)] == each), None)
        if launcher is not None:
            found = _find_word(kind, command, len(launcher))
            return None if found is None else _read(kind, command, offset, *found, launcher=launcher[0])
    return None


def option_values(options: Sequence[str], *names: str) -> Iterator[str]:
    """Yield the values of flags among options: `--registry URL` and `--registry=URL`."""
    for number, word in enumerate(options):
        flag, equals, value = word.partition("=")
        if flag in names and equals:
            yield value
        elif word in names and number + 1 < len(options):
            yield options[number + 1]


_LAUNCHERS: Mapping[PackageKind, Sequence[tuple[str, ...]]] = {
    "npm": sorted(NPM_LAUNCHERS, key=len, reverse=True),
    "pypi": sorted(PYPI_LAUNCHERS, key=len, reverse=True),
    "oci": [("docker", "container", "run"), ("podman", "container", "run"), ("docker", "run"), ("podman", "run")],
}


def _find_word(kind: PackageKind, words: Sequence[str], start: int) -> tuple[int, str] | None:
    """Return the number of the word that names the package, and its part that does."""
    position = start
    while position < len(words):
        word = words[position]
        flag, equals, value = word.partition("=")
        if flag in _PACKAGE_FLAGS.get(kind, ()):
            return (position, value) if equals else _next_word(words, position)
        if word == "--" and kind != "oci":
            return _next_word(words, position)
        if not word.startswith("-"):
            return position, word
        position += 2 if _takes_next(kind, word) else 1
    return None


def _next_word(words: Sequence[str], position: int) -> tuple[int, str] | None:
    return (position + 1, words[position + 1]) if position + 1 < len(words) else None


def _takes_next(kind: PackageKind, word: str) -> bool:
    if "=" in word:
        return False
    if kind != "oci":
        return word in _WITH_VALUE[kind].split()
    if word.startswith("--"):
        return word not in _SWITCHES_OF_IMAGES.split()
    letters = word[1:]
    return len(letters) == 1 and letters not in _SHORT_SWITCHES


def _read(
    kind: PackageKind, words: Sequence[str], offset: int, position: int, text: str, *, launcher: str
) -> PackageUse | ForeignCode | None:
    if "${" in text or not text:
        return None
    match = _FORMS[kind].fullmatch(text)
    if match is None or (kind != "oci" and re.search(r"\.(tgz|tar|tar\.gz|whl|zip)$", match["name"])):
        return ForeignCode(text)
    wanted = (match["wanted"] or "").strip()
    digest = match["digest"] or "" if kind == "oci" else ""
    return PackageUse(
        kind=kind,
        name=match["name"],
        index=offset + position,
        text=text,
        wanted=wanted,
        version=_exact(kind, wanted),
        digest=digest,
        options=tuple(words[1:position]),
        launcher=launcher,
    )


def _exact(kind: PackageKind, wanted: str) -> str:
    if kind == "npm":
        return wanted.removeprefix("v") if _EXACT_NPM.fullmatch(wanted) else ""
    match = _EXACT_PYPI.fullmatch(wanted) if kind == "pypi" else None
    return match[1] if match else ""


_FORMS = {"npm": _NPM, "pypi": _PYPI, "oci": _IMAGE}
