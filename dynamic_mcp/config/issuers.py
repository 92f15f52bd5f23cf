"""Who names people: the issuers of a config's principals, and how `settings.access.people` names one of them.

A name is a subject, or `issuer:subject`, where the issuer is one of the config. The longest issuer that fits counts,
so that an issuer which is a URL, and a subject with `:`, are read in one way only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config import auth
from dynamic_mcp.config.access import LOCAL_NAME
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.identity import Principal

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PEOPLE: Keys = ("settings", "access", "people")

# The issuers of tokens of our own, and of the names that a reverse proxy gives.
TOKEN, FORWARDED = "token", "forwarded"
_LOOKS_LIKE_ISSUER = (f"{TOKEN}:", f"{FORWARDED}:", "https://", "http://")


class Issuers(Struct, frozen=True):
    """The issuers of a config; those of one tuple name the same people by the same subjects."""

    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def are_several(self) -> bool:
        """Whether one subject can be two people."""
        return len(self.groups) > 1

    def find(self, name: str) -> tuple[Principal, ...]:
        """Return whom `issuer:subject` means; nobody if the name has no issuer of the config."""
        fitting = [each for group in self.groups for each in group if name.startswith(f"{each}:")]
        if not fitting:
            return ()
        issuer = max(fitting, key=len)
        subject = name[len(issuer) + 1 :]
        group = next(group for group in self.groups if issuer in group)
        return tuple(Principal(each, subject) for each in group) if subject else ()

    def spellings(self, subject: str) -> str:
        """Return how a subject of each issuer is written, for a message."""
        return " or ".join(f"`{group[0]}:{subject}`" for group in self.groups)


def issuers_of(http: Http | None) -> Issuers:
    """Return the issuers of the providers; our own logins behind a reverse proxy name people as it does."""
    return Issuers(tuple(dict.fromkeys(_groups(http.auth, http)))) if http is not None else Issuers()


def find_people(
    names: Iterable[str], issuers: Issuers, file: Path
) -> tuple[dict[str, tuple[Principal, ...]], list[str]]:
    """Return whom the names with an issuer mean, with warnings. Raises ConfigError if a name can mean several people.

    A name without an issuer then gives its roles to nobody or to too many, and roles can also deny something.
    """
    found: dict[str, tuple[Principal, ...]] = {}
    warnings: list[str] = []
    for name in names:
        principals = issuers.find(name)
        if principals:
            found[name] = principals
        elif name == LOCAL_NAME:
            continue
        elif issuers.are_several:
            problem = f"`{name}` can be several people, since several providers of `settings.http.auth` name people"
            hint = f"write who names them: {issuers.spellings(name)}"
            raise ConfigError(str(file), format_path((*_PEOPLE, name)), problem, hint=hint)
        elif issuers.groups and name.startswith(_LOOKS_LIKE_ISSUER):
            warnings.append(f"{format_path((*_PEOPLE, name))}: no provider has this issuer, so it is a whole name")
    return found, warnings


def issuer_of(http: Http) -> str:
    """Return our own issuer: `public_url` without the path of MCP, so its origin and what comes before our paths."""
    from urllib.parse import urlsplit

    assert http.public_url is not None
    parts = urlsplit(http.public_url)
    path, mcp = parts.path.rstrip("/"), http.path.rstrip("/")
    prefix = path.removesuffix(mcp) if mcp and path.endswith(mcp) else http.root_path.rstrip("/")
    return f"{origin_of(parts)}{prefix}"


def issuer_aliases(http: Http) -> Mapping[str, str]:
    """Return which issuers name people as another one does, which is the one that names them to browsers."""
    is_behind = any(isinstance(each, auth.LoginAuth) and each.oidc is None for each in http.auth)
    return {issuer_of(http): FORWARDED} if is_behind else {}


def origin_of(parts: SplitResult) -> str:
    """Return an origin as browsers write it (RFC 6454, section 6.2)."""
    scheme = parts.scheme.lower()
    usual = {"https": ":443", "http": ":80"}.get(scheme, "")
    return f"{scheme}://{parts.netloc.lower().removesuffix(usual)}"


def _groups(providers: tuple[auth.Provider, ...], http: Http) -> Iterator[tuple[str, ...]]:
    aliases = issuer_aliases(http)
    for each in providers:
        match each:
            case auth.BearerAuth():
                yield (TOKEN,)
            case auth.Jwt():
                yield (each.issuer,)
            case auth.Forwarded():
                yield (FORWARDED, *aliases)
            case auth.LoginAuth() if each.oidc is not None:
                yield (issuer_of(http),)
