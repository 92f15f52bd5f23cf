"""What looks like a secret: by the name of its place, or by the form that issuers give to theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynamic_mcp.config.keys import Keys

_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|private|cookie|bearer|jwt|authorization|keys?(?![a-z])"
    r"|(?<![a-z])(?:pass|pwd|pat|auth|dsn)(?![a-z])",
    re.IGNORECASE,
)
# GitHub, GitLab, OpenAI and Anthropic, Slack, AWS, Google, npm, and signed JWTs
_FORM = re.compile(
    r"\b(gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[abpr]-[\w-]{10,}|AKIA[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|npm_\w{30,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
)
_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_OPTION = re.compile(r"-{1,2}([\w.-]+)=(.+)", re.DOTALL)
_DEFAULT = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*:-([^{}]+)\}")
_SHORTEST = 6


def is_secret_name(name: str) -> bool:
    """Tell whether what has this name is likely to be a secret."""
    return name != "PWD" and _NAME.search(name) is not None


def plain_secrets(document: object) -> Iterator[Keys]:
    """Yield where in a config something stands in plain text that looks like a secret; a `${…}` does not."""
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    settings = document.get("settings") if isinstance(document, dict) else None
    for name, server in servers.items() if isinstance(servers, dict) else ():
        yield from _in_server(("mcpServers", name), server)
    yield from _in_server(("settings",), settings)


def _in_server(at: Keys, server: object) -> Iterator[Keys]:
    if not isinstance(server, dict):
        return
    for section in ("env", "headers", "oauth"):
        fields = server.get(section)
        for name, value in fields.items() if isinstance(fields, dict) else ():
            if _is_secret(str(name), value):
                yield (*at, section, name)
    if _is_secret("url", server.get("url")):
        yield (*at, "url")
    before = ""
    for place, arg in enumerate(args if isinstance(args := server.get("args"), list) else ()):
        option = _OPTION.fullmatch(arg) if isinstance(arg, str) else None
        name, value = (option[1], option[2]) if option else (before, arg)
        if _is_secret(name, value):
            yield (*at, "args", place)
        before = arg if isinstance(arg, str) and arg.startswith("-") and not option else ""


def _is_secret(name: str, value: object) -> bool:
    if not isinstance(value, str):
        return False
    if "${" in value:  # what stands in for a variable is as plain as any text
        return any(_is_secret(name, default) for default in _DEFAULT.findall(value))
    if len(value) < _SHORTEST:
        return False
    is_named = is_secret_name(name) and name not in ("client_id", "metadata_url", "redirect_port", "scopes")
    return is_named or bool(_FORM.search(value) or _IN_URL.search(value))
