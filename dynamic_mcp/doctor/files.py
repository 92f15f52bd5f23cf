"""Checks of a config without connecting: the file, its variables, commands and secrets."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.old_names import Renaming
from dynamic_mcp.config.read import list_disabled, read, read_document
from dynamic_mcp.config.resolved import (
    ApiDocument,
    Broken,
    CommandLine,
    Config,
    GroupConfig,
    Program,
    Remote,
    SkillFolders,
)
from dynamic_mcp.config.secret_programs import SecretLookups
from dynamic_mcp.config.secrets import plain_secrets
from dynamic_mcp.doctor.exchanges import check_exchange_settings
from dynamic_mcp.doctor.findings import Finding, Level, config_error
from dynamic_mcp.errors import ConfigError, closest
from dynamic_mcp.system import acl, paths
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.programs import advise_missing, find_program
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import os_reason, pluralize
from dynamic_mcp.upstream.mask import mask_of

_MOST_NAMES = 10
_MOST_REASONS, _MOST_NAMED = 20, 3
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


def check_file(file: Path, environment: Mapping[str, str]) -> tuple[Config | None, list[Finding]]:
    """Return the config, or None if it is invalid, and the findings about its file and its servers."""
    try:
        config = read(file, environment)
    except ConfigError as exc:
        return None, [config_error(str(file), exc.problem, exc.hint)]
    document = read_document(file)
    secrets = [format_path(keys) for keys in plain_secrets(document)]
    findings = [
        Finding(Level.OK, str(file), _summary(config)),
        *_check_access(file, has_secrets=bool(secrets)),
        *(_secret_finding(where) for where in secrets),
        *_check_names(file, document),
        *(_warning_finding(warning) for warning in config.warnings),
        *(finding for group in config.groups for finding in _check_upstream(group, environment)),
        *_check_logins(config),
        *check_exchange_settings(config),
        *(finding for profile in config.profiles.values() for finding in _check_profile(profile, config)),
    ]
    return config, findings


def _summary(config: Config) -> str:
    off = list_disabled(config.file)
    switched_off = f", {len(off)} disabled" if off else ""
    return f"valid: {pluralize(len(config.groups), 'group')}{switched_off}"


def _check_names(file: Path, document: object) -> Iterator[Finding]:
    """Report the fields that have old names, and rename them in the document."""
    renamed = Renaming(document).renamed
    if renamed:
        names = ", ".join(map(str, renamed[:_MOST_NAMES]))
        more = f", and {len(renamed) - _MOST_NAMES} more names have changed" if len(renamed) > _MOST_NAMES else ""
        yield Finding(Level.WARNING, str(file), f"{names}{more}", "`dynamic-mcp check --fix` rewrites the file")


def _check_access(file: Path, *, has_secrets: bool) -> Iterator[Finding]:
    """Check whether other users can change the config or read its secrets."""
    if sys.platform == "win32":
        yield from _check_acls(file, has_secrets=has_secrets)
        yield from _check_own_directories()
    else:
        yield from _check_modes(file, has_secrets=has_secrets)


def _check_modes(file: Path, *, has_secrets: bool) -> Iterator[Finding]:
    if sys.platform == "win32":
        return
    for place, what in ((file, "the file"), (file.absolute().parent, "its directory")):
        mode = place.stat().st_mode
        is_shared = bool(mode & _OTHERS_WRITE) and not (place.is_dir() and mode & stat.S_ISVTX)
        if is_shared:
            why = f"{what} can be changed by other users ({stat.filemode(mode)}), who can then run programs as you"
            yield Finding(Level.WARNING, str(place), why, f"`chmod go-w {quote(place)}`")
    status = file.stat()
    if status.st_uid not in (0, os.getuid()):
        why = f"the file belongs to user {status.st_uid}, who can use it to run programs as you"
        yield Finding(Level.WARNING, str(file), why, f"`chown` it, or copy it: `cp {quote(file)} …`")
    mode = status.st_mode
    if has_secrets and mode & _OTHERS_READ:
        why = f"other users can read the secrets in it ({stat.filemode(mode)})"
        yield Finding(Level.WARNING, str(file), why, f"`chmod 600 {quote(file)}`")


def _check_acls(file: Path, *, has_secrets: bool) -> Iterator[Finding]:
    """Check who can use the config and its directory, by their access control lists."""
    if not acl.are_kept(file):
        why = "its file system, like FAT and exFAT, lets everyone change the config, who can then run programs as you"
        yield Finding(Level.WARNING, str(file), why, "keep it on a drive with NTFS")
        return
    for place, what in ((file, "the file"), (file.absolute().parent, "its directory")):
        others = _find_others(place)
        if others.writers or others.owner:
            names = ", ".join(dict.fromkeys(filter(None, [*others.writers, others.owner])))
            why = f"{what} can be changed by {names}, who can then run programs as you"
            yield Finding(Level.WARNING, str(place), why, f"`{acl.private_command(place)}`")
    others = _find_others(file)
    if has_secrets and others.readers and not others.writers:
        why = f"the secrets in it can be read by {', '.join(others.readers)}"
        yield Finding(Level.WARNING, str(file), why, f"`{acl.private_command(file)}`")


def _check_own_directories() -> Iterator[Finding]:
    """Check who can use the directories of our own files, by their access control lists."""
    for directory in dict.fromkeys((paths.state_dir(), paths.cache_dir(), paths.log_dir())):
        others = _find_others(directory)
        if directory.exists() and not acl.are_kept(directory):
            why = "logins and other private files in it are open to everyone, as on each drive with FAT or exFAT"
            yield Finding(Level.WARNING, str(directory), why, "keep it on a drive with NTFS")
        elif others:
            why = f"logins and other private files in it are open to {', '.join(others.names)}"
            yield Finding(Level.WARNING, str(directory), why, f"`{acl.private_command(directory)}`")


def _find_others(place: Path) -> acl.OtherUsers:
    try:
        return acl.find_others(place)
    except OSError:  # it is not there
        return acl.OtherUsers()


def _secret_finding(where: str) -> Finding:
    hint = (
        "write `${VARIABLE}`, and set that where your AI tool starts, or in an `env_file`; or keep it in the system's"
        " keychain (`keyring set dynamic-mcp NAME`), and write `${keyring:NAME}`"
    )
    return Finding(Level.WARNING, where, "looks like a secret in plain text", hint)


def _warning_finding(warning: str) -> Finding:
    where, _, what = warning.partition(": ")
    hint = "set it, or write `${NAME:-default}`"
    if where.startswith("settings.http.auth") and where.endswith(".trusted_proxies"):
        hint = "name the addresses from which the reverse proxy connects"
    elif where.startswith("settings.cluster.keys"):
        hint = "`openssl rand -hex 32` makes one, which all replicas have"
    elif where.startswith("settings.cluster") or where.endswith(".cli.use") or ".cli.deny_flags" in where:
        hint = ""
    elif where.startswith("settings.http.auth") and ".oidc." in where:
        hint = "set it where dynamic-mcp starts, or in a `variables_file`; your identity provider shows it"
    elif where.startswith("settings.http.auth"):  # tokens must be random
        hint = (
            "`openssl rand -hex 32` makes one; or remove it: `dynamic-mcp token create` makes one and keeps its hash"
        )
    return Finding(Level.WARNING, where, what, hint)


def _check_upstream(group: GroupConfig, environment: Mapping[str, str]) -> Iterator[Finding]:
    if isinstance(group.upstream, Program | Remote) and group.upstream.lookups is not None:
        yield from _check_lookups(format_path(("mcpServers", group.name)), group.upstream.lookups, environment)
    match group.upstream:
        case Broken(reason=reason):
            yield config_error(f"mcpServers.{group.name}", reason)
        case Program(cwd=str(cwd)) if not Path(cwd).is_dir():
            yield config_error(f"mcpServers.{group.name}.cwd", f"the directory `{cwd}` does not exist")
        case Program() as program:
            yield from _check_command(f"mcpServers.{group.name}.command", program)
        case Remote(api=ApiDocument() as api) as remote:
            yield from _check_api(f"mcpServers.{group.name}", remote, api)
        case SkillFolders() as folders:
            yield from _check_folders(f"mcpServers.{group.name}.skills", folders)
        case CommandLine() as program:
            where = f"mcpServers.{group.name}.cli"
            yield from _check_command(f"{where}.command", program)
            for number, root in enumerate(program.roots):
                if not Path(root).is_dir():
                    yield config_error(f"{where}.cwd.roots[{number}]", f"the directory `{root}` does not exist")


def _check_lookups(where: str, lookups: SecretLookups, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Report programs that are to be asked for secrets and are not there. None is asked: it may want its owner."""
    missing = {
        each.command[0]: each.reference
        for each in lookups.secrets
        if find_program(each.command[0], environment, cwd=lookups.directory) is None
    }
    for program, reference in missing.items():
        why = f"the program `{program}`, which knows `${{{reference}}}`, was not found on the `PATH`"
        yield config_error(where, why, "install it, or give its full path in `settings.secrets`")


def _check_api(where: str, remote: Remote, api: ApiDocument) -> Iterator[Finding]:
    """Report what of a document in a file becomes tools. One at a URL is read when the server connects."""
    from dynamic_mcp.config.openapi import make_selection  # with the first of them
    from dynamic_mcp.openapi.document import MAX_BYTES, is_url
    from dynamic_mcp.openapi.service import BadService, read_service, shown_location

    if is_url(api.location):
        what = f"the document is read from `{shown_location(api.location)}` when the server connects"
        yield Finding(Level.NOTE, f"{where}.openapi", what, "`dynamic-mcp doctor -v` says what becomes of it")
        return
    try:
        service = read_service(read_bytes(Path(api.location), most=MAX_BYTES), make_selection(remote, api))
    except OSError as exc:
        yield config_error(f"{where}.openapi", f"`{api.location}` cannot be read: {os_reason(exc)}")
        return
    except BadService as exc:
        yield config_error(f"{where}.openapi", str(exc), exc.hint)
        return
    yield Finding(Level.OK if service.tools else Level.WARNING, f"{where}.openapi", service.summarize())
    for reason in service.list_reasons()[:_MOST_REASONS]:
        yield Finding(Level.NOTE, f"{where}.openapi", f"left out: {reason}")
    for what, tools in service.find_unfilled().items():
        names = ", ".join(f"`{each}`" for each in tools[:_MOST_NAMED])
        more = f" and {len(tools) - _MOST_NAMED} more" if len(tools) > _MOST_NAMED else ""
        yield Finding(Level.WARNING, where, f"{names}{more} need {what}, which the config does not set")


def _check_folders(where: str, folders: SkillFolders) -> Iterator[Finding]:
    from dynamic_mcp.upstream.skills.folder import read_folders  # with the first of them

    for number, folder in enumerate(folders.folders):
        if not Path(folder).is_dir():
            yield config_error(f"{where}[{number}]", f"the directory `{folder}` does not exist")
    for complaint in read_folders(folders.folders).complaints:
        yield Finding(Level.WARNING, where, complaint)


def _check_command(where: str, program: Program | CommandLine) -> Iterator[Finding]:
    if find_program(program.command, program.env, cwd=program.cwd) is not None:
        return
    command = mask_of(program)(program.command)
    why = f"the command `{command}` was not found on its `PATH`"
    if Path(program.command).name != program.command:
        why = f"the command `{command}` does not exist or is not executable"
    yield config_error(where, why, mask_of(program)(advise_missing(program.command, program.env)))


def _check_profile(profile: Profile, config: Config) -> Iterator[Finding]:
    """Report the servers of a profile, and its globs that match neither an enabled nor a disabled server."""
    where = format_path(("profiles", profile.name))
    names = [group.name for group in config.groups]
    selected = [name for name in names if profile.selects(name)]
    yield Finding(Level.OK if selected else Level.NOTE, where, f"has {', '.join(selected) or 'no servers'}")
    server_names = [*names, *list_disabled(config.file)]
    for glob in profile.servers:
        if glob != "*" and not any(fnmatchcase(name, glob) for name in server_names):
            near = ", ".join(f"`{each}`" for each in closest(glob, server_names))
            hint = f"did you mean {near}?" if near else "it takes the names in `mcpServers`"
            yield Finding(Level.WARNING, f"{where}.servers", f"`{glob}` matches no server", hint)


def _check_logins(config: Config) -> Iterator[Finding]:
    """Report servers with one shared login, and whether users can log in to the others."""
    knows_people = config.http is not None and bool(config.http.auth)
    for group in config.groups:
        if _is_one_for_all(group, knows_people=knows_people):
            where = format_path(("mcpServers", group.name))
            what = "all users of this server share one login and act with its rights"
            yield Finding(Level.NOTE, where, what, f"`dynamic-mcp auth login {group.name}` is the login")
    personal = [each.name for each in config.groups if each.has_personal_logins and not each.exchanges]
    if knows_people and personal and config.http is not None and config.http.public_url is None:
        names = ", ".join(f"`{name}`" for name in personal)
        what = f"is not set, so clients over HTTP cannot be sent links to log in to {names}"
        yield Finding(Level.WARNING, "settings.http.public_url", what, "set it to the URL that clients connect to")


def _is_one_for_all(group: GroupConfig, *, knows_people: bool) -> bool:
    remote = group.upstream
    if not isinstance(remote, Remote) or not remote.oauth.needs_user or remote.has_own_authorization:
        return False
    return remote.oauth.is_shared or (knows_people and not group.has_personal_logins)
