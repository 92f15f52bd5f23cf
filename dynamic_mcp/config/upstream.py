"""Resolves the upstream of one server, with its variables substituted.

All missing variables are reported with their paths: as a warning if the server may still work, else as the reason
of a `Broken`.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config import environment, form
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import (
    Broken,
    CommandLine,
    Embeddings,
    IdentityProviderConfig,
    OAuth,
    Program,
    Remote,
    SkillFolders,
    TokenExchange,
    Upstream,
)
from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Substitution, Surroundings, expand, resolve_path
from dynamic_mcp.config.workspace import WINDOW_VARIABLES
from dynamic_mcp.features.table import find_confinement
from dynamic_mcp.system.text import os_reason

P = TypeVar("P", Program, CommandLine)
_DEFAULTS: Keys = ("settings", "defaults")
# The grants that log in with an assertion.
_WITH_ASSERTION = ("jwt_bearer", "cross_app")


class ResolvedUpstream(Struct, frozen=True):
    """The upstream of a server, warnings about it, and the variables in its config that are unset or empty."""

    upstream: Upstream
    warnings: list[str]
    unset: tuple[str, ...]
    empty: tuple[str, ...]


def resolve_upstream(
    at: Keys, server: form.Server, *, settings: form.Settings, surroundings: Surroundings
) -> ResolvedUpstream:
    """Resolve the upstream of the server at these keys."""
    texts = Substitution(surroundings.all_variables(), settings.secrets)
    resolved: Program | Remote | CommandLine | SkillFolders | None
    match server:
        case form.ProgramEntry():
            resolved = _resolve_program(at, server, settings.defaults, texts=texts, surroundings=surroundings)
            resolved = _confine(resolved, at, server.sandbox, settings, texts=texts, surroundings=surroundings)
        case form.RemoteEntry():
            resolved = _resolve_remote(at, server, settings, texts=texts, surroundings=surroundings)
        case form.CommandLineEntry():
            from dynamic_mcp.config.command_line import resolve_command_line  # with the first of them: it reads packs

            resolved = resolve_command_line((*at, "cli"), server.cli, texts=texts, surroundings=surroundings)
            if resolved is not None:
                resolved = _confine(resolved, at, server.sandbox, settings, texts=texts, surroundings=surroundings)
        case form.OpenApiEntry():
            from dynamic_mcp.config.openapi import resolve_api  # with the first of them: it may read the document

            resolved = resolve_api(at, server, texts=texts, surroundings=surroundings)
            if resolved is not None and server.oauth is not None:
                oauth = _resolve_oauth(at, server.oauth, settings, texts=texts, surroundings=surroundings)
                resolved = replace(resolved, oauth=oauth)
        case form.SkillsEntry():
            resolved = _resolve_folders((*at, "skills"), server, texts=texts, surroundings=surroundings)
    if texts.lookups and isinstance(resolved, Program | Remote):
        resolved = _with_lookups(resolved, texts, settings, surroundings)
    result = resolved if resolved is not None and not texts.failures else Broken("; ".join(texts.failures))
    return ResolvedUpstream(result, texts.warnings, tuple(texts.unset), tuple(texts.empty))


def env_files(server: form.Server, defaults: form.Defaults, surroundings: Surroundings) -> list[Path]:
    """Return the env files of a server, or the file of its pack or document, including missing ones."""
    if isinstance(server, form.CommandLineEntry):
        from dynamic_mcp.config.command_line import pack_file  # as above

        file = pack_file(expand(server.cli.use, surroundings.all_variables()).text, surroundings)
        return [] if file is None else [file]
    if isinstance(server, form.OpenApiEntry):
        from dynamic_mcp.config.openapi import document_file  # as above

        file = document_file(server.openapi, surroundings.all_variables(), surroundings)
        return [] if file is None else [file]
    if not isinstance(server, form.ProgramEntry):
        return []
    files = defaults.env_file if server.env_file is None else server.env_file
    return [resolve_path(expand(text, surroundings.all_variables()).text, surroundings) for text in files or ()]


def variables_files(settings: form.Settings, surroundings: Surroundings) -> list[Path]:
    """Return the files in `variables_file`, including missing ones."""
    return [
        resolve_path(expand(text, surroundings.environment).text, surroundings) for text in settings.variables_file
    ]


def read_variables(files: Iterable[Path]) -> tuple[dict[str, str], list[str]]:
    """Return the variables in the files, and a warning for each unreadable file."""
    variables: dict[str, str] = {}
    complaints: list[str] = []
    for file in files:
        try:
            variables.update(environment.read_env_file(file))
        except OSError as exc:
            complaints.append(f"settings.variables_file: cannot read `{file}`: {os_reason(exc)}")
        except ValueError:
            complaints.append(f"settings.variables_file: cannot read `{file}`: it is not UTF-8")
    return variables, complaints


def resolve_embeddings(search: form.Search, surroundings: Surroundings) -> tuple[Embeddings | None, list[str]]:
    """Resolve the embeddings endpoint. Return None, with a warning, if a variable that it needs is not set."""
    if search.embeddings is None:
        return None, []
    at: Keys = ("settings", "search", "embeddings")
    own, texts = search.embeddings, Substitution(surroundings.environment)
    url = texts.fill_url((*at, "url"), own.url)
    name = texts.fill((*at, "model"), own.model, is_required=True)
    key = None if own.api_key is None else texts.fill_secret((*at, "api_key"), own.api_key)
    if texts.failures:
        return None, [f"{failure}: tools are found by words only" for failure in texts.failures]
    return Embeddings(url, name, key), texts.warnings


def _with_lookups(
    upstream: Program | Remote, texts: Substitution, settings: form.Settings, surroundings: Surroundings
) -> Program | Remote:
    from dynamic_mcp.config.secret_programs import collect_lookups  # with the first that has them

    try:
        lookups = collect_lookups(texts.lookups, settings.secrets, str(surroundings.directory))
    except FlawError as exc:
        texts.failures.append(f"{exc}; {exc.hint}")
        return upstream
    return replace(upstream, lookups=lookups)


def _resolve_program(
    at: Keys, server: form.ProgramEntry, defaults: form.Defaults, *, texts: Substitution, surroundings: Surroundings
) -> Program:
    command = texts.fill((*at, "command"), server.command, is_required=True)
    if not command:
        texts.fail((*at, "command"), "is empty")
    cwd_at, cwd = (_DEFAULTS, defaults.cwd) if server.cwd is None else (at, server.cwd)
    directory = texts.fill_optional((*cwd_at, "cwd"), cwd)
    args = tuple(texts.fill((*at, "args", i), arg, may_look_up=True) for i, arg in enumerate(server.args))
    env, own = _resolve_env(at, server, defaults, texts=texts, surroundings=surroundings)
    requested = frozenset[str]()
    if surroundings.working_directory is not None:
        safe = environment.inherit_variables(surroundings.environment, "safe", platform=surroundings.platform)
        requested = frozenset(env) - own - safe.keys() - WINDOW_VARIABLES
    cwd = surroundings.working_directory if directory is None else str(resolve_path(directory, surroundings))
    withheld = frozenset(surroundings.all_variables()) - frozenset(env)
    return Program(command, args, env, cwd, own, withheld, requested, runs_in_each_replica=server.home)


def _confine(
    program: P,
    at: Keys,
    sandbox: Section | None,
    settings: form.Settings,
    *,
    texts: Substitution,
    surroundings: Surroundings,
) -> P:
    """Return a program with what confines it, if the config says so."""
    place: Keys = at
    if sandbox is None:
        place, sandbox = _DEFAULTS, settings.defaults.sandbox
    if sandbox is None:
        return program
    roots = program.roots if isinstance(program, CommandLine) else settings.roots
    confinement = find_confinement()(
        sandbox, (*place, "sandbox"), str(at[-1]), roots, texts=texts, surroundings=surroundings
    )
    return program if confinement is None else replace(program, confinement=confinement)


def _resolve_env(
    at: Keys, server: form.ProgramEntry, defaults: form.Defaults, *, texts: Substitution, surroundings: Surroundings
) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return the complete environment of a program, and the names in it that the config itself sets."""
    choice = server.inherit_env if server.inherit_env is not None else defaults.inherit_env
    platform = surroundings.platform
    own = {name: ((*at, "env", name), text) for name, text in server.env.items()}
    shared = {name: ((*_DEFAULTS, "env", name), text) for name, text in defaults.env.items()}
    configured = [
        *_read_env_files(at, server, defaults, texts=texts, surroundings=surroundings),
        {name: texts.fill(where, text, may_look_up=True) for name, (where, text) in (shared | own).items()},
    ]
    inherited = environment.inherit_variables(
        surroundings.environment, "safe" if choice is None else choice, platform=platform
    )
    names = frozenset(name for layer in configured for name in layer)
    return environment.merge([inherited, *configured], platform=platform), names


def _read_env_files(
    at: Keys, server: form.ProgramEntry, defaults: form.Defaults, *, texts: Substitution, surroundings: Surroundings
) -> Iterator[Mapping[str, str]]:
    files_at, files = (_DEFAULTS, defaults.env_file) if server.env_file is None else (at, server.env_file)
    for i, text in enumerate(files or ()):
        where: Keys = (*files_at, "env_file", i)
        file = resolve_path(texts.fill(where, text), surroundings)
        try:
            yield environment.read_env_file(file)
        except OSError as exc:
            texts.fail(where, f"cannot read `{file}`: {os_reason(exc)}")
        except ValueError:
            texts.fail(where, f"cannot read `{file}`: it is not UTF-8")


def resolve_roots(written: Iterable[str], surroundings: Surroundings) -> tuple[tuple[str, ...], list[str]]:
    """Return the roots as URIs, with warnings about them."""
    texts = Substitution(surroundings.all_variables())
    filled = [texts.fill(("settings", "roots", str(number)), each) for number, each in enumerate(written)]
    uris = tuple(each if "://" in each else resolve_path(each, surroundings).as_uri() for each in filled)
    return uris, [*texts.warnings, *texts.failures]


def _resolve_folders(
    at: Keys, server: form.SkillsEntry, *, texts: Substitution, surroundings: Surroundings
) -> SkillFolders:
    written = [texts.fill((*at, i), folder, is_required=True) for i, folder in enumerate(server.skills)]
    return SkillFolders(tuple(str(resolve_path(each, surroundings)) for each in written))


def _resolve_remote(
    at: Keys, server: form.RemoteEntry, settings: form.Settings, *, texts: Substitution, surroundings: Surroundings
) -> Remote:
    headers = server.headers.items()
    if server.oauth.exchanges:
        _check_exchange_of(at, server, settings, texts)
    return Remote(
        kind=server.type,
        url=texts.fill_url((*at, "url"), server.url),
        headers={name: texts.fill_header((*at, "headers", name), text) for name, text in headers},
        oauth=_resolve_oauth(at, server.oauth, settings, texts=texts, surroundings=surroundings),
    )


def _resolve_oauth(
    at: Keys, own: OAuth, settings: form.Settings, *, texts: Substitution, surroundings: Surroundings
) -> OAuth:
    inside = (*at, "oauth")

    def filled(name: str) -> str | None:
        return texts.fill_optional((*inside, name), getattr(own, name))

    def url(name: str) -> str | None:
        text = getattr(own, name)
        return None if text is None else texts.fill_url((*inside, name), text)

    def path(name: str) -> str | None:
        text = filled(name)
        return None if text is None else str(resolve_path(text, surroundings))

    oauth = replace(
        own,
        client_id=filled("client_id"),
        client_secret=filled("client_secret"),
        scopes=tuple(texts.fill((*inside, "scopes", i), scope) for i, scope in enumerate(own.scopes)),
        metadata_url=url("metadata_url"),
        issuer=url("issuer"),
        account=filled("account"),
        assertion=None if own.assertion is None else texts.fill_secret((*inside, "assertion"), own.assertion),
        assertion_file=path("assertion_file"),
        identity_provider=_resolve_identity_provider(inside, own.identity_provider, texts),
        exchange=_resolve_exchange((*inside, "exchange"), own.exchange, texts, surroundings),
        private_key_file=path("private_key_file"),
        client_metadata_url=url("client_metadata_url"),
        may_open_browser=settings.open_browser != "never",
        token_store=settings.token_store,
    )
    for key, message in _find_flaws(oauth):
        texts.fail((*inside, key), message + (_describe_empty(own, oauth) if key == "grant" else ""))
    return oauth


def _describe_empty(written: OAuth, oauth: OAuth) -> str:
    """Return the names of the fields whose text consists only of variables without a value."""
    names = [name for name in ("client_id", "client_secret") if getattr(written, name) and not getattr(oauth, name)]
    return "".join(f"; `{name}` is empty, as `{getattr(written, name)}` has no value" for name in names)


def _resolve_identity_provider(
    at: Keys, own: IdentityProviderConfig | None, texts: Substitution
) -> IdentityProviderConfig | None:
    if own is None:
        return None
    inside = (*at, "identity_provider")
    return IdentityProviderConfig(
        texts.fill_url((*inside, "token_endpoint"), own.token_endpoint),
        texts.fill((*inside, "client_id"), own.client_id, is_required=True),
        texts.fill_optional((*inside, "client_secret"), own.client_secret),
    )


def _resolve_exchange(at: Keys, own: TokenExchange, texts: Substitution, surroundings: Surroundings) -> TokenExchange:
    file = texts.fill_optional((*at, "actor_token_file"), own.actor_token_file)
    endpoint, resource = own.token_endpoint, own.resource
    return replace(
        own,
        token_endpoint=None if endpoint is None else texts.fill_url((*at, "token_endpoint"), endpoint),
        audience=texts.fill_optional((*at, "audience"), own.audience),
        resource=None if resource is None else texts.fill_url((*at, "resource"), resource),
        actor_token_file=None if file is None else str(resolve_path(file, surroundings)),
    )


def _check_exchange_of(at: Keys, server: form.RemoteEntry, settings: form.Settings, texts: Substitution) -> None:
    """Check what else of a server would keep the tokens of callers apart from it, or mix them up."""
    if (server.share or settings.defaults.share) == "all":
        texts.fail(
            (*at, "share"), f"`all` is not for the grant `{server.oauth.grant}`: each caller has another token"
        )
    for name in (each for each in server.headers if each.lower() == "authorization"):
        texts.fail((*at, "headers", name), f"would be sent in place of the token that `{server.oauth.grant}` gets")


def _find_flaws(oauth: OAuth) -> Iterator[tuple[str, str]]:
    """Yield the login settings that the grant needs and lacks, or would ignore: the field, and the problem."""
    yield from _find_missing(oauth)
    if oauth.grant not in _WITH_ASSERTION:
        for name in ("assertion", "assertion_file"):
            if getattr(oauth, name) is not None:
                yield name, "is only for the grants `jwt_bearer` and `cross_app`"
    elif oauth.assertion is not None and oauth.assertion_file is not None:
        yield "assertion_file", "is one source too many: there is an `assertion` already"
    if oauth.identity_provider is not None and oauth.grant != "cross_app":
        yield "identity_provider", "is only for the grant `cross_app`"
    if oauth.exchanges:
        if oauth.is_shared:
            yield "shared", f"is not for the grant `{oauth.grant}`: each caller has another token"
    elif oauth.exchange != TokenExchange():
        yield "exchange", "is only for the grants `token_exchange` and `on_behalf_of`"
    if oauth.grant == "on_behalf_of":
        if oauth.exchange != TokenExchange(token_endpoint=oauth.exchange.token_endpoint):
            yield "exchange", "has more than the `token_endpoint`, which is all that `on_behalf_of` knows of it"
        if oauth.private_key_file:
            yield "private_key_file", "is not for the grant `on_behalf_of`: Entra ID wants a certificate"


def _find_missing(oauth: OAuth) -> Iterator[tuple[str, str]]:
    has_assertion = oauth.assertion is not None or oauth.assertion_file is not None
    match oauth.grant:
        case "client_credentials":
            if not (oauth.client_id and (oauth.client_secret or oauth.private_key_file)):
                yield "grant", "`client_credentials` needs `client_id`, and `client_secret` or `private_key_file`"
        case "jwt_bearer":
            if not (oauth.client_id and has_assertion):
                yield "grant", "`jwt_bearer` needs `client_id`, and `assertion` or `assertion_file`"
        case "cross_app":
            if not (oauth.client_id and has_assertion and oauth.identity_provider):
                needs = "`client_id`, `identity_provider`, and `assertion` or `assertion_file`"
                yield "grant", f"`cross_app` needs {needs}"
        case "token_exchange":
            if not (oauth.client_id and oauth.issuer):
                yield "grant", "`token_exchange` needs `client_id`, and the `issuer` of the tokens that callers show"
        case "on_behalf_of":
            if not (oauth.client_id and oauth.client_secret and oauth.issuer and oauth.scopes):
                needs = "`client_id`, `client_secret`, `scopes`, and the `issuer` of the tokens that callers show"
                yield "grant", f"`on_behalf_of` needs {needs}"
