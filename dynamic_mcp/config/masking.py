"""Masks the secrets in JSON values and keys, as recognized by `secrets`."""

from __future__ import annotations

import re
from functools import lru_cache

from dynamic_mcp.config import secrets
from dynamic_mcp.config.secrets import MASKED

# A text without any of these has no secret of any form. This settles most texts quickly.
_SIGNS = (
    *("://", "sk-", "live_", "gh", "glpat-", "xox", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "npm_", "pypi-", "hf_"),
    *("figd_", "ntn_", "lin_api_", "SG.", "dop_v1_", "shpat_", "ATATT", "dapi", "eyJ"),
)
_SCHEMES = ("bearer", "basic")
_OPTION = re.compile(r"-{0,2}[\w.-]+\s*[=:]")
_SHORTEST = 11  # of texts without `=` or `:`
_LONGEST_NAME = 200


def mask_value(value: object) -> object:
    """Return a JSON value without the secrets in it. The value of a key named like a secret is masked as a whole.

    Raises RecursionError if it is nested too deep.
    """
    if isinstance(value, str):
        return mask_string(value)
    if isinstance(value, dict):
        return _mask_members(value)
    if isinstance(value, list):
        return [mask_value(each) for each in value]
    return value


def mask_string(text: str) -> str:
    """Return a text without the secrets in it."""
    if not _may_have_secrets(text):
        return text
    masked, end = "", 0
    for secret in secrets.find_in_text(text, ""):
        masked += text[end : secret.start] + MASKED
        end = secret.end
    return masked + text[end:]


def is_secret_member(name: str) -> bool:
    """Return whether the value of an object's member with this name is likely to be a secret."""
    return _mask_name(name[:_LONGEST_NAME])[1]


def _mask_members(members: dict[str, object]) -> dict[str, object]:
    masked: dict[str, object] = {}
    for name, value in members.items():
        if len(name) <= _LONGEST_NAME:
            shown, is_secret = _mask_name(name)
        else:
            shown, is_secret = mask_string(name), is_secret_member(name)
        if is_secret:
            masked[shown] = _mask_secret(value)
        else:
            masked[shown] = mask_string(value) if isinstance(value, str) else mask_value(value)
    return masked


def _mask_secret(value: object) -> object:
    """Mask a value unless it is empty, null, true or false."""
    return value if isinstance(value, bool) or value in (None, "", [], {}) else MASKED


def _may_have_secrets(text: str) -> bool:
    if "=" in text or ":" in text:
        if _OPTION.match(text):
            return True
    elif len(text) < _SHORTEST:
        return False
    for sign in _SIGNS:  # a generator would take longer than the search
        if sign in text:
            return True
    folded = text.lower()
    return any(scheme in folded for scheme in _SCHEMES)


@lru_cache(maxsize=4096)
def _mask_name(name: str) -> tuple[str, bool]:
    """Return the name without secrets in it, and whether it is the name of a secret."""
    return mask_string(name), any(True for _ in secrets.find_in_text("x", name))
