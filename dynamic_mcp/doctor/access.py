"""Checks of access rules: globs without a match, unused or undefined roles, and rules that allow too much.

Uses stored catalogs and connects to no server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dynamic_mcp.config.access import Access, AccessKind, AccessRule, Effect
from dynamic_mcp.config.auth import BearerAuth, Jwt
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, guess, warning
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.uris import UriGlobs

_ROOT: Keys = ("settings", "access")
_LISTS = {
    AccessKind.TOOL: (ListKind.TOOLS,),
    AccessKind.PROMPT: (ListKind.PROMPTS,),
    AccessKind.RESOURCE: (ListKind.RESOURCES, ListKind.TEMPLATES),
}


def check_access_rules(
    config: Config, catalogs: Mapping[str, Catalog], token_roles: Collection[str]
) -> Iterator[Finding]:
    """Return the findings about `settings.access` and the settings related to it.

    `catalogs` are the known ones by group; `token_roles` are the roles of tokens made by `token create`.
    """
    yield from _check_http(config)
    access = config.access
    if access is None:
        return
    for role, rules in access.roles.items():
        for number, rule in enumerate(rules):
            yield from _check_rule(config, catalogs, rule, (*_ROOT, "roles", role, number))
    yield from _check_undefined_roles(config, access, token_roles)
    yield from _check_unused_roles(config, access, token_roles)


# --- rules -----------------------------------------------------------------------------------------------


def _check_rule(config: Config, catalogs: Mapping[str, Catalog], rule: AccessRule, place: Keys) -> Iterator[Finding]:
    names = [group.name for group in config.groups]
    for number, glob in enumerate(rule.servers):
        if not any(map(Globs((glob,)).matches, names)):
            what = f"`{glob}` matches no enabled server of the config"
            yield warning((*place, "servers", number), what, guess(glob, names))
    servers = [name for name in names if Globs(rule.servers).matches(name)]
    if servers and all(name in catalogs for name in servers):
        yield from _check_names(rule, [catalogs[name] for name in servers], place)


def _check_names(rule: AccessRule, catalogs: Sequence[Catalog], place: Keys) -> Iterator[Finding]:
    """Check the globs of names, except for lists that are not known."""
    for kind, globs in (
        (AccessKind.TOOL, rule.tools),
        (AccessKind.PROMPT, rule.prompts),
        (AccessKind.RESOURCE, rule.resources),
    ):
        if not all(catalog.knows(_LISTS[kind]) for catalog in catalogs):
            continue
        names = [name for catalog in catalogs for each in _LISTS[kind] for name in catalog.entries(each)]
        for number, glob in enumerate(globs or ()):
            if glob != "*" and not _matches_any(kind, glob, rule.effect, names):
                what = f"`{glob}` matches no {kind.value} that its servers are known to have"
                yield warning((*place, f"{kind.value}s", number), what, guess(glob, names))


def _matches_any(kind: AccessKind, glob: str, effect: Effect, names: Iterable[str]) -> bool:
    if kind is AccessKind.RESOURCE:
        uris = UriGlobs((glob,))
        # the URIs of a template are unknown
        return any(uris.may_match(name) if "{" in name else uris.match_any(name) for name in names)
    globs = Globs((glob,))
    return any(map(globs.matches if effect is Effect.ALLOW else globs.matches_variant, names))


# --- roles -----------------------------------------------------------------------------------------------


def _check_undefined_roles(config: Config, access: Access, token_roles: Collection[str]) -> Iterator[Finding]:
    """Check that roles are defined: by rules or for the page, and those of tokens alternatively by profiles."""
    of_page = config.ui.roles if config.ui else ()
    of_tokens = {*token_roles, *(role for _, roles in _roles_in_config_tokens(config) for role in roles)}
    for place, roles in _roles_in_rules(access):
        yield from _find_undefined(access, place, roles, of_page)
    for place, roles in (*_roles_in_config_tokens(config), (("tokens",), tuple(token_roles))):
        yield from _find_undefined(access, place, roles, config.known_roles)
    if not _may_issuers_give_roles(config):
        for name, profile in config.profiles.items():
            yield from _find_undefined(access, ("profiles", name, "roles"), profile.roles, of_tokens)


def _find_undefined(access: Access, place: Keys, roles: Iterable[str], others: Collection[str]) -> Iterator[Finding]:
    for role in dict.fromkeys(roles):
        if role not in access.roles and role not in others:
            hint = guess(role, access.roles) or "define it in `settings.access.roles`"
            yield warning(place, f"the role `{role}` is not defined, so it gives nothing", hint)


def _check_unused_roles(config: Config, access: Access, token_roles: Collection[str]) -> Iterator[Finding]:
    """Check that each role is assigned; skipped if tokens of an issuer may contain roles."""
    if _may_issuers_give_roles(config):
        return
    named = [*_roles_in_rules(access), *_roles_in_config_tokens(config)]
    used = {role for _, roles in named for role in roles}.union(token_roles)
    used.update(role for profile in config.profiles.values() for role in profile.roles)
    for role in access.roles:
        if role not in used:
            hint = "assign it in `people` or `roles_from`, or to a token"
            yield warning((*_ROOT, "roles", role), "this role is assigned to no user", hint)


def _may_issuers_give_roles(config: Config) -> bool:
    providers = config.http.auth if config.http is not None else ()
    return any(isinstance(each, Jwt) and each.claims.roles is not None for each in providers)


def _roles_in_rules(access: Access) -> Iterator[tuple[Keys, tuple[str, ...]]]:
    for subject, roles in access.people.items():
        yield (*_ROOT, "people", subject), roles
    for glob, roles in access.roles_from.map.items():
        yield (*_ROOT, "roles_from", "map", glob), roles


def _roles_in_config_tokens(config: Config) -> Iterator[tuple[Keys, tuple[str, ...]]]:
    for provider in config.http.auth if config.http is not None else ():
        for token in provider.tokens if isinstance(provider, BearerAuth) else ():
            yield ("settings", "http", "auth"), token.roles


# --- HTTP ------------------------------------------------------------------------------------------------


def _check_http(config: Config) -> Iterator[Finding]:
    if config.http is not None and config.http.auth and not config.has_access_rules:
        what = "there are no access rules, so every client that authenticates may use everything"
        yield warning(("settings", "http", "auth"), what, "add `settings.access`")
