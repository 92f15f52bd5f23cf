"""Resolves the sections of the file into the config that the program uses.

A server's own value is taken, else that of `settings.defaults`, else the built-in default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec.structs import replace

from dynamic_mcp.config import form
from dynamic_mcp.config.access import ToolEffects, resolve_access
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import (
    CallHandling,
    CommandLine,
    Config,
    DirectLimit,
    Features,
    FeatureServer,
    GroupConfig,
    Pinning,
    Presentation,
    Program,
    Retry,
    Share,
    Timeouts,
    ToolFilter,
    Upstream,
    Validation,
)
from dynamic_mcp.config.rules import Policy, place_rules
from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Surroundings
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.config.upstream import (
    env_files,
    read_variables,
    resolve_embeddings,
    resolve_roots,
    resolve_upstream,
    variables_files,
)
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.table import FEATURES, feature_with_gates
from dynamic_mcp.mcp import wire

if TYPE_CHECKING:  # with the first config that has them
    from dynamic_mcp.config.http import Http
    from dynamic_mcp.identity import Principal

T = TypeVar("T")
S = TypeVar("S", bound=Section)
# The time for a command line program to end and its answer to be sent.
_ENDING_S = 10.0
# Servers that are known to keep the state of one conversation: browsers, desktops, terminals, chains of thought. Two
# clients of one such process would click in each other's pages. By their published names, as they stand in a command
# or its arguments.
STATEFUL = frozenset(
    (
        "@playwright/mcp",
        "@executeautomation/playwright-mcp-server",
        "playwright-mcp",
        "playwright-mcp-server",
        "mcp-server-playwright",
        "chrome-devtools-mcp",
        "@browsermcp/mcp",
        "@browserbasehq/mcp",
        "@browserbasehq/mcp-server-browserbase",
        "@agent-infra/mcp-server-browser",
        "browser-use",
        "browser-use-mcp-server",
        "mcp-browser-use",
        "mcp-server-browser-use",
        "@modelcontextprotocol/server-puppeteer",
        "puppeteer-mcp-server",
        "mcp-selenium",
        "@angiejones/mcp-selenium",
        "@wonderwhy-er/desktop-commander",
        "desktop-commander",
        "computer-use-mcp",
        "windows-mcp",
        "@mobilenext/mobile-mcp",
        "appium-mcp",
        "iterm-mcp",
        "mcp-terminal",
        "terminal-mcp",
        "tmux-mcp",
        "mcp-interactive-terminal",
        "@modelcontextprotocol/server-sequential-thinking",
        "mcp-server-sequential-thinking",
        "mcp-sequentialthinking-tools",
        "mcp/playwright",
        "mcp/puppeteer",
        "mcp/sequentialthinking",
        "mcr.microsoft.com/playwright/mcp",
    )
)
# A version or tag after a package's name: `@latest`, `==1.2`, `:1.0`. The `@` of a scope comes first and is kept.
_VERSION = re.compile(r"(?<=.)(?:@|==|:)[^/\\@]*$")


def resolve(root: form.Root, file: Path, *, surroundings: Surroundings) -> Config:
    """Return the config with the enabled servers and with each warning once."""
    settings = root.settings
    files = dict.fromkeys(variables_files(settings, surroundings))
    variables, complaints = read_variables(files)
    surroundings = replace(surroundings, variables=variables)
    warnings = dict.fromkeys(complaints)

    def collect(resolved: tuple[T, Iterable[str]]) -> T:
        warnings.update(dict.fromkeys(resolved[1]))
        return resolved[0]

    groups: list[GroupConfig] = []
    presentations: dict[str, Presentation] = {}
    approve: dict[str, tuple[str, ...]] = {}
    for name, server in root.servers.items():
        if _first(server.enabled, settings.defaults.enabled, default=True):
            groups.append(collect(_group(name, server, settings, surroundings=surroundings)))
            presentations[name] = _presentation(name, server, settings)
            approve[name] = _first(server.approve, settings.defaults.approve, default=())
            files.update(dict.fromkeys(env_files(server, settings.defaults, surroundings)))
    embeddings = collect(resolve_embeddings(settings.search, surroundings))
    http = collect(_http(settings, surroundings))
    principals = collect(_principals(settings, http, file))
    roots = collect(resolve_roots(settings.roots, surroundings))
    authenticates = http is not None and bool(http.auth)
    sections = collect(_feature_sections(settings, file, surroundings, authenticates=authenticates))
    for name, upstream in _feature_servers(sections):
        if name in root.servers:
            raise ConfigError(
                str(file),
                format_path(("mcpServers", name)),
                "is the name of the group that `settings` adds",
                hint="give the server another name",
            )
        group, presentations[name] = _feature_group(name, upstream, settings)
        groups.append(group)
        approve[name] = settings.defaults.approve or ()
    config = Config(
        file=file,
        groups=tuple(groups),
        presentations=presentations,
        max_message_bytes=settings.max_message_bytes,
        env_files=tuple(files),
        log=settings.log,
        embeddings=embeddings,
        split_calls=settings.split_calls,
        max_direct=None if settings.max_direct is False else settings.max_direct or DirectLimit(),
        daemon=settings.daemon or None,
        http=http,
        ui=settings.ui,
        roots=roots,
        access=resolve_access(settings.access, approve, principals),
        approval=settings.approval,
        profiles=root.profiles,
        middleware=settings.middleware,
        experimental=settings.experimental,
        lock_file=None if settings.lock_file is None else file.parent / settings.lock_file,
        warnings=tuple(warnings),
        **sections,
    )
    _check_wanted_features(config, file, surroundings, authenticates=authenticates)
    return config


# --- sections of the proxy itself, which workspaces lack ----------------------------------------------------


def _http(settings: form.Settings, surroundings: Surroundings) -> tuple[Http | None, list[str]]:
    if not settings.http or surroundings.working_directory is not None:
        return None, []
    from dynamic_mcp.config.http import resolve_http

    return resolve_http(settings.http, settings.access, surroundings)


def _principals(
    settings: form.Settings, http: Http | None, file: Path
) -> tuple[Mapping[str, tuple[Principal, ...]], list[str]]:
    if http is None or settings.access is None:
        return {}, []
    from dynamic_mcp.config.issuers import find_people, issuers_of

    return find_people(settings.access.people, issuers_of(http), file)


def _feature_sections(
    settings: form.Settings, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[dict[str, Any], list[str]]:  # Any: members of `Config`
    """Return the resolved sections of features, by the members of `Config`, and warnings."""
    sections, warnings = {}, []
    for feature in FEATURES:
        if not feature.resolve:
            continue
        (member,) = feature.members
        written = getattr(settings, member)
        if written is None and feature.wanted_by_variables:
            is_wanted = any(name.startswith(feature.wanted_by_variables) for name in surroundings.environment)
        else:
            is_wanted = bool(written)
        if is_wanted:
            resolve = feature.find(feature.resolve)
            sections[member], complaints = resolve(written, file, surroundings, authenticates=authenticates)
            warnings += complaints
    return sections, warnings


def _feature_servers(sections: Mapping[str, Any]) -> Iterator[tuple[str, FeatureServer]]:
    """Yield the servers that features are, by the names of their groups."""
    for feature in FEATURES:
        if feature.server:
            (member,) = feature.members
            if (section := sections.get(member)) is not None:
                server = feature.find(feature.server)(section)
                if server is not None:
                    yield feature.name, server


def _check_wanted_features(config: Config, file: Path, surroundings: Surroundings, *, authenticates: bool) -> None:
    """Raise ConfigError where another part of the config wants a feature that is not written, and cannot work."""
    for feature in FEATURES:
        if feature.resolve and any(getattr(config, each) for each in feature.wanted_by):
            (member,) = feature.members
            if getattr(config, member) is None:
                feature.find(feature.resolve)(None, file, surroundings, authenticates=authenticates)


# --- servers -----------------------------------------------------------------------------------------------


def _group(
    name: str, server: form.Server, settings: form.Settings, *, surroundings: Surroundings
) -> tuple[GroupConfig, list[str]]:
    made = resolve_upstream(("mcpServers", name), server, settings=settings, surroundings=surroundings)
    defaults = settings.defaults
    idle_s = _first(server.idle_timeout, defaults.idle_timeout, default=1800.0)
    upstream, timeouts = _bounded(made.upstream, _merged(Timeouts, defaults.timeout, server.timeout))
    group = GroupConfig(
        name=name,
        timeouts=timeouts,
        eager=_first(server.connect, defaults.connect, default=_usual_connect(server)) == "eager",
        idle_after_s=None if idle_s == inf or isinstance(server, form.SkillsEntry) else idle_s,
        attempts=_merged(Retry, defaults.retry, server.retry).attempts,
        concurrency=_first(server.concurrency, defaults.concurrency, default=64),
        max_message_bytes=settings.max_message_bytes,
        upstream=upstream,
        share=_share(server, defaults, made.upstream),
        unset=made.unset,
        empty=made.empty,
    )
    return group, made.warnings


def _feature_group(name: str, upstream: FeatureServer, settings: form.Settings) -> tuple[GroupConfig, Presentation]:
    """Return the group of a feature's own server, to which the defaults of all servers apply."""
    defaults = settings.defaults
    group = GroupConfig(
        name=name,
        timeouts=_merged(Timeouts, defaults.timeout),
        eager=True,  # nothing is started
        idle_after_s=None,
        attempts=_merged(Retry, defaults.retry).attempts,
        concurrency=_first(None, defaults.concurrency, default=64),
        max_message_bytes=settings.max_message_bytes,
        upstream=upstream,
    )
    presentation = Presentation(
        description=None,
        features=_merged(Features, defaults.features),
        tools=_merged(ToolFilter, defaults.tools),
        direct=_first(None, defaults.direct, default=DirectTools()),
        # only we check their arguments
        answers=replace(_answers(form.Shared(), defaults), validate=defaults.validate_ or "strict"),
        pinning=_pinning_of(name, [upstream.feature, upstream.folder], form.Shared(), settings),
    )
    return group, _with_rules(presentation, name, form.Shared(), defaults) if defaults.rules else presentation


def _usual_connect(server: form.Server) -> Literal["lazy", "eager"]:
    """Return when a server is connected that does not say it: folders are read at once, as nothing is started."""
    return "eager" if isinstance(server, form.SkillsEntry) else "lazy"


def _bounded(upstream: Upstream, timeouts: Timeouts) -> tuple[Upstream, Timeouts]:
    """Extend the call timeout of a command line program, so that output up to its own timeout is returned."""
    if not isinstance(upstream, CommandLine):
        return upstream, timeouts
    timeout_s = timeouts.tools_s if upstream.timeout_s is None else upstream.timeout_s
    return replace(upstream, timeout_s=timeout_s), replace(timeouts, tools_s=timeout_s + _ENDING_S)


def _share(server: form.Server, defaults: form.Defaults, upstream: Upstream) -> Share:
    """Return the sharing of the server. By default, a server that keeps one conversation's state is not shared."""
    share = Share(_first(server.share, defaults.share, default="auto"))
    return Share.SESSION if share is Share.AUTO and is_stateful(upstream) else share


def is_stateful(upstream: Upstream) -> bool:
    """Return whether a server is a program that is known to keep one conversation's state."""
    if not isinstance(upstream, Program):
        return False
    return any(name in STATEFUL for name in _names((upstream.command, *upstream.args)))


def _names(words: Iterable[str]) -> Iterable[str]:
    """Yield the possible names of each word: a package without its version, and the file name of a path."""
    for word in words:
        package = _VERSION.sub("", word)
        yield package
        yield re.split(r"[\\/]", package)[-1].removesuffix(".exe").removesuffix(".cmd")


def _presentation(name: str, server: form.Server, settings: form.Settings) -> Presentation:
    defaults = settings.defaults
    presentation = Presentation(
        description=server.description,
        features=_merged(Features, defaults.features, server.features),
        tools=_merged(ToolFilter, defaults.tools, server.tools),
        direct=_first(server.direct, defaults.direct, default=DirectTools()),
        answers=_answers(server, defaults),
        effects=_effects(server),
        pinning=_pinning(name, server, settings),
    )
    if server.rules or defaults.rules:
        return _with_rules(presentation, name, server, defaults)
    return presentation


def _effects(server: form.Server) -> ToolEffects:
    """Return the effects of the tools. Those of a command line program are in the annotations that its pack makes."""
    if isinstance(server, form.CommandLineEntry):
        return ToolEffects(trusts_annotations=True)
    if isinstance(server, form.SkillsEntry):  # it has no tools
        return ToolEffects()
    if isinstance(server, form.OpenApiEntry):  # its annotations are made by us, from the methods
        return replace(server.effects, trusts_annotations=True)
    return replace(server.effects, trusts_annotations=server.trust_annotations)


def _with_rules(presentation: Presentation, name: str, server: form.Shared, defaults: form.Defaults) -> Presentation:
    """Return the presentation with the rules of features and their consequences."""
    for feature in FEATURES:
        if feature.rules is None:
            continue
        key = feature.rules.key
        own = server.rules.get(key)
        rules = defaults.rules.get(key) if own is None else own
        if rules:
            rules = place_rules(rules, ("settings", "defaults", key) if own is None else ("mcpServers", name, key))
            presentation = replace(presentation, rules={**presentation.rules, key: rules})
            if feature.rules.resolve:
                presentation = feature.find(feature.rules.resolve)(presentation)
    return presentation


def _pinning(name: str, server: form.Server, settings: form.Settings) -> Pinning:
    """Return the pinning of the definitions. Its source has unsubstituted variables, so it contains no secret."""
    match server:
        case form.ProgramEntry(command=command, args=args):
            written = [command, *args]
        case form.RemoteEntry(url=url):
            written = [url]
        case form.OpenApiEntry(openapi=document, url=url):
            written = [document, url or ""]
        case form.CommandLineEntry(cli=cli):
            written = [cli.use, cli.command or ""]
        case form.SkillsEntry(skills=folders):
            written = [*folders]
    return _pinning_of(name, written, server, settings)


def _pinning_of(name: str, written: list[str], server: form.Shared, settings: form.Settings) -> Pinning:
    authenticates = bool(settings.http and settings.http.auth)
    default: Policy = "hold" if authenticates else "warn"
    if feature_with_gates() is None:
        default = "trust"
    if isinstance(server, form.SkillsEntry):  # who writes the files writes the config
        default = "trust"
    policy = _first(server.definitions, settings.defaults.definitions, default=default)
    return Pinning(policy, sha256(wire.encode([name, *written])).hexdigest())


def _merged(section: type[S], *parts: Mapping[str, Any]) -> S:  # Any: each field has its own type
    """Return a section merged from parts. The last part that has a field wins."""
    return section(**{name: value for part in parts for name, value in part.items()})


def _answers(server: form.Shared, defaults: form.Defaults) -> CallHandling:
    return CallHandling(
        validate=_validate(server, defaults),
        limit=_first(server.result_limit, defaults.result_limit, default=100_000),
        compact=_first(server.result_format, defaults.result_format, default="original") == "compact",
    )


def _validate(server: form.Shared, defaults: form.Defaults) -> Validation | None:
    """Return how invalid arguments are handled. Those of what knows no MCP are checked by us."""
    own = defaults.validate_ if server.validate_ is None else server.validate_
    is_own = isinstance(server, form.CommandLineEntry | form.OpenApiEntry)
    return "strict" if own is None and is_own else own


def _first(value: T | None, shared: T | None, *, default: T) -> T:
    if value is not None:
        return value
    return default if shared is None else shared
