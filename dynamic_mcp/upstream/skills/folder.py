"""Reads the skills in folders: what is served of them, with the digest of each file.

A skill is a directory with a `SKILL.md` that has front matter (agentskills.io/specification). Hidden files, and links
that lead out of the folder, are not served. A skill that is invalid, or too large for clients to accept, is left out
by itself, with a complaint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from urllib.parse import quote

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line, os_reason
from dynamic_mcp.upstream.front_matter import BadFrontMatter, parse_front_matter

# Limits that every client supports (skills.mdx, section Limits), and those of what is read at once.
MAX_FILES = 512
MAX_BYTES = 16 << 20
MAX_SKILLS = 2000
MAX_DEPTH = 16
MAX_ENTRIES = 100_000
_MAX_FRONT_MATTER = 64 << 10
_MAX_COMPLAINTS = 20
_MAIN = "SKILL.md"
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_FRONT_MATTER = re.compile(rb"---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|$)", re.DOTALL | re.MULTILINE)
_MAX_DESCRIPTION = 1024


class SkillFile(Struct, frozen=True):
    """A file of a skill, and what it was like when it was read. `path` is below the folder, with slashes."""

    path: str
    file: Path
    size: int
    digest: str
    stamp: tuple[int, int, int]


class Skill(Struct, frozen=True):
    """A skill: its directory below the folder, its front matter as JSON, and its files; `SKILL.md` is the first."""

    path: str
    description: str
    front_matter: Raw
    files: tuple[SkillFile, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class SkillSet(Struct, frozen=True):
    """The skills of all folders by their paths, their files and directories by URI, and what is wrong with them."""

    skills: Mapping[str, Skill] = {}
    files: Mapping[str, SkillFile] = {}
    directories: Mapping[str, tuple[str, ...]] = {}
    complaints: tuple[str, ...] = ()


class _Invalid(Exception):
    """A skill that cannot be served."""


def uri_of(path: str) -> str:
    """Return the URI of a file or a directory below a folder."""
    return f"skill://{quote(path)}"


def read_folders(folders: Iterable[str], known: SkillSet | None = None) -> SkillSet:
    """Read all skills; what is the same as in `known` is not read again. Blocks.

    Of two skills with the same path, the one in the earlier folder counts.
    """
    digests = {(each.file, each.stamp): each.digest for each in known.files.values()} if known is not None else {}
    skills: dict[str, Skill] = {}
    complaints: list[str] = []
    for folder in folders:
        for skill in _Reader(Path(folder), digests, complaints).read():
            if skill.path in skills:
                complaints.append(f"`{folder}` has a second skill `{skill.path}`, which is left out")
            elif len(skills) >= MAX_SKILLS:
                complaints.append(f"there are more than {MAX_SKILLS} skills: the others are left out")
                break
            else:
                skills[skill.path] = skill
    files = {uri_of(each.path): each for skill in skills.values() for each in skill.files}
    return SkillSet(skills, files, _directories(skills.values()), tuple(complaints[:_MAX_COMPLAINTS]))


def stamps_of(folders: Iterable[str]) -> object:
    """Return what differs as soon as a file in the folders is changed, added or removed. Blocks."""
    reader = (_Reader(Path(folder), {}, []) for folder in folders)
    return [(str(file), stamp) for each in reader for file, stamp in each.walk()]


class _Reader:
    """Reads one folder."""

    def __init__(
        self, folder: Path, digests: Mapping[tuple[Path, tuple[int, int, int]], str], complaints: list[str]
    ) -> None:
        self._folder = folder
        self._real = os.path.realpath(folder)
        self._digests = digests
        self._complaints = complaints

    def walk(self) -> Iterator[tuple[Path, tuple[int, int, int]]]:
        """Yield each file that may be served, in a fixed order, with a stamp that changes when it does."""
        left = MAX_ENTRIES
        directories = [(self._folder, 0)]
        while directories:
            directory, depth = directories.pop()
            try:
                with os.scandir(directory) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as exc:
                self._complain(f"`{directory}` cannot be read: {os_reason(exc)}")
                continue
            left -= len(found)
            if left < 0:
                self._complain(f"`{self._folder}` has more than {MAX_ENTRIES} files: the others are left out")
                return
            below = []
            for entry in found:
                if entry.name.startswith("."):
                    continue
                path = directory / entry.name
                if not _is_text(entry.name):
                    self._complain(f"a file in `{directory}` is left out: its name is not UTF-8")
                    continue
                if entry.is_symlink() and not self._is_inside(os.path.realpath(path)):
                    self._complain(f"`{path}` is left out: it is a link out of the folder")
                elif entry.is_dir(follow_symlinks=False):
                    below.append((path, depth + 1))
                elif (stamp := _stamp_of(path)) is not None:
                    yield path, stamp
            if depth < MAX_DEPTH:
                directories += reversed(below)
            elif below:
                self._complain(f"`{directory}` is nested too deeply: directories in it are left out")

    def read(self) -> Iterator[Skill]:
        """Yield the valid skills, each with the files of its directory, including those of skills in it."""
        found = {self._path_of(file): (file, stamp) for file, stamp in self.walk()}
        mains = [path for path in found if path.rpartition("/")[2] == _MAIN]
        for main in mains:
            root = main.removesuffix(_MAIN).removesuffix("/")
            try:
                if not root:
                    raise _Invalid("a skill is a directory in the folder, whose name is its own")
                paths = [main, *(path for path in found if path != main and path.startswith(f"{root}/"))]
                yield self._read_skill(root, {path: found[path] for path in paths})
            except _Invalid as exc:
                self._complain(f"the skill in `{(self._folder / root)}` is left out: {exc}")
            except OSError as exc:
                self._complain(f"the skill in `{(self._folder / root)}` is left out: {os_reason(exc)}")

    def _read_skill(self, root: str, found: Mapping[str, tuple[Path, tuple[int, int, int]]]) -> Skill:
        if len(found) > MAX_FILES:
            raise _Invalid(f"it has {len(found)} files, of which clients accept {MAX_FILES}")
        size = sum(stamp[0] for _, stamp in found.values())
        if size > MAX_BYTES:
            raise _Invalid(f"it has {size} bytes, of which clients accept {MAX_BYTES}")
        main, *_ = found
        description, front_matter = _read_front_matter(root.rpartition("/")[2], found[main][0])
        return Skill(root, description, front_matter, tuple(self._read_file(path, *found[path]) for path in found))

    def _read_file(self, path: str, file: Path, stamp: tuple[int, int, int]) -> SkillFile:
        digest = self._digests.get((file, stamp))
        if digest is None:
            data = read_file(file)
            digest, stamp = digest_of(data), (len(data), *stamp[1:])
        return SkillFile(path, file, stamp[0], digest, stamp)

    def _path_of(self, file: Path) -> str:
        return file.relative_to(self._folder).as_posix()

    def _is_inside(self, real: str) -> bool:
        return real == self._real or real.startswith(self._real.rstrip(os.sep) + os.sep)

    def _complain(self, text: str) -> None:
        self._complaints.append(text)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    """Return the stamp of a regular file, or of the one that a link leads to; None for anything else."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino) if S_ISREG(status.st_mode) else None


def read_file(file: Path) -> bytes:
    """Return the content of a file, up to more than a skill may have. Raises OSError. Blocks."""
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES + 1)


def digest_of(data: bytes) -> str:
    """Return the digest of a file as entries have it."""
    return f"sha256:{sha256(data).hexdigest()}"


def _read_front_matter(name: str, file: Path) -> tuple[str, Raw]:
    """Return the description and the front matter of a skill in this directory. Raises _Invalid and OSError."""
    with file.open("rb") as opened:
        start = opened.read(_MAX_FRONT_MATTER)
    match = _FRONT_MATTER.match(start)
    if match is None:
        raise _Invalid(f"`{_MAIN}` does not begin with front matter between two lines `---`")
    front_matter = _parse(match[1])
    if front_matter.get("name") != name:
        raise _Invalid(f"the `name` in its front matter is not that of its directory, `{name}`")
    if not _NAME.fullmatch(name):
        raise _Invalid(f"`{name}` is not a name of at most 64 lower-case letters, digits and single hyphens")
    description = front_matter.get("description")
    if not isinstance(description, str) or not description.strip() or len(description) > _MAX_DESCRIPTION:
        raise _Invalid(f"its front matter has no `description` of 1 to {_MAX_DESCRIPTION} characters")
    return description, _encode(front_matter)


def _parse(text: bytes) -> Mapping[str, object]:
    try:
        return parse_front_matter(text)
    except BadFrontMatter as exc:
        raise _Invalid(f"its front matter {exc}") from None


def _encode(front_matter: Mapping[str, object]) -> Raw:
    try:
        encoded = wire.encode(front_matter)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise _Invalid(f"its front matter cannot be JSON: {one_line(str(exc), 200)}") from None
    if len(encoded) > _MAX_FRONT_MATTER:
        raise _Invalid(f"its front matter is {len(encoded)} bytes of JSON, of which {_MAX_FRONT_MATTER} are allowed")
    return Raw(encoded)


def _directories(skills: Iterable[Skill]) -> Mapping[str, tuple[str, ...]]:
    """Return the directories of skills by URI, with what is in each; URIs of directories there end with a slash."""
    found: dict[str, dict[str, None]] = {}
    for skill in skills:
        found.setdefault(uri_of(skill.path), {})
        for each in skill.files:
            names = each.path.split("/")
            for depth in range(skill.path.count("/") + 1, len(names)):
                slash = "/" if depth + 1 < len(names) else ""
                parent, child = "/".join(names[:depth]), "/".join(names[: depth + 1])
                found.setdefault(uri_of(parent), {})[f"{uri_of(child)}{slash}"] = None
    return {uri: tuple(children) for uri, children in found.items()}
