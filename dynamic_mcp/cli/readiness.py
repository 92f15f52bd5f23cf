"""The `ready` command: whether tools could be called now, from what is known here; servers are asked on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.cli.login import read_login_states
from dynamic_mcp.config.access import AccessKind, Effect
from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.resolved import Broken, Config, GroupConfig
from dynamic_mcp.doctor.access_explanation import AccessCase
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.lifecycle import DOWN, State
from dynamic_mcp.identity import LOCAL_USER
from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.policy.access import Decision, Policy
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line

READY, NO_SUCH_NAME, REFUSED, LOGIN_NEEDED, SERVER_FAILED = 0, 2, 3, 4, 5
_LONGEST_REASON = 300


class Readiness(Struct, frozen=True):
    """Whether a tool could be called, or why not: `code` is the exit code. Without a tool, it is about the group."""

    target: str
    code: int
    why: str = ""


class Known(Struct, frozen=True):
    """What is known of the groups of a config: their catalogs and logins, and errors of those that were asked.

    `down` has the states and reasons of servers that a running proxy could not connect.
    """

    config: Config
    catalogs: Mapping[str, Catalog]
    logins: Mapping[str, str]
    down: Mapping[str, tuple[str, str]]
    errors: Mapping[str, DynamicMcpError]
    is_live: bool


def show_readiness(context: Invocation, targets: tuple[str, ...], *, is_live: bool) -> int:
    """Print whether each target is ready; return the exit code of the first that is not. Raises ConfigError."""
    config = context.read_config()
    names = {group.name for group in config.groups if any(_is_of(each, group.name) for each in targets)}
    config = replace(config, groups=tuple(group for group in config.groups if group.name in names))
    known = _look(context, config, is_live=is_live)
    found = [_judge(context, each, known) for each in targets]
    facts = [{"target": each.target, "ready": not each.code, "code": each.code, "why": each.why} for each in found]
    rows = [[each.target, "no" if each.code else "yes", each.why] for each in found]
    context.out.print_rows(facts, ["TOOL", "READY", "WHY NOT"], rows, if_none="")
    return next((each.code for each in found if each.code), READY)


def _look(context: Invocation, config: Config, *, is_live: bool) -> Known:
    errors: Mapping[str, DynamicMcpError] = {}
    catalogs: Mapping[str, Catalog] = {}
    if is_live and config.groups:
        catalogs, errors = _ask(context, config)
    return Known(
        config,
        {**known_catalogs(config), **catalogs},
        read_login_states(config, context.out),
        {} if is_live else _list_down(config),
        errors,
        is_live,
    )


def _ask(context: Invocation, config: Config) -> tuple[Mapping[str, Catalog], Mapping[str, DynamicMcpError]]:
    """Connect to the groups; return their catalogs, and the errors of those that failed."""
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.client_opener import open_client
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.proxy.client_group import ClientGroup

    catalogs: dict[str, Catalog] = {}
    errors: dict[str, DynamicMcpError] = {}

    async def read(group: ClientGroup) -> None:
        try:
            catalogs[group.name] = await group.read_catalog(ListKind)  # the whole catalog, so that it is stored
        except DynamicMcpError as exc:
            errors[group.name] = exc

    async def ask() -> None:
        with context.out.progress("asking", [group.name for group in config.groups]) as progress:
            async with open_client(context, config) as client:
                await for_each_group(client, progress, read)

    run(ask())
    return catalogs, errors


def _list_down(config: Config) -> Mapping[str, tuple[str, str]]:
    """Return the states and reasons of servers that proxies which run with this config could not connect."""
    states = {each.value for each in DOWN}
    key = config_key(config.file.absolute())
    return {
        group.name: (group.state, group.reason)
        for proxy in ProxyRegistry(paths.state_dir() / "running").list_proxies()
        if config_key(proxy.status.config) == key
        for group in proxy.status.groups
        if group.state in states and not group.person
    }


def _judge(context: Invocation, target: str, known: Known) -> Readiness:
    group = _find_group(target, known.config.groups)
    if group is None:
        name = target.partition("/")[0]
        return _not_found(target, unknown_group(name, context.read_config()))
    tool = target[len(group.name) + 1 :]
    shown = known.config.presentations[group.name]
    if tool:
        if not (shown.features.allows("tools") and shown.tools.allows(tool)):
            return Readiness(target, NO_SUCH_NAME, f"the config hides the tool `{tool}` of group `{group.name}`")
        catalog = known.catalogs.get(group.name)
        if catalog is not None and tool not in catalog.tools and group.name not in known.errors:
            return _not_found(target, NotFound(f"tool of group `{group.name}`", tool, catalog.tools))
        decision = _decide(known.config, group.name, tool, catalog)
        if decision.effect is Effect.DENY:
            return Readiness(target, REFUSED, f"the access rules do not allow it: {decision.rule}")
        if decision.effect is Effect.ASK:
            return Readiness(target, REFUSED, f"a person must approve it: {decision.rule}")
    return _judge_server(target, group, known)


def _decide(config: Config, group: str, tool: str, catalog: Catalog | None) -> Decision:
    """Return the decision about a tool for the local user, by what its server says of it; arguments may change it."""
    entry = catalog.tools.get(tool) if catalog is not None else None
    access = "write" if entry is None else access_of(tool, entry, config.presentations[group].effects).access
    policy = Policy(config.access) if config.access is not None else None
    return AccessCase(group, AccessKind.TOOL, tool, access, LOCAL_USER, None, policy).decide()[0]


def _judge_server(target: str, group: GroupConfig, known: Known) -> Readiness:
    if isinstance(group.upstream, Broken):
        return Readiness(target, SERVER_FAILED, group.upstream.reason)
    error = known.errors.get(group.name)
    if error is not None:
        return Readiness(target, error.exit_code, one_line(error.message, _LONGEST_REASON))
    login = known.logins.get(group.name, "")
    if not known.is_live and (login == "expired" or "is not set" in login):
        return Readiness(target, LOGIN_NEEDED, f"the login is {login}" if login == "expired" else login)
    if group.name in known.down:
        state, reason = known.down[group.name]
        code = LOGIN_NEEDED if state == State.NEEDS_LOGIN.value else SERVER_FAILED
        return Readiness(target, code, f"the server is down ({state}): {reason}" if reason else state)
    if group.name not in known.catalogs:
        if login == "not logged in":
            return Readiness(target, LOGIN_NEEDED, "not logged in")
        return Readiness(target, SERVER_FAILED, "its tools are not known yet; `--live` asks the server")
    return Readiness(target, READY)


def _not_found(target: str, error: NotFound) -> Readiness:
    return Readiness(target, NO_SUCH_NAME, error.message + (f"; {error.hint}" if error.hint else ""))


def _find_group(target: str, groups: Iterable[GroupConfig]) -> GroupConfig | None:
    """Return the group of `GROUP` or `GROUP/TOOL`. Both names may contain slashes: the longest group is meant."""
    found = [group for group in groups if _is_of(target, group.name)]
    return max(found, key=lambda group: len(group.name), default=None)


def _is_of(target: str, group: str) -> bool:
    return target == group or target.startswith(f"{group}/")
