"""What looks dangerous in a definition: characters that nobody sees, and words that are meant for a model only.

Hidden characters are certain, and held. Words are a suspicion that anybody can avoid by saying it differently: they
are reported, and approve or hold nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator
from itertools import islice

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.pins.definition import counted, has_duplicates
from dynamic_mcp.policy.pins.hidden import find_hidden, format_character
from dynamic_mcp.system.text import one_line

# How much of a definition is searched for words, how many findings it has at most, and how many characters one names.
_MAX_SEARCHED = 256_000
_MAX_FINDINGS = 10
_MAX_CHARACTERS = 4
_MAX_PAYLOADS = 20
_LONGEST_NAME = 40

_PHRASES = (
    *(
        re.compile(".{0,30}".join(rf"\b(?:{words})\b" for words in phrase))
        for phrase in (
            (
                "ignore|disregard|forget|override",
                "previous|prior|earlier|above|preceding|other",
                "instructions?|prompts?|rules?|messages?|context",
            ),
            (
                "do not|don't|never|without",
                "tell|telling|inform|informing|mention|mentioning|reveal|revealing|notify|notifying|show|showing",
                "the user|users?",
            ),
            (
                "before|instead of|after|when",
                "using|calling|use|call",
                "(?:this|any|other|another)(?: other)? tools?",
                "you must|always|first",
            ),
            (
                "send|upload|post|forward|exfiltrate",
                "conversation|chat history|system prompt|credentials|private keys?|passwords?|api keys?",
            ),
            ("you are now", "mode|assistant|agent|unrestricted"),
            ("new instructions?:?",),
            ("id_rsa|id_ed25519",),
        )
    ),
    re.compile(r"<\s*/?\s*(?:important|system|secret|instructions?|hidden)\s*>|<\|im_start\|>|\[/?inst\]|<<sys>>"),
    re.compile(r"(?:~|\$home|/root|/home/\w{1,32})/\.(?:ssh|aws|cursor|claude|config|gnupg|netrc|kube)\b"),
)
_PAYLOAD = re.compile(r"[A-Za-z0-9+/_-]{24,4096}={0,2}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{5,128}")
_DISTINCTIVE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9][_.-][A-Za-z0-9]")
# A definition of printable ASCII characters has none that are hidden.
_ESCAPES = (b"\\u", b"\\b", b"\x7f")


class Finding(Struct, frozen=True):
    """One thing that was found, in words, and where. What is `is_hidden` is held at first sight."""

    text: str
    where: str
    is_hidden: bool


def find_all(entry: Raw, foreign: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return what was found in an entry; `foreign` are names of tools of other servers."""
    return (*find_in_characters(entry), *find_in_words(entry, foreign))


def find_in_characters(entry: Raw) -> tuple[Finding, ...]:
    """Return what is hidden in an entry: characters, or a member that comes twice, of which readers take one each."""
    found: list[Finding] = []
    if has_duplicates(entry):
        found.append(Finding("it has a member twice", "", is_hidden=True))
    source = bytes(entry)
    if not source.isascii() or any(escape in source for escape in _ESCAPES):
        found += islice(_find_hidden_in(entry), _MAX_FINDINGS)
    return tuple(found)


def _find_hidden_in(entry: Raw) -> Iterator[Finding]:
    for where, text in _strings(entry):
        characters = dict.fromkeys(find_hidden(text))
        if characters:
            named = [format_character(each) for each in islice(characters, _MAX_CHARACTERS)]
            more = "" if len(characters) <= _MAX_CHARACTERS else " and others"
            yield Finding(f"it has hidden characters: {', '.join(named)}{more}", where, is_hidden=True)


def find_in_words(entry: Raw, foreign: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return what reads as if it were written for a model and against its user; a definition may be innocent."""
    found: dict[str, Finding] = {}
    left = _MAX_SEARCHED
    names = frozenset(name for name in foreign if _DISTINCTIVE.search(name))
    for where, whole in _strings(entry):
        text = whole[:left]
        left -= len(text)
        for words in _find_suspicious(text, names):
            found.setdefault(words, Finding(words, where, is_hidden=False))
        if not left or len(found) >= _MAX_FINDINGS:
            break
    return tuple(found.values())[:_MAX_FINDINGS]


def _find_suspicious(text: str, names: frozenset[str]) -> Iterator[str]:
    if phrase := _find_phrase(text):
        yield f"it speaks to the model: `{phrase}`"
    for payload in islice(_PAYLOAD.findall(text), _MAX_PAYLOADS):
        if phrase := _find_phrase(_decode(payload)):
            yield f"it has Base64 that decodes to `{phrase}`"
    for name in dict.fromkeys(each.strip(".-") for each in _NAME.findall(text)) if names else ():
        if name in names:
            yield f"it names `{name}`, a tool of another server"


def _find_phrase(text: str) -> str:
    """Return the first phrase of a text that is known from injections; empty if there is none."""
    folded = " ".join(text.casefold().replace("\u2019", "'").split())
    found = next(filter(None, (phrase.search(folded) for phrase in _PHRASES)), None)
    return "" if found is None else found[0][:80]


def _decode(payload: str) -> str:
    try:
        padded = payload.rstrip("=") + "=" * (-len(payload.rstrip("=")) % 4)
        return base64.b64decode(padded, altchars=b"-_" if "-" in payload or "_" in payload else None).decode()
    except (binascii.Error, ValueError):
        return ""


def _strings(entry: Raw) -> Iterator[tuple[str, str]]:
    """Yield each string of an entry, the names of members included, and where it is."""
    value = counted(wire.value(entry))
    if value is None and bytes(entry) != b"null":  # nested too deeply to be read
        yield "", bytes(entry).decode("utf-8", "replace")
    left: list[tuple[str, object]] = [("", value)]
    while left:
        where, each = left.pop()
        match each:
            case str():
                yield where, each
            case dict():
                for name in each:
                    yield where, name
                at = f"{where}." if where else ""
                left += [(at + one_line(name, _LONGEST_NAME), inner) for name, inner in reversed(each.items())]
            case list():
                left += [(f"{where}[{index}]", inner) for index, inner in reversed([*enumerate(each)])]
