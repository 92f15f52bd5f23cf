"""The subject and the target of a request, from the options of `dynamic-mcp access`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.cli.created_tokens import tokens_of
from dynamic_mcp.config.access import LOCAL_NAME, AccessKind
from dynamic_mcp.config.auth import BearerAuth, Jwt, Provider
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.access_subject import authenticate_subject
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.face.auth.jwt import read_authentication
from dynamic_mcp.face.auth.token_store import StoredToken
from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.file_reader import decode, read_bytes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.tools import typed_json
from dynamic_mcp.web.signed_token import read_name


@dataclass(frozen=True)
class AccessQuery:
    """The options. Exactly one of `tool`, `prompt` and `resource` must be set."""

    group: str
    subject: str | None = None
    roles: tuple[str, ...] = ()
    claims: str | None = None
    tool: str | None = None
    prompt: str | None = None
    resource: str | None = None
    arguments: str | None = None

    @property
    def target(self) -> tuple[AccessKind, str]:
        """The kind and name of the requested item. Raises InvalidArguments."""
        options = [
            (AccessKind.TOOL, self.tool),
            (AccessKind.PROMPT, self.prompt),
            (AccessKind.RESOURCE, self.resource),
        ]
        named = [(kind, name) for kind, name in options if name is not None]
        if len(named) != 1:
            raise InvalidArguments("give one of `--tool`, `--prompt` and `--resource`")
        if self.arguments is not None and named[0][0] is AccessKind.RESOURCE:
            raise InvalidArguments("a resource has no arguments", hint="leave out `--args`")
        return named[0]

    @property
    def raw_arguments(self) -> Raw | None:
        """The arguments of the request. Raises InvalidArguments."""
        if self.arguments is None:
            return None
        _read_object(self.arguments, "--args")
        return Raw(self.arguments.encode())

    def authentication(self, config: Config) -> Authentication:
        """Return the subject of the request. Raises DynamicMcpError."""
        if self.claims is not None:
            return self._authenticate_token(config, _read_claims(self.claims))
        if self.subject is None:
            raise InvalidArguments("who asks?", hint="give `--as SUBJECT` or `--claims FILE`")
        if self.subject == LOCAL_NAME and self.roles:
            raise InvalidArguments("the local user has no credential with roles", hint="leave out `--role`")
        tokens = ((each.subject, each.roles) for each in stored_tokens(config))
        return authenticate_subject(config, self.subject, tokens, self.roles)

    def _authenticate_token(self, config: Config, claims: Mapping[str, object]) -> Authentication:
        """Return the subject of a token with these claims, as the provider of its issuer reads it."""
        jwt = _find_provider(config, claims)
        if self.subject is not None:
            claims = {**claims, jwt.claims.subject: self.subject}
        if read_name(claims, jwt.claims.subject) is None:
            raise InvalidArguments(
                f"the claims have no `{jwt.claims.subject}`", hint="say who asks by `--as SUBJECT`"
            )
        found = read_authentication(jwt, claims)
        return replace(found, roles=tuple(dict.fromkeys([*self.roles, *found.roles])))


def stored_tokens(config: Config) -> tuple[StoredToken, ...]:
    """Return the tokens that `token create` has made, if the config accepts such tokens. Raises DynamicMcpError."""
    if not any(isinstance(each, BearerAuth) for each in _providers(config)):
        return ()
    return tuple(token for token in tokens_of(config).load() if not token.has_expired(time.time()))


def _providers(config: Config) -> Sequence[Provider]:
    return config.http.auth if config.http is not None else ()


def _find_provider(config: Config, claims: Mapping[str, object]) -> Jwt:
    """Return the provider for the issuer of a token, else one with the default names of claims."""
    issuers = [each for each in _providers(config) if isinstance(each, Jwt)]
    issuer = claims.get("iss")
    found = next((each for each in issuers if issuer in (None, each.issuer)), None)
    return found or Jwt(issuer=issuer if isinstance(issuer, str) else TOKEN)


def _read_claims(file: str) -> dict[str, object]:
    try:
        text = decode(read_bytes(Path(file), may_be_piped=True))
    except (OSError, ValueError) as exc:
        raise InvalidArguments(f"`--claims`: the file `{file}` cannot be read: {os_reason(exc)}") from exc
    return _read_object(text, "--claims")


def _read_object(text: str, option: str) -> dict[str, object]:
    with contextlib.suppress(ValueError):
        found = typed_json.loads(text)
        if isinstance(found, dict):
            return found
    raise InvalidArguments(f"`{option}` is not a JSON object")
