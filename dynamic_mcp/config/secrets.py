"""Recognizes secrets by the name of their place, or by the formats that issuers use.

All code that hides, moves or warns of secrets uses this. A reference such as `${TOKEN}` is no secret; the literal
default of a variable is one: `${TOKEN:-literal}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.system.text import pluralize

MASKED = "***"

_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|private|cookie|bearer|jwt|authorization|keys?(?![a-z])"
    r"|(?<![a-z])(?:pass|pwd|pat|auth|dsn)(?![a-z])",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?i)authorization|cookie|api-?key|auth|token|secret|signature")
_QUERY_NAME = re.compile(r"(?i)(?:^|[_-])(?:key|sig|code)$|apikey|token|secret|passw|auth")
# the prefixes of OpenAI, Anthropic, Stripe, GitHub, GitLab, Slack, AWS, Google, npm, PyPI and others, and JWTs
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-|sk_live_|rk_live_|pk_live_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza"
    r"|ya29\.|npm_|pypi-|hf_|figd_|ntn_|lin_api_|SG\.|dop_v1_|shpat_|ATATT|dapi|eyJ[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_.-]{8,}"
)
# within a sentence only words with a digit, as `bearer authentication` is no secret
_BEARER = re.compile(
    r"(?:^|[:=])\s*bearer\s+(\S{6,})\s*$|\b(?:bearer|basic)\s+((?=[\w.~+/-]*\d)[\w.~+/-]{8,}=*)", re.IGNORECASE
)
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|apikey)\s+")
_PASSWORD = re.compile(r"://[^/\s:]*:([^/\s]+)@")
_USER_INFO = re.compile(r"://[^/?#\s\"]*@")
_QUERY = re.compile(r"[?&#]([^=?&#]+)=([^&#]+)")
# a URL in a sentence or in JSON, and the characters that may follow it there
_URL = re.compile(r"://[^\s\"]+")
_AFTER_URL = "`'),.;]>"
_OPTION = re.compile(r"(-{0,2}[\w.-]+)(\s*[=:]\s*)(.+)", re.DOTALL)
_FLAG = re.compile(r"--[A-Za-z][\w-]*(?:=.*)?|-[A-Za-z]{1,3}", re.DOTALL)
_REFERENCE = re.compile(r"(?<!\$)\$\{")
_DEFAULT = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*:-([^{}]+)\}")
_TRIVIAL = re.compile(r"\d{0,6}|true|false|null|none", re.IGNORECASE)
_SHORTEST = 6
# Characters of commands and URLs that keys and tokens do not contain.
_UNUSUAL = re.compile(r"""[\s$`;|&<>(){}"'\\*]|://""")
_OAUTH_SECRETS = ("client_secret", "assertion")


class Secret(Struct, frozen=True):
    """The path of a text in an entry, the range of the secret in that text, and the secret's name."""

    path: Keys
    start: int
    value: str
    name: str

    @property
    def end(self) -> int:
        return self.start + len(self.value)

    def __repr__(self) -> str:
        return f"<Secret {'.'.join(map(str, self.path))}>"


def is_secret_name(name: str) -> bool:
    """Return whether the value with this name is likely to be a secret."""
    return name != "PWD" and _NAME.search(name) is not None


def find_secrets(server: Mapping[str, object]) -> Iterator[Secret]:
    """Yield the secrets of a server in our config, including a scheme such as `Bearer`, and references."""
    for name, value in _strings(server.get("env")):
        yield from _find_named(("env", name), value, name, is_secret=is_secret_name(name))
    yield from _find_in_args(server.get("args"))
    for field in ("command", "url", "openapi"):
        if isinstance(text := server.get(field), str):
            yield from _find_forms((field,), text, "token")
    for name, value in _strings(server.get("headers")):
        yield from _find_named(("headers", name), value, name, is_secret=_is_secret_header(name))
    for name, value in _strings(server.get("query")):
        yield from _find_named(
            ("query", name), value, name, is_secret=is_secret_name(name) or _QUERY_NAME.search(name) is not None
        )
    yield from _find_in_oauth(("oauth",), server.get("oauth"))


def find_literals(server: Mapping[str, object]) -> Iterator[Secret]:
    """Yield the secrets of a server that are in plain text, each once, without schemes and references."""
    literals = (literal for secret in find_secrets(server) for literal in _literals(_without_scheme(secret)))
    yield from (literal for literal in dict.fromkeys(literals) if not _TRIVIAL.fullmatch(literal.value))


def find_in_text(text: str, name: str) -> Iterator[Secret]:
    """Yield the secrets in one text of any file, where `name` is its name: the whole text, or parts of it."""
    option = _OPTION.fullmatch(text)
    if is_secret_name(name) or _HEADER.search(name):
        yield Secret((), 0, text, name)
    elif option and is_secret_name(option[1]):
        yield Secret((), option.start(3), option[3], option[1])
    else:
        yield from _find_forms((), text, name)


Mask = Callable[[str], str]


def mask(secret: str) -> str:
    """Return the replacement of a secret, which reveals nothing about it."""
    return MASKED


def count_hidden(secret: str) -> str:
    """Return the replacement of a secret for review: its length, and a note if it looks unlike a secret."""
    unusual = ", with spaces or shell characters" if _UNUSUAL.search(secret) else ""
    return f"{MASKED} ({pluralize(len(secret), 'character')} hidden{unusual})"


def mask_text(text: str, mask: Mask = mask) -> str:
    """Return a text, such as a message, without tokens and without the secrets in its URLs."""
    text = _TOKEN.sub(lambda found: mask(found[0]), _URL.sub(lambda url: _mask_url(url[0], mask), text))
    return _BEARER.sub(lambda found: found[0].replace(found[1] or found[2], mask(found[1] or found[2])), text)


def mask_uri(uri: str) -> str:
    """Return a URI of any scheme without its user info, tokens, and the secrets in its query."""

    def hide(pair: re.Match[str]) -> str:
        return f"{pair[0][: pair.start(2) - pair.start()]}{MASKED}" if _is_secret_pair(pair) else pair[0]

    return _TOKEN.sub(MASKED, _QUERY.sub(hide, strip_user_info(uri)))


def strip_user_info(text: str) -> str:
    """Return a text without the user info in its URLs."""
    return _USER_INFO.sub("://", text)


def mask_values(value: object, name: str = "", mask: Mask = mask) -> object:
    """Return JSON without likely secrets, recognized by the name of their place or by their form."""
    match value:
        case str():
            is_secret = is_secret_name(name) and not _TRIVIAL.fullmatch(value)
            option = _OPTION.fullmatch(value)
            if option and is_secret_name(option[1]):
                return value[: option.start(3)] + mask(option[3])
            return mask(value) if is_secret else mask_text(value, mask)
        case dict():
            return {
                key: mask_values(each, name if is_secret_name(name) else str(key), mask)
                for key, each in value.items()
            }
        case list():
            return [mask_values(each, name, mask) for each in value]
        case _:
            return value


def plain_secrets(document: object) -> Iterator[Keys]:
    """Yield the paths of likely secrets in a config that are in plain text. A reference `${…}` is none."""
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    settings = document.get("settings") if isinstance(document, dict) else None
    for name, server in servers.items() if isinstance(servers, dict) else ():
        yield from _plain_places(("mcpServers", name), server)
    yield from _plain_places(("settings",), settings)


def _plain_places(at: Keys, server: object) -> Iterator[Keys]:
    if isinstance(server, dict):
        found = [secret.path for secret in find_literals(server) if _is_worth_a_warning(secret)]
        yield from ((*at, *path) for path in dict.fromkeys(found))


def _is_worth_a_warning(secret: Secret) -> bool:
    """Ignore short values such as `API_KEY=test`, but never a password in a URL."""
    return len(secret.value) >= _SHORTEST or secret.name == "password"


# --- by name ---------------------------------------------------------------------------------------------------


def _find_in_args(args: object) -> Iterator[Secret]:
    before = ""
    for index, arg in enumerate(args if isinstance(args, list | tuple) else ()):
        text, path = str(arg), ("args", index)
        option = _OPTION.fullmatch(text)
        if option and (is_secret_name(option[1]) or _HEADER.fullmatch(option[1])):
            yield from _find_named(path, text, option[1], is_secret=True, start=option.start(3))
        elif before.startswith("-") and "=" not in before and is_secret_name(before) and not _FLAG.fullmatch(text):
            yield from _find_named(path, text, before, is_secret=True)
        else:
            yield from _find_forms(path, text, "token")
        before = text


def _find_in_oauth(at: Keys, section: object) -> Iterator[Secret]:
    for name, value in _strings(section):
        yield from _find_named((*at, name), value, name, is_secret=name in _OAUTH_SECRETS)
    if isinstance(section, Mapping) and (provider := section.get("identity_provider")) is not None:
        yield from _find_in_oauth((*at, "identity_provider"), provider)


def _find_named(path: Keys, text: str, name: str, *, is_secret: bool, start: int = 0) -> Iterator[Secret]:
    if not is_secret:
        yield from _find_forms(path, text, name)
    elif text[start:].strip():
        yield Secret(path, start, text[start:], name)


def _is_secret_header(name: str) -> bool:
    return is_secret_name(name) or _HEADER.search(name) is not None


# --- by form ---------------------------------------------------------------------------------------------------


def _find_forms(path: Keys, text: str, name: str) -> Iterator[Secret]:
    """Yield the parts of a text that have the form of a secret, in order and without overlaps."""
    found = [Secret(path, token.start(), token[0], name) for token in _TOKEN.finditer(text)]
    for bearer in _BEARER.finditer(text):
        group = 1 if bearer[1] else 2
        found.append(Secret(path, bearer.start(group), bearer[group], name))
    if "://" in text:
        found += _find_in_url(path, text)
    last: Secret | None = None
    for secret in sorted(found, key=lambda each: (each.start, -each.end)):
        if last is not None and secret.start < last.end:
            last = replace(last, value=text[last.start : max(last.end, secret.end)])
            continue
        if last is not None:
            yield last
        last = secret
    if last is not None:
        yield last


def _find_in_url(path: Keys, text: str) -> Iterator[Secret]:
    for password in _PASSWORD.finditer(text):
        yield Secret(path, password.start(1), password[1], "password")
    for pair in _QUERY.finditer(text):
        if _is_secret_pair(pair):
            yield Secret(path, pair.start(2), pair[2], unquote(pair[1]))


def _is_secret_pair(pair: re.Match[str]) -> bool:
    name = unquote(pair[1])
    return is_secret_name(name) or _QUERY_NAME.search(name) is not None or _TOKEN.search(pair[2]) is not None


def _mask_url(text: str, mask: Mask) -> str:
    url = text.rstrip(_AFTER_URL)
    masked, end = "", 0
    for secret in _find_forms((), url, ""):
        masked += url[end : secret.start] + mask(secret.value)
        end = secret.end
    return masked + text[end:]


# --- literals --------------------------------------------------------------------------------------------------


def _without_scheme(secret: Secret) -> Secret:
    scheme = None if secret.path[0] == "oauth" else _SCHEME.match(secret.value)
    if scheme is None or not secret.value[scheme.end() :].strip():
        return secret
    return replace(secret, start=secret.start + scheme.end(), value=secret.value[scheme.end() :])


def _literals(secret: Secret) -> Iterator[Secret]:
    """Yield the secret if it is a literal, else the literal defaults of its variables."""
    if not _REFERENCE.search(secret.value):
        yield secret
    for default in _DEFAULT.finditer(secret.value):
        yield replace(secret, start=secret.start + default.start(1), value=default[1])


def _strings(section: object) -> list[tuple[str, str]]:
    if not isinstance(section, Mapping):
        return []
    return [(str(name), value) for name, value in section.items() if isinstance(value, str)]
