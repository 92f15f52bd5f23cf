"""Replaces the secrets of the config of a server in the output of that server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from dynamic_mcp.config.resolved import CommandLine, FeatureServer, Program, Remote, SkillFolders

# Shorter ones are words and numbers that mean something else elsewhere.
_SHORTEST = 6


def mask_of(upstream: Program | Remote | CommandLine | SkillFolders | FeatureServer) -> Callable[[str], str]:
    """Return a function that masks the secrets of a server's config in a text."""
    from dynamic_mcp.config.secrets import find_secrets  # compiling its expressions would delay the first answer

    looked_up = upstream.looked_up if isinstance(upstream, Program | Remote) else ()
    return mask_secrets(chain((secret.value for secret in find_secrets(_entry_of(upstream))), looked_up))


def mask_secrets(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks these secrets, and parts of them, in a text."""
    long_enough = {part for secret in secrets for part in _parts(secret) if len(part) >= _SHORTEST}
    if not long_enough:
        return str
    from dynamic_mcp.config.secrets import MASKED

    pattern = re.compile("|".join(map(re.escape, sorted(long_enough, key=len, reverse=True))))
    return lambda text: pattern.sub(MASKED, text)


def _entry_of(upstream: Program | Remote | CommandLine | SkillFolders | FeatureServer) -> dict[str, object]:
    if isinstance(upstream, SkillFolders | FeatureServer):
        return {}
    if isinstance(upstream, Program):
        return {"command": upstream.command, "args": upstream.args, "env": upstream.env}
    if isinstance(upstream, CommandLine):
        return {"command": upstream.command, "env": upstream.env}
    oauth = upstream.oauth
    provider = oauth.identity_provider
    return {
        "url": upstream.url,
        "headers": upstream.headers,
        "query": upstream.query,
        "oauth": {
            "client_secret": oauth.client_secret,
            "assertion": oauth.assertion,
            "identity_provider": {"client_secret": provider.client_secret} if provider is not None else None,
        },
    }


def _parts(secret: str) -> Iterator[str]:
    """Yield the forms in which a secret may appear: whole, line by line, and without a scheme in front of it."""
    yield secret
    yield from (line.strip() for line in secret.splitlines())
    yield secret.split()[-1] if secret.split() else ""
