"""Reads a config file into a `Config`, for the proxy itself and for each workspace.

Either the whole file is valid, or one ConfigError lists all its problems.
"""

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import JSONDecodeError
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config import form, jsonc
from dynamic_mcp.config.location import FILE_NAME, VARIABLE, locate
from dynamic_mcp.config.resolve import resolve
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.substitute import CREDENTIAL, Surroundings, find_credentials
from dynamic_mcp.config.workspace import SERVER_MARK, Workspace
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.system import file_reader
from dynamic_mcp.system.text import os_reason

_SMALLEST = '`{"mcpServers": {}}`'


class ParsedConfig(Struct, frozen=True):
    """The content of a valid config file, before the substitution of variables.

    `file_warnings` are about the file as a whole, and `text` is its content if it names credentials. `digest` is the
    SHA-256 of the file if there is an audit log to record it.
    """

    file: Path
    root: form.Root
    file_warnings: tuple[str, ...] = ()
    platform: str = sys.platform
    digest: str = ""
    text: str = ""

    def __repr__(self) -> str:
        return f"<ParsedConfig {self.file}>"

    def resolve(self, environment: Mapping[str, str], working_directory: str | None = None) -> Config:
        """Substitute the variables of `environment`. Reads env files, so an event loop calls it in a thread.

        `working_directory` is for programs without `cwd`; None is the proxy's own.
        """
        directory = self.file.absolute().parent
        # with the mark, which the proxy has from its first server on, a config would read differently afterwards
        unmarked = {name: value for name, value in environment.items() if name != SERVER_MARK}
        surroundings = Surroundings(unmarked, self.platform, directory, working_directory=working_directory)
        config = resolve(self.root, self.file, surroundings=surroundings)
        files = config.env_files
        if self.text:
            files = (*files, *find_credentials(self.text, surroundings.all_variables()))
        return replace(config, file_warnings=self.file_warnings, env_files=files)

    def resolve_for(self, workspace: Workspace) -> Config:
        return self.resolve(workspace.environment, workspace.directory)


class ConfigState(Struct, frozen=True):
    """One version of the config: resolved for the proxy's own environment, and for each workspace."""

    parsed: ParsedConfig
    base: Config
    by_workspace: Mapping[Workspace, Config] = {}

    @property
    def files(self) -> frozenset[Path]:
        """The config file, and the env files and credentials of all its resolved configs."""
        env_files = (each.env_files for each in (self.base, *self.by_workspace.values()))
        return frozenset({self.base.file}.union(*env_files))

    def differs_from(self, served: "ConfigState") -> bool:
        """Return whether this version differs from the one that is served."""
        if (self.parsed.root, self.base) != (served.parsed.root, served.base):
            return True
        return any(config != self.by_workspace.get(each) for each, config in served.by_workspace.items())


Listener = Callable[[ConfigState, ConfigState], None]


class ReloadCounts:
    """Counts reloads. `last_success` is when the config in use was read, in seconds since 1970.

    `refusal` is why the content of the file is not in use, since `refused_at`; empty if it is.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.successes = 0
        self.failures = 0
        self.last_success = now()
        self.refusal = ""
        self.refused_at = 0.0
        self._now = now

    def record_success(self) -> None:
        """Called when a config is applied."""
        self.successes += 1
        self.last_success = self._now()

    def record_failure(self, reason: str) -> None:
        """Called when a config is rejected."""
        self.failures += 1
        if not self.refusal:
            self.refused_at = self._now()
        self.refusal = reason

    def record_repair(self) -> None:
        """Called when the file is valid again after a rejection."""
        self.refusal, self.refused_at = "", 0.0


class ServedConfig:
    """The `state` that is served. Each of the `listeners` is called with the old and the new state, in order."""

    def __init__(self, state: ConfigState) -> None:
        self.state = state
        self.reloads = ReloadCounts()
        self.listeners: list[Listener] = []

    def apply(self, new: ConfigState) -> None:
        """Serve another version. It must be resolved for every known workspace."""
        old = self.state
        self.state = replace(new, by_workspace={each: new.by_workspace[each] for each in old.by_workspace})
        for listener in self.listeners:
            listener(old, self.state)
        self.reloads.record_success()

    def add_workspace(self, workspace: Workspace, config: Config) -> None:
        """Serve another workspace. This does not count as a new version."""
        self.state = replace(self.state, by_workspace={**self.state.by_workspace, workspace: config})

    def remove_workspace(self, workspace: Workspace) -> None:
        others = {each: config for each, config in self.state.by_workspace.items() if each is not workspace}
        self.state = replace(self.state, by_workspace=others)


def find(
    argument: str | None, environment: Mapping[str, str], *, cwd: Path, user_dir: Path, may_be_new: bool = False
) -> Path:
    """Return the config to use: the argument, else DYNAMIC_MCP_CONFIG, else the file in `cwd`, else in `user_dir`.

    If there is none, `may_be_new` returns the path for a new one in `user_dir`; otherwise raises ConfigError.
    """
    file = locate(argument, environment, directory=str(cwd), user_dir=lambda: str(user_dir))
    if file is not None:
        return Path(file)
    if may_be_new:
        return user_dir / FILE_NAME
    raise ConfigError(
        FILE_NAME,
        "",
        f"not found in `{cwd}` or `{user_dir}`",
        hint=f"`dynamic-mcp init` creates one; or name a config with `-c FILE` or `{VARIABLE}`",
    )


def read(file: Path, environment: Mapping[str, str], *, platform: str = sys.platform) -> Config:
    """Read the config in `file` and substitute the variables of `environment`. Raises ConfigError."""
    return parse(file, platform=platform).resolve(environment)


def read_all(file: Path, environment: Mapping[str, str], workspaces: Iterable[Workspace] = ()) -> ConfigState:
    """Read the config in `file` once, and resolve it for the proxy and for the workspaces. Raises ConfigError."""
    parsed = parse(file)
    return ConfigState(parsed, parsed.resolve(environment), {each: parsed.resolve_for(each) for each in workspaces})


def parse(file: Path, *, platform: str = sys.platform) -> ParsedConfig:
    """Read and validate the config in `file`. Raises ConfigError."""
    text, data, distrust = _read_file(file)
    root, old_names = parse_tree(parse_document(file, text), file)
    is_audited = bool(root.settings.audit)
    digest = _digest(data) if is_audited else ""
    named = text if CREDENTIAL in text else ""
    return ParsedConfig(file, root, (*distrust, *old_names), platform, digest, named)


def _digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def list_disabled(file: Path) -> list[str]:
    """Return the names of the disabled servers in `file`. Raises ConfigError."""
    root, _ = parse_tree(parse_document(file, _read_file(file)[0]), file)
    off = root.settings.defaults.enabled is False
    return [name for name, each in root.servers.items() if each.enabled is False or (off and each.enabled is None)]


def parse_server_names(text: str, file: Path) -> list[str]:
    """Return the names of the servers in `text`, the current or future content of `file`. Raises ConfigError."""
    root, _ = parse_tree(parse_document(file, text.removeprefix("\ufeff")), file)
    return list(root.servers)


def read_document(file: Path) -> object:
    """Return the JSON value in `file`, not validated. Raises ConfigError if it is not JSON."""
    return parse_document(file, _read_file(file)[0])


def parse_tree(tree: object, file: Path) -> tuple[form.Root, list[str]]:
    """Return the config in a JSON value, with a warning if fields have old names, which are changed in the value.

    Raises ConfigError.
    """
    try:
        return form.root(tree), []
    except (ValueError, RecursionError) as exc:
        return _parse_renamed(tree, file, exc)


def _parse_renamed(tree: object, file: Path, exc: Exception) -> tuple[form.Root, list[str]]:
    """Return a config whose fields may have old names, with a warning. Raises ConfigError if that is not all."""
    from dynamic_mcp.config.old_names import Renaming

    renaming = Renaming(tree)
    if renaming.renamed and not renaming.conflicts:
        with contextlib.suppress(ValueError, RecursionError):
            return form.root(renaming.tree), [renaming.describe()]
    from dynamic_mcp.config.flaws import Problem
    from dynamic_mcp.config.problems import find_problems, to_error

    problems = [*renaming.conflicts, *map(renaming.locate, find_problems(renaming.tree))]
    raise to_error(file, problems or [Problem("", f"is not a config: {exc}")]) from exc


def _read_file(file: Path) -> tuple[str, bytes, list[str]]:
    """Return the text of the file, its bytes, and warnings about other users who can write it and so run programs."""
    try:
        data, status = file_reader.read_with_status(file, may_be_piped=True)
        return file_reader.decode(data), data, list(_find_distrust(status))
    except FileNotFoundError as exc:
        raise ConfigError(str(file), "", "does not exist", hint=f"create it, starting with {_SMALLEST}") from exc
    except IsADirectoryError as exc:
        raise ConfigError(str(file), "", "is a directory", hint=f"did you mean `{file / FILE_NAME}`?") from exc
    except OSError as exc:
        raise ConfigError(str(file), "", f"cannot be read: {os_reason(exc)}") from exc
    except UnicodeDecodeError as exc:
        name = file_reader.encoding_name(data)
        raise ConfigError(
            str(file), f"byte {exc.start + 1}", f"is not {name}", hint="save the file as UTF-8"
        ) from exc


def _find_distrust(status: os.stat_result) -> Iterator[str]:
    """Yield warnings about other users who can change a file. On Windows, only `doctor` looks for them."""
    if sys.platform == "win32":
        yield from ()
    elif stat.S_ISREG(status.st_mode):
        if status.st_mode & stat.S_IWOTH:
            yield "every user of this machine can write this file, and so run programs as you; `chmod o-w` it"
        if status.st_uid not in (0, os.getuid()):
            yield f"this file belongs to user {status.st_uid}, who can run programs as you with it"


def parse_document(file: Path, text: str) -> object:
    """Return the JSON value in `text`, the current or future content of `file`. Raises ConfigError."""
    if not text.strip():
        raise ConfigError(str(file), "", "is empty", hint=f"the smallest config is {_SMALLEST}")
    try:
        return jsonc.loads(text)
    except JSONDecodeError as exc:
        raise ConfigError(str(file), f"line {exc.lineno}, column {exc.colno}", _explain(exc)) from exc
    except jsonc.DuplicateKeyError as exc:
        from dynamic_mcp.config.problems import duplicate_problems, to_error

        raise to_error(file, duplicate_problems(exc.paths)) from exc


def _explain(error: JSONDecodeError) -> str:
    message = error.msg.removesuffix(" at").removesuffix(" starting").replace("'", "`")
    return f"is not JSON: {message[:1].lower()}{message[1:]}"
