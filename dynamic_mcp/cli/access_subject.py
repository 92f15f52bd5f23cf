"""Who asks for what, as the options of `dynamic-mcp access` say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Raw

from dynamic_mcp.cli import strict_json
from dynamic_mcp.config.access import LOCAL_NAME, Kind
from dynamic_mcp.config.auth import Bearer, Jwt, Provider
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.groups.audience import LOCAL_USER, Authentication, Principal
from dynamic_mcp.system.file_reader import read_bytes

# What an issuer is called where the options name none, as for tokens of this program.
_OWN_ISSUER = "token"


@dataclass(frozen=True)
class Question:
    """The options. One of `tool`, `prompt` and `resource` is given."""

    group: str
    subject: str | None = None
    roles: tuple[str, ...] = ()
    claims: str | None = None
    tool: str | None = None
    prompt: str | None = None
    resource: str | None = None
    arguments: str | None = None

    @property
    def target(self) -> tuple[Kind, str]:
        """What is asked for. Raises InvalidArguments."""
        given = [(Kind.TOOL, self.tool), (Kind.PROMPT, self.prompt), (Kind.RESOURCE, self.resource)]
        named = [(kind, name) for kind, name in given if name is not None]
        if len(named) != 1:
            raise InvalidArguments("give one of `--tool`, `--prompt` and `--resource`")
        if self.arguments is not None and named[0][0] is Kind.RESOURCE:
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
        """Return who asks. Raises InvalidArguments."""
        if self.claims is not None:
            return self._authenticate_token(config, _read_claims(self.claims))
        if self.subject is None:
            raise InvalidArguments("who asks?", hint="give `--as SUBJECT` or `--claims FILE`")
        if self.subject == LOCAL_NAME:
            if self.roles:
                raise InvalidArguments("the local user has no credential with roles", hint="leave out `--role`")
            return LOCAL_USER
        roles = dict.fromkeys([*self.roles, *_roles_of_tokens(_providers(config), self.subject)])
        return Authentication(Principal(_OWN_ISSUER, self.subject), "bearer", tuple(roles))

    def _authenticate_token(self, config: Config, claims: Mapping[str, object]) -> Authentication:
        """Return whose token has these claims, as the provider of its issuer reads it."""
        jwt = _find_provider(_providers(config), claims)
        subject = self.subject or _text(_find(claims, jwt.subject_claim))
        if not subject:
            raise InvalidArguments(f"the claims have no `{jwt.subject_claim}`", hint="say who asks by `--as SUBJECT`")
        roles = _texts(_find(claims, jwt.roles_claim)) if jwt.roles_claim is not None else ()
        return Authentication(
            Principal(_text(claims.get("iss")) or jwt.issuer, subject),
            "jwt",
            tuple(dict.fromkeys([*self.roles, *roles])),
            tuple(sorted((name, texts) for name in claims if (texts := _texts(claims[name])))),
            _scopes(claims, jwt.scopes_claim),
        )


def _providers(config: Config) -> Sequence[Provider]:
    return config.http.auth if config.http is not None else ()


def _find_provider(providers: Iterable[Provider], claims: Mapping[str, object]) -> Jwt:
    """Return the provider for a token; of one that none is for, the usual claims count."""
    issuers = [each for each in providers if isinstance(each, Jwt)]
    found = next((each for each in issuers if claims.get("iss") in (None, each.issuer)), None)
    return found or Jwt(issuer=_OWN_ISSUER)


def _roles_of_tokens(providers: Iterable[Provider], subject: str) -> Iterable[str]:
    """Yield the roles of the config's tokens for a subject."""
    for provider in providers:
        for token in provider.tokens if isinstance(provider, Bearer) else ():
            if token.subject == subject:
                yield from token.roles


def _find(claims: Mapping[str, object], path: str) -> object:
    """Return a claim by its name, or by the names that lead to it: `realm_access.roles`."""
    if path in claims:
        return claims[path]
    first, _, rest = path.partition(".")
    inner = claims.get(first)
    return _find(inner, rest) if rest and isinstance(inner, dict) else None


def _scopes(claims: Mapping[str, object], name: str | None) -> frozenset[str]:
    given = claims.get("scope", claims.get("scp")) if name is None else _find(claims, name)
    return frozenset(given.split()) if isinstance(given, str) else frozenset(_texts(given))


def _read_claims(file: str) -> dict[str, object]:
    try:
        text = read_bytes(Path(file), may_be_piped=True).decode()
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        raise InvalidArguments(f"`--claims`: the file `{file}` cannot be read: {why.lower()}") from exc
    return _read_object(text, "--claims")


def _read_object(text: str, option: str) -> dict[str, object]:
    with contextlib.suppress(ValueError):
        found = strict_json.loads(text)
        if isinstance(found, dict):
            return found
    raise InvalidArguments(f"`{option}` is not a JSON object")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str))
    return (value,) if isinstance(value, str) else ()
