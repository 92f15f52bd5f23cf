"""A remote server described on the command line instead of a config: its URL, headers and login."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from dynamic_mcp.config import form, types
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.location import working_directory
from dynamic_mcp.config.read import ConfigState, ParsedConfig
from dynamic_mcp.config.resolved import Broken
from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.config.substitute import expand
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.system.shell import format_command

_ONLY_SERVER = "server"
_HEADER_HINT = "write `--header 'Authorization: Bearer ${TOKEN}'`, in single quotes"
# The name of a header contains neither, so the first one ends it.
_SEPARATOR = re.compile("[:=]")


class DirectServer(Struct, frozen=True):
    """A server by its URL; `${VARIABLE}` in it and in the headers stands for a variable of the environment.

    `client_secret_variable` is the name of a variable.
    """

    url: str
    headers: Mapping[str, str] = {}
    kind: str | None = None
    client_id: str | None = None
    client_secret_variable: str | None = None
    scopes: tuple[str, ...] = ()
    timeout: str | None = None

    @property
    def label(self) -> str:
        """The URL for messages, without secrets."""
        return mask_text(self.url)

    def login_command(self, group: str) -> str:
        client = ("--client-id", self.client_id) if self.client_id else ()
        variable = self.client_secret_variable
        secret = ("--client-secret-env", variable) if variable else ()
        scopes = (word for scope in self.scopes for word in ("--scope", scope))
        return format_command("auth", "login", self.label, *client, *secret, *scopes)


def looks_like_a_url(name: str) -> bool:
    """Return whether a word is a URL rather than the name of a group."""
    return "://" in name


def configure(server: DirectServer, environment: Mapping[str, str]) -> ConfigState:
    """Return a config with only this server, which is not in a file. Raises InvalidArguments."""
    _check(server)
    name = _name(server.url, environment)
    root = form.root({"mcpServers": {name: _entry(server)}})
    # the file is never read or written: it is the base of relative paths
    parsed = ParsedConfig(Path(working_directory(), "connect"), root, platform=sys.platform)
    base = parsed.resolve(environment)
    (group,) = base.groups
    if group.unset:
        missing = " and ".join(f"`${{{each}}}`" for each in group.unset)
        hint = "set it in the environment that starts this; some AI tools pass on only what their entry names"
        raise InvalidArguments(f"{missing} is not set", hint=hint)
    if isinstance(group.upstream, Broken):
        reason = group.upstream.reason.replace(f"mcpServers.{name}.", "")
        raise InvalidArguments(reason, hint="check the values of the variables in it")
    return ConfigState(parsed, base)


def _check(server: DirectServer) -> None:
    what = "the argument"
    try:
        types.check_literal_url(server.url)
        what = "--timeout"
        types.parse_duration(server.timeout or "")
    except FlawError as exc:
        raise InvalidArguments(f"{what} {exc}", hint=exc.hint) from exc


def _entry(server: DirectServer) -> dict[str, object]:
    secret = server.client_secret_variable
    oauth = {
        "client_id": server.client_id,
        "client_secret": f"${{{secret}}}" if secret else None,
        "scopes": list(server.scopes) or None,
    }
    waits = ("tools", "resources", "prompts") if server.timeout else ()
    fields: dict[str, object] = {
        "url": server.url,
        "headers": dict(server.headers),
        "type": server.kind,
        "oauth": {name: value for name, value in oauth.items() if value is not None},
        "timeout": dict.fromkeys(waits, server.timeout),
    }
    return {name: value for name, value in fields.items() if value}


def _name(url: str, environment: Mapping[str, str]) -> str:
    """Return the name of the server in messages: its host, or the file of a socket."""
    try:
        host = unquote(urlsplit(expand(url, environment).text).hostname or "")
    except ValueError:  # the error is reported later
        host = ""
    name = host.rstrip("/").rpartition("/")[2][: types.NAME_LENGTH]
    return name if name.isprintable() and name.strip() else _ONLY_SERVER


def parse_headers(words: Iterable[str]) -> dict[str, str]:
    """Return headers by their names. Raises InvalidArguments, without values, which may be secrets."""
    found: dict[str, str] = {}
    for number, word in enumerate(words, 1):
        name, *rest = (part.strip() for part in _SEPARATOR.split(word, maxsplit=1))
        try:
            types.check_headers({name: ""})
        except FlawError as exc:
            raise InvalidArguments(f"--header number {number}: {exc}", hint=_HEADER_HINT) from exc
        if not rest or not rest[0]:
            raise InvalidArguments(f"--header `{name}` has no value", hint=_HEADER_HINT)
        found[name] = rest[0]
    return found
