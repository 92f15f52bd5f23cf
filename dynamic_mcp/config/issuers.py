"""The issuers of a config's principals, and how names in `settings.access.people` refer to them.

A name is a subject, or `issuer:subject`, where the issuer is one of the config. The longest matching issuer counts,
so that an issuer that is a URL, and a subject with `:`, can be read in one way only.
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

# The issuers of our own tokens, and of names from a reverse proxy.
TOKEN, FORWARDED = "token", "forwarded"
_LOOKS_LIKE_ISSUER = (f"{TOKEN}:", f"{FORWARDED}:", "https://", "http://")


class Issuers(Struct, frozen=True):
    """The issuers of a config. The issuers in one tuple use the same subjects for the same people."""

    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def are_several(self) -> bool:
        """Return whether one subject can be two people."""
        return len(self.groups) > 1

    def find(self, name: str) -> tuple[Principal, ...]:
        """Return the principals for `issuer:subject`; none if the config has no such issuer."""
        fitting = [each for group in self.groups for each in group if name.startswith(f"{each}:")]
        if not fitting:
            return ()
        issuer = max(fitting, key=len)
        subject = name[len(issuer) + 1 :]
        group = next(group for group in self.groups if issuer in group)
        return tuple(Principal(each, subject) for each in group) if subject else ()

    def spellings(self, subject: str) -> str:
        """Return the spellings of a subject with each issuer, for a message."""
        return " or ".join(f"`{group[0]}:{subject}`" for group in self.groups)


def issuers_of(http: Http | None) -> Issuers:
    """Return the issuers of the providers. Our own logins behind a reverse proxy use the proxy's subjects."""
    return Issuers(tuple(dict.fromkeys(_groups(http.auth, http)))) if http is not None else Issuers()


def find_people(
    names: Iterable[str], issuers: Issuers, file: Path
) -> tuple[dict[str, tuple[Principal, ...]], list[str]]:
    """Return the principals for the names with an issuer, and warnings. Raises ConfigError if a name is ambiguous.

    An ambiguous name would give its roles to no one or to several people, and roles can also deny access.
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
    """Return our own issuer: `public_url` without the path of MCP, that is its origin and the prefix of our paths."""
    from urllib.parse import urlsplit

    assert http.public_url is not None
    parts = urlsplit(http.public_url)
    path, mcp = parts.path.rstrip("/"), http.path.rstrip("/")
    prefix = path.removesuffix(mcp) if mcp and path.endswith(mcp) else http.root_path.rstrip("/")
    return f"{origin_of(parts)}{prefix}"


def issuer_aliases(http: Http) -> Mapping[str, str]:
    """Return a map from our own issuer to the one that it takes its subjects from, if any."""
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
