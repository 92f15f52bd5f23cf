"""Presets for redaction: patterns of secrets with hardly any false matches.

No pattern is slow on any text: each match ends where the next one can begin.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

# Confirms the match at these places of a text.
Check = Callable[[bytes, int, int], bool]


class Preset(Struct, frozen=True):
    """An RE2 pattern. Of a match, the group `secret` is replaced if it has one, else all of it."""

    pattern: str
    check: Check | None = None


def _has_digit(text: bytes, start: int, end: int) -> bool:
    return any(character in b"0123456789" for character in text[start:end])


def _is_user_and_password(text: bytes, start: int, end: int) -> bool:
    """Return whether it is a basic authentication credential, and not a word after `basic`."""
    try:
        return b":" in base64.b64decode(text[start:end], validate=True)
    except ValueError:
        return False


_FILES = re.compile(rb"(?i)\.(?:png|jpe?g|gif|svg|webp|ico|pdf|css|js|ts|json|md|txt|html?|zip|gz)$")
_VERSION = re.compile(rb"\d+(?:\.\d|x\.)")


def _is_mail_address(text: bytes, start: int, end: int) -> bool:
    """Return whether it is a mail address, unlike `git@host:path`, `package@1.0.0-beta.next` and `image@2x.png`."""
    user, _, domain = text[start:end].partition(b"@")
    if user == b"git" or _VERSION.match(domain) or _FILES.search(domain):
        return False
    return text[max(0, start - 3) : start] != b"://"


def _is_card_number(text: bytes, start: int, end: int) -> bool:
    """Return whether the check digit is that of a card number (ISO/IEC 7812-1, annex B) and no digits surround it."""
    if text[start - 1 : start] in (b".", b"-") and text[max(0, start - 2) : start - 1].isalnum():
        return False
    if text[end : end + 1] in (b".", b"-") and text[end + 1 : end + 2].isalnum():
        return False
    digits = [character - 48 for character in text[start:end] if 48 <= character <= 57]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


_KEY_LABEL = r"(?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = (
    # complete, or truncated after its first line
    rf"-----BEGIN {_KEY_LABEL}"
    rf"(?:(?:[^-]|-[A-Za-z0-9])*-----END {_KEY_LABEL}"
    r"|(?:\s|\\[nr])*[A-Za-z0-9+/=]{20,}(?:\s|\\[nr]|[A-Za-z0-9+/=])*)"
)
_API_KEYS = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    r"gh[pousr]_[A-Za-z0-9]{36,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[A-Za-z0-9_.-]{20,}",
    r"sk-(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9_-]{20,}",
    r"sk-[A-Za-z0-9]{32,}",
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"whsec_[A-Za-z0-9+/=]{24,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9-]{20,}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"GOCSPX-[A-Za-z0-9_-]{28}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    r"do[opr]_v1_[a-f0-9]{64}",
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    r"SK[a-f0-9]{32}\b",
    r"dapi[a-f0-9]{32}",
    r"ATATT3[A-Za-z0-9_=-]{50,}",
    r"lin_api_[A-Za-z0-9]{32,}",
    r"ntn_[A-Za-z0-9]{40,}",
    r"figd_[A-Za-z0-9_-]{40}",
    r"hv[sbr]\.[A-Za-z0-9_-]{24,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b",
)
_QUERY_NAMES = (
    r"access_token|refresh_token|id_token|auth_token|token|api_?key|client_secret|secret|password|passwd|pwd|sig"
    r"|signature|x-amz-signature|x-amz-security-token|x-goog-signature"
)
_CARDS = (
    r"(?:4\d{3}|5[1-5]\d\d|2[2-7]\d\d|6(?:011|4[4-9]\d|5\d\d)|35\d\d|62\d\d)(?:[ -]?\d{4}){3}",
    r"3[47]\d\d[ -]?\d{6}[ -]?\d{5}",
    r"3(?:0[0-5]|[689]\d)\d[ -]?\d{6}[ -]?\d{4}",
    r"(?:4\d{3}|62\d\d|50\d\d|5[6-8]\d\d|6[0-9]\d\d)\d{12,15}",
)

PRESETS: Mapping[str, tuple[Preset, ...]] = {
    "keys": (
        Preset(_PRIVATE_KEY),
        Preset(rf"\b(?:{'|'.join(_API_KEYS)})"),
        Preset(
            r"(?i)\b(?:aws_?secret_?access_?key|aws_?session_?token)[\"']?\s*[:=]\s*[\"']?(?P<secret>[A-Za-z0-9/+=]{40,})"
        ),
        Preset(r"\bAccountKey=(?P<secret>[A-Za-z0-9+/]{43,}={0,2})"),
        Preset(r"https://hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,})"),
    ),
    "tokens": (
        Preset(r"\beyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){2,4}"),
        Preset(r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)", _has_digit),
        Preset(r"(?i)\bbasic\s+(?P<secret>[A-Za-z0-9+/]{8,}={0,2})", _is_user_and_password),
        # in a header, the text after the scheme is a credential, however short
        Preset(
            r"(?i)\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest|apikey)\s+"
            r"(?P<secret>[^\s\"',;]+)"
        ),
        Preset(r"(?i)\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?P<secret>[^\s\"',;]{8,})", _has_digit),
        Preset(r"(?i)\b(?:set-)?cookie:\s*(?P<secret>[^\s=;,]+=[^\r\n]+)"),
        Preset(
            r"(?i)\bx-(?:api-key|auth-token|access-token|amz-security-token)[\"']?\s*[:=]\s*[\"']?"
            r"(?P<secret>[^\s\"',;]+)"
        ),
        Preset(r"://[^/\s:@\"'?#]*:(?P<secret>[^/\s@\"'?#]+)@"),
        Preset(rf"(?i)[?&#](?:{_QUERY_NAMES})=(?P<secret>[^&\s\"'#<>]{{6,}})"),
    ),
    "emails": (
        Preset(
            r"\b[A-Za-z0-9][A-Za-z0-9._%+'-]*@(?:[A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z]{2,24}\b",
            _is_mail_address,
        ),
    ),
    "card_numbers": (Preset(rf"\b(?:{'|'.join(_CARDS)})\b", _is_card_number),),
}
