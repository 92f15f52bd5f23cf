"""From the form of the file to what the program uses.

A server's own value is taken, else that of the settings, else the default; the defaults stand here alone.
"""

from collections.abc import Iterable
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from dynamic_mcp.config import form, values
from dynamic_mcp.config.access import resolve_access, resolve_profiles, resolve_tool_access
from dynamic_mcp.config.approval import resolve_approval
from dynamic_mcp.config.environment import read_env_file
from dynamic_mcp.config.http import resolve_http
from dynamic_mcp.config.http_form import Http
from dynamic_mcp.config.issuers import find_people, issuers_of
from dynamic_mcp.config.observe_resolve import resolve_audit, resolve_metrics, resolve_telemetry
from dynamic_mcp.config.resolved import (
    Answers,
    CommandLine,
    Config,
    Daemon,
    Exposure,
    Features,
    GroupConfig,
    Log,
    Pinning,
    Presentation,
    Share,
    Timeouts,
    ToolFilter,
    Upstream,
    Validation,
)
from dynamic_mcp.config.rules import (
    Policy,
    Rules,
    read_only_hints,
    resolve_cache,
    resolve_guards,
    resolve_limits,
    resolve_overrides,
    resolve_plugins,
    resolve_redact,
)
from dynamic_mcp.config.stateful import is_stateful
from dynamic_mcp.config.upstream import (
    Surroundings,
    env_files,
    resolve_embeddings,
    resolve_roots,
    resolve_upstream,
    variables_files,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import os_reason

T = TypeVar("T")
# How long a command line program may take to end, and to be answered for.
_ENDING_S = 10.0


def resolve(root: form.Root, file: Path, *, surroundings: Surroundings) -> Config:
    """The config of the enabled servers; each warning once."""
    settings = root.settings or form.Settings()
    files = dict.fromkeys(variables_files(settings, surroundings))
    variables, complaints = _variables(files)
    surroundings = replace(surroundings, variables=variables)
    warnings = dict.fromkeys(complaints)
    groups: list[GroupConfig] = []
    presentations: dict[str, Presentation] = {}
    approve: dict[str, tuple[str, ...]] = {}
    for name, server in root.servers.items():
        if _first(server.enabled, settings.enabled, default=True):
            group, found = _group(name, server, settings, surroundings=surroundings)
            groups.append(group)
            presentations[name] = _presentation(name, server, settings)
            approve[name] = tuple(_first(server.approve, settings.approve, default=[]))
            warnings.update(dict.fromkeys(found))
            files.update(dict.fromkeys(env_files(server, settings, surroundings)))
    search, found = resolve_embeddings(settings.search, surroundings)
    warnings.update(dict.fromkeys(found))
    http, found = resolve_http(settings, surroundings)
    warnings.update(dict.fromkeys(found))
    principals, found = find_people(_people(settings), issuers_of(http), file)
    warnings.update(dict.fromkeys(found))
    roots, found = resolve_roots(settings.roots, surroundings)
    warnings.update(dict.fromkeys(found))
    audit, found = resolve_audit(settings, surroundings, authenticates=bool(http is not None and http.auth))
    warnings.update(dict.fromkeys(found))
    telemetry, found = resolve_telemetry(settings, file, surroundings)
    warnings.update(dict.fromkeys(found))
    metrics, found = resolve_metrics(settings, surroundings)
    warnings.update(dict.fromkeys(found))
    return Config(
        file=file,
        groups=tuple(groups),
        presentations=presentations,
        warnings=tuple(warnings),
        max_message_bytes=_max_message_bytes(settings),
        env_files=tuple(files),
        log=_log(settings),
        embeddings=search,
        split_calls=_first(settings.split_calls, None, default=False),
        daemon=_daemon(settings),
        http=http,
        roots=roots,
        access=resolve_access(settings.access, approve, principals),
        approval=resolve_approval(settings.approval),
        audit=audit,
        telemetry=telemetry,
        metrics=metrics,
        profiles=resolve_profiles(root.profiles),
        plugins=resolve_plugins(settings.middleware),
        lock_file=None if settings.lock_file is None else file.parent / settings.lock_file,
    )


def _people(settings: form.Settings) -> Iterable[str]:
    return () if settings.access is None else settings.access.people or ()


def _variables(files: Iterable[Path]) -> tuple[dict[str, str], list[str]]:
    """What the files hold, and why one holds nothing; what lacks its variables then says so itself."""
    variables: dict[str, str] = {}
    complaints: list[str] = []
    for file in files:
        try:
            variables.update(read_env_file(file))
        except OSError as exc:
            complaints.append(f"settings.variables_file: cannot read `{file}`: {os_reason(exc)}")
        except ValueError:
            complaints.append(f"settings.variables_file: cannot read `{file}`: it is not UTF-8")
    return variables, complaints


def _group(
    name: str, server: form.Server, settings: form.Settings, *, surroundings: Surroundings
) -> tuple[GroupConfig, list[str]]:
    made = resolve_upstream(("mcpServers", name), server, settings=settings, surroundings=surroundings)
    idle_s = _first(
        values.parse_idle_time(server.idle_timeout), values.parse_idle_time(settings.idle_timeout), default=1800.0
    )
    own, shared = (section.retry or form.Retry() for section in (server, settings))
    upstream, timeouts = _bounded(made.upstream, _timeouts(server, settings))
    group = GroupConfig(
        name=name,
        timeouts=timeouts,
        eager=_first(server.connect, settings.connect, default="lazy") == "eager",
        idle_after_s=None if idle_s == inf else idle_s,
        attempts=_first(own.attempts, shared.attempts, default=3),
        concurrency=_first(server.concurrency, settings.concurrency, default=64),
        max_message_bytes=_max_message_bytes(settings),
        upstream=upstream,
        share=_share(server, settings, made.upstream),
        unset=made.unset,
        empty=made.empty,
    )
    return group, made.warnings


def _bounded(made: Upstream, timeouts: Timeouts) -> tuple[Upstream, Timeouts]:
    """Let a command line program answer what its output was, before the call of it times out."""
    if not isinstance(made, CommandLine):
        return made, timeouts
    timeout_s = timeouts.tools_s if made.timeout_s is None else made.timeout_s
    return replace(made, timeout_s=timeout_s), replace(timeouts, tools_s=timeout_s + _ENDING_S)


def _share(server: form.Server, settings: form.Settings, made: Upstream) -> Share:
    """Return who shares the server; what is known to keep the state of one conversation is not shared by itself."""
    share = Share(_first(server.share, settings.share, default="auto"))
    return Share.SESSION if share is Share.AUTO and is_stateful(made) else share


def _presentation(name: str, server: form.Server, settings: form.Settings) -> Presentation:
    rules = _rules(name, server, settings)
    return Presentation(
        description=server.description,
        features=_features(server, settings),
        tools=_tools(server, settings),
        exposure=Exposure(
            direct=_first(server.expose, settings.expose, default="group") == "direct",
            pinned=tuple(server.pinned or ()),
        ),
        answers=_answers(server, settings),
        access=resolve_tool_access(
            server.access, is_trusted=_is_trusted(server), hints=read_only_hints(rules.overrides)
        ),
        rules=rules,
        pinning=_pinning(name, server, settings),
    )


def _is_trusted(server: form.Server) -> bool:
    """Tell whether annotations are believed; those of a command line program are its pack's."""
    return isinstance(server, form.CommandLine) or bool(server.trusted)


def _rules(name: str, server: form.Server, settings: form.Settings) -> Rules:
    own = f"mcpServers.{name}"
    return Rules(
        overrides=resolve_overrides(server.overrides),
        guards=resolve_guards(
            _first(server.guards, settings.guards, default=[]), "settings" if server.guards is None else own
        ),
        limits=resolve_limits(_first(server.limits, settings.limits, default=[])),
        cache=resolve_cache(_first(server.cache, settings.cache, default=[])),
        redact=resolve_redact(
            _first(server.redact, settings.redact, default=[]), "settings" if server.redact is None else own
        ),
    )


def _pinning(name: str, server: form.Server, settings: form.Settings) -> Pinning:
    """Return what follows from changed definitions; variables count as they are written, so it is no secret."""
    match server:
        case form.Program(command=command, args=args):
            written = [command, *(args or ())]
        case form.Remote(url=url):
            written = [url]
        case form.CommandLine(cli=cli):
            written = [cli.use, cli.command or ""]
    authenticates = isinstance(settings.http, Http) and bool(settings.http.auth)
    default: Policy = "hold" if authenticates else "warn"
    policy = _first(server.definitions, settings.definitions, default=default)
    return Pinning(policy, sha256(wire.encode([name, *written])).hexdigest())


def _max_message_bytes(settings: form.Settings) -> int:
    return _first(settings.max_message_bytes, None, default=64 * 1024 * 1024)


def _log(settings: form.Settings) -> Log:
    own = settings.log or form.Log()
    return Log(
        level=_first(own.level, None, default="info"),
        form=_first(own.format, None, default="text"),
        file=_first(own.file, None, default=True),
    )


def _daemon(settings: form.Settings) -> Daemon | None:
    if not settings.daemon:
        return None
    own = settings.daemon if isinstance(settings.daemon, form.Daemon) else form.Daemon()
    linger_s = _first(values.parse_idle_time(own.linger), None, default=300.0)
    return Daemon(linger_s=None if linger_s == inf else linger_s)


def _features(server: form.Server, settings: form.Settings) -> Features:
    own, shared = (section.features or form.Features() for section in (server, settings))
    return Features(
        tools=_first(own.tools, shared.tools, default=True),
        resources=_first(own.resources, shared.resources, default=True),
        prompts=_first(own.prompts, shared.prompts, default=True),
    )


def _timeouts(server: form.Server, settings: form.Settings) -> Timeouts:
    own, shared = (section.timeout or form.Timeout() for section in (server, settings))
    return Timeouts(
        connect_s=_seconds(own.connect, shared.connect, default=30.0),
        tools_s=_seconds(own.tools, shared.tools, default=60.0),
        resources_s=_seconds(own.resources, shared.resources, default=10.0),
        prompts_s=_seconds(own.prompts, shared.prompts, default=10.0),
    )


def _answers(server: form.Server, settings: form.Settings) -> Answers:
    return Answers(
        validate=_validate(server, settings),
        limit=_first(
            values.parse_limit(server.result_limit), values.parse_limit(settings.result_limit), default=100_000
        ),
        compact=_first(server.result_format, settings.result_format, default="original") == "compact",
    )


def _validate(server: form.Server, settings: form.Settings) -> Validation | None:
    """Return what follows if arguments do not fit; those of a command line program have no other judge than us."""
    own = settings.validate_ if server.validate_ is None else server.validate_
    return "strict" if own is None and isinstance(server, form.CommandLine) else own


def _tools(server: form.Server, settings: form.Settings) -> ToolFilter:
    own, shared = (section.tools or form.Tools() for section in (server, settings))
    return ToolFilter(
        include=tuple(_first(own.include, shared.include, default=["*"])),
        exclude=tuple(_first(own.exclude, shared.exclude, default=[])),
    )


def _seconds(own: str | float | None, shared: str | float | None, *, default: float) -> float:
    return _first(values.parse_duration(own), values.parse_duration(shared), default=default)


def _first(own: T | None, shared: T | None, *, default: T) -> T:
    if own is not None:
        return own
    return default if shared is None else shared
