"""The config as the program uses it: every default and every variable is filled in.

A `repr` shows nothing that a variable may have filled in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for an upstream, in seconds."""

    connect_s: float
    tools_s: float
    resources_s: float
    prompts_s: float

    def for_list(self, method: str) -> float:
        """Return how long a list may take; that of the tools is a part of connecting."""
        match method.partition("/")[0]:
            case "resources":
                return self.resources_s
            case "prompts":
                return self.prompts_s
        return self.connect_s


@dataclass(frozen=True)
class Features:
    """What a group may offer."""

    tools: bool
    resources: bool
    prompts: bool

    def allows(self, feature: str) -> bool:
        """Tell whether a feature is offered; what has no switch is."""
        return bool(getattr(self, feature, True))


@dataclass(frozen=True)
class ToolFilter:
    """Globs over tool names; `exclude` wins, and no `include` at all lets nothing through."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def allows(self, name: str) -> bool:
        """Whether the tool may be listed and called."""
        return _matches(name, self.include) and not _matches(name, self.exclude)

    def is_within(self, other: "ToolFilter") -> bool:
        """Whether it certainly lets through no more than another; globs are compared by their text."""
        includes_less = "*" in other.include or set(self.include) <= set(other.include)
        return includes_less and set(self.exclude) >= set(other.exclude)


@dataclass(frozen=True)
class Exposure:
    """Which tools are listed by themselves: all where `direct`, else those that `pinned` names by globs."""

    direct: bool
    pinned: tuple[str, ...]

    def shows(self, tool: str) -> bool:
        """Whether the tool is listed by itself."""
        return self.direct or _matches(tool, self.pinned)


@dataclass(frozen=True)
class Answers:
    """What happens to a call's arguments and its result; `limit` is in bytes of text."""

    validate: bool
    limit: int
    compact: bool


@dataclass(frozen=True)
class Program:
    """A program to start. `cwd` None is the proxy's own directory.

    `env` is the whole of its environment, `own` names what of it the config sets, and `withheld` what is set for the
    proxy and not passed on.
    """

    command: str
    args: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None
    own: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OAuth:
    """What the config knows about logging in; the rest is found out."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    metadata_url: str | None = field(default=None, repr=False)
    issuer: str | None = field(default=None, repr=False)
    account: str | None = field(default=None, repr=False)
    is_client_credentials: bool = False
    private_key_file: str | None = None
    private_key_alg: str | None = None
    client_metadata_url: str | None = field(default=None, repr=False)
    may_open_browser: bool = True
    token_store: Literal["file", "keyring"] = "file"  # noqa: S105


@dataclass(frozen=True)
class Remote:
    """A server to reach; `kind` None is for the transport to find out."""

    kind: Literal["http", "sse"] | None
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    oauth: OAuth = OAuth()


@dataclass(frozen=True)
class Broken:
    """A server that cannot be started as things are, and why."""

    reason: str


@dataclass(frozen=True)
class GroupConfig:
    """One enabled server of the config file; `idle_after_s` None is never."""

    name: str
    description: str | None
    features: Features
    timeouts: Timeouts
    tools: ToolFilter
    eager: bool
    idle_after_s: float | None
    attempts: int
    concurrency: int
    max_message_bytes: int
    exposure: Exposure
    answers: Answers
    upstream: Program | Remote | Broken

    @property
    def label(self) -> str:
        """What stands behind the group in a word: the program's name, or the host."""
        match self.upstream:
            case Program(command=command):
                return command.replace("\\", "/").rstrip("/").rpartition("/")[2]
            case Remote(url=url):
                return _host(url)
            case Broken():
                return self.name


@dataclass(frozen=True)
class Log:
    """What is said while serving: a level and a form of stderr, and whether a file is kept."""

    level: str = "info"
    form: str = "text"
    file: bool = True


@dataclass(frozen=True)
class Embeddings:
    """An embeddings endpoint of the user's: where it answers, which model it is asked for, and what lets us in."""

    url: str = field(repr=False)
    model: str
    api_key: str | None = field(repr=False)


@dataclass(frozen=True)
class Config:
    """The whole config: the enabled groups in the order of the file, what a person should know, the files read.

    `distrust` says who else may write the file; `embeddings` where to ask for meanings.
    """

    file: Path
    groups: tuple[GroupConfig, ...]
    warnings: tuple[str, ...]
    max_message_bytes: int
    distrust: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    log: Log = Log()
    embeddings: Embeddings | None = None
    split_calls: bool = False


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _host(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).hostname or "")
