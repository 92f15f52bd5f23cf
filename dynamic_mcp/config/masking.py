"""Masks the secrets in JSON values, in keys as in values, by what `secrets` recognises."""

from __future__ import annotations

import re
from functools import lru_cache

from dynamic_mcp.config import secrets
from dynamic_mcp.config.secrets import MASKED

# A text without any of these has no secret, whatever form it has. Most texts have none, and are done with.
_SIGNS = (
    *("://", "sk-", "live_", "gh", "glpat-", "xox", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "npm_", "pypi-", "hf_"),
    *("figd_", "ntn_", "lin_api_", "SG.", "dop_v1_", "shpat_", "ATATT", "dapi", "eyJ"),
)
_SCHEMES = ("bearer", "basic")
_OPTION = re.compile(r"-{0,2}[\w.-]+\s*[=:]")
_SHORTEST = 11  # of what has no `=` or `:`
_LONGEST_NAME = 200


def mask_value(value: object, name: str = "") -> object:
    """Return a JSON value without the secrets in it. What stands under the name of a secret is masked as a whole.

    Raises RecursionError if it is nested too deep.
    """
    match value:
        case str():
            return mask_string(value, name)
        case dict():
            return {_mask_key(key): _mask_member(key, each) for key, each in value.items()}
        case list():
            return [mask_value(each, name) for each in value]
        case bool() | None:
            return value
        case _:
            return MASKED if is_secret_member(name) else value


def mask_string(text: str, name: str = "") -> str:
    """Return a text, which has this name, without the secrets in it."""
    if is_secret_member(name):
        return MASKED if text else text
    if not _may_have_secrets(text):
        return text
    masked, end = "", 0
    for secret in secrets.find_in_text(text, ""):
        masked += text[end : secret.start] + MASKED
        end = secret.end
    return masked + text[end:]


def is_secret_member(name: str) -> bool:
    """Tell whether what has this name in an object is likely to be a secret."""
    return bool(name) and _is_secret(name[:_LONGEST_NAME])


def _mask_key(key: str) -> str:
    return _mask_short_key(key) if len(key) <= _LONGEST_NAME else mask_string(key)


def _mask_member(name: str, value: object) -> object:
    if isinstance(value, dict | list) and value and is_secret_member(name):
        return MASKED
    return mask_value(value, name)


def _may_have_secrets(text: str) -> bool:
    if ("=" in text or ":" in text) and _OPTION.match(text):
        return True
    if len(text) < _SHORTEST:
        return False
    for sign in _SIGNS:  # a generator would take longer than the search
        if sign in text:
            return True
    folded = text.lower()
    return any(scheme in folded for scheme in _SCHEMES)


@lru_cache(maxsize=4096)
def _mask_short_key(key: str) -> str:
    return mask_string(key)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return any(True for _ in secrets.find_in_text("x", name))
