"""What looks dangerous in a definition: characters that nobody sees, and words that are meant for a model only.

Hidden characters are certain, and held. Words are a suspicion that anybody can avoid by saying it differently: they
are reported, and approve or hold nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Collection, Container, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec import Raw, Struct

from dynamic_mcp.features.pins.definition import has_duplicates
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line

# How much of a definition is searched for words, how many findings it has at most, and how many characters one names.
_MAX_SEARCHED = 256_000
_MAX_FINDINGS = 10
_MAX_CHARACTERS = 4
_MAX_PAYLOADS = 20
_LONGEST_NAME = 40
_LONGEST_PLACE = 200

# Beginnings of words that come one soon after the other, as they do in injections.
_PHRASES = (
    (
        ("ignore", "disregard", "forget", "override"),
        ("previous", "prior", "earlier", "above", "preceding", "other"),
        ("instruction", "prompt", "rule", "message", "context"),
    ),
    (
        ("do not", "don't", "never", "without"),
        ("tell", "inform", "mention", "reveal", "notify", "show"),
        ("the user", "user"),
    ),
    (
        ("before", "instead of", "after", "when"),
        ("using", "calling", "use", "call"),
        ("this tool", "any tool", "any other tool", "other tool", "another tool"),
        ("you must", "always", "first"),
    ),
    (
        ("send", "upload", "post", "forward", "exfiltrate"),
        ("conversation", "chat history", "system prompt", "credential", "private key", "password", "api key"),
    ),
    (("you are now",), ("mode", "assistant", "agent", "unrestricted")),
    (("new instruction",),),
    (("id_rsa", "id_ed25519"),),
    (("<important", "<system", "<secret", "<hidden", "<|im_start|>", "[inst]", "<<sys>>"),),
    (("~/.", "$home/.", "/root/."), ("ssh", "aws", "cursor", "claude", "config", "gnupg", "netrc", "kube")),
)
_Phrase = tuple[tuple[str, ...], ...]
_SHORTEST_PAYLOAD = 24
_PAYLOAD = re.compile(rf"[A-Za-z0-9+/_-]{{{_SHORTEST_PAYLOAD},4096}}={{0,2}}")
_BLANKED = bytes(byte if chr(byte).isalnum() or byte in b"+/_-" else 0x20 for byte in range(0x80)) + b" " * 0x80
_NAME = re.compile(r"[A-Za-z0-9_.-]{5,128}")
_DISTINCTIVE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9][_.-][A-Za-z0-9]")
# A definition of printable ASCII characters has none that are hidden.
_ESCAPES = (b"\\u", b"\\b", b"\x7f")


class Finding(Struct, frozen=True):
    """One thing that was found, in words, and where. What is `is_hidden` is held at first sight."""

    text: str
    where: str
    is_hidden: bool


class ForeignNames(Struct, frozen=True):
    """The names of the tools of other servers, but for those that a server has itself. It copies none of them."""

    others: Sequence[Collection[str]]
    own: Collection[str]

    def __contains__(self, name: object) -> bool:
        return any(name in each for each in self.others) and name not in self.own

    def __bool__(self) -> bool:
        return any(self.others)


def find_all(form: Raw, foreign: Container[str] = ()) -> tuple[Finding, ...]:
    """Return what was found in a definition in its canonical form; `foreign` are names of tools of other servers."""
    return (*find_in_characters(form), *find_in_words(form, foreign))


def find_in_characters(form: Raw) -> tuple[Finding, ...]:
    """Return the characters that are hidden in a definition, and whether a member comes twice.

    Readers differ in which of two they take. That is reported; what a server begins to say twice is a change.
    """
    found: list[Finding] = []
    if has_duplicates(form):
        found.append(Finding("it has a member twice", "", is_hidden=False))
    source = bytes(form)
    if not source.isascii() or any(escape in source for escape in _ESCAPES):
        found += islice(_find_hidden_in(form), _MAX_FINDINGS)
    return tuple(found)


def _find_hidden_in(form: Raw) -> Iterator[Finding]:
    for where, text in _strings(form):
        characters = dict.fromkeys(find_hidden(text))
        if characters:
            named = [format_character(each) for each in islice(characters, _MAX_CHARACTERS)]
            more = "" if len(characters) <= _MAX_CHARACTERS else " and others"
            yield Finding(f"it has hidden characters: {', '.join(named)}{more}", where, is_hidden=True)


def find_in_words(form: Raw, foreign: Container[str] = ()) -> tuple[Finding, ...]:
    """Return what reads as if it were written for a model and against its user; a definition may be innocent."""
    source = bytes(form)[:_MAX_SEARCHED].decode("utf-8", "replace")
    names = _find_foreign(source, foreign) if foreign else frozenset()
    if not names and not _may_have_payload(source) and not _may_have_phrase(source):
        return ()
    found: dict[str, Finding] = {}
    left = _MAX_SEARCHED
    for where, whole in _strings(form):
        text = whole[:left]
        left -= len(text)
        for words in _find_suspicious(text, names):
            found.setdefault(words, Finding(words, where, is_hidden=False))
        if not left or len(found) >= _MAX_FINDINGS:
            break
    return tuple(found.values())[:_MAX_FINDINGS]


def _find_foreign(source: str, foreign: Container[str]) -> frozenset[str]:
    """Return which foreign names are in a text: looked up word by word, as there may be any number of names."""
    return frozenset(name for name in _find_names(source) if name in foreign and _DISTINCTIVE.search(name))


def _find_suspicious(text: str, names: frozenset[str]) -> Iterator[str]:
    if phrase := _find_phrase(text):
        yield f"it speaks to the model: `{phrase}`"
    for payload in islice(_PAYLOAD.findall(text), _MAX_PAYLOADS):
        if phrase := _find_phrase(_decode(payload)):
            yield f"it has Base64 that decodes to `{phrase}`"
    for name in dict.fromkeys(_find_names(text)) if names else ():
        if name in names:
            yield f"it names `{name}`, a tool of another server"


def _find_names(text: str) -> Iterator[str]:
    return (each.strip(".-") for each in _NAME.findall(text))


def _find_phrase(text: str) -> str:
    """Return the first phrase of a text that is known from injections; empty if there is none."""
    folded = " ".join(_fold(text).split())
    for phrase in _PHRASES:
        if _has_words(folded, phrase) and (found := _pattern(phrase).search(folded)):
            return found[0][:80]
    return ""


def _fold(text: str) -> str:
    return text.casefold().replace("\u2019", "'")


def _may_have_phrase(source: str) -> bool:
    folded = _fold(source.replace("\\n", " "))
    return any(_has_words(folded, phrase) for phrase in _PHRASES)


def _may_have_payload(source: str) -> bool:
    """Tell cheaply whether a text can have Base64."""
    runs = source.encode().translate(_BLANKED).split()
    return max(map(len, runs), default=0) >= _SHORTEST_PAYLOAD


def _has_words(folded: str, phrase: _Phrase) -> bool:
    """Tell cheaply whether a text can have a phrase."""
    return all(any(word in folded for word in words) for words in phrase)


@lru_cache
def _pattern(phrase: _Phrase) -> re.Pattern[str]:
    parts = (rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})" for words in phrase)
    return re.compile(".{0,30}?".join(parts))


def _decode(payload: str) -> str:
    try:
        padded = payload.rstrip("=") + "=" * (-len(payload.rstrip("=")) % 4)
        return base64.b64decode(padded, altchars=b"-_" if "-" in payload or "_" in payload else None).decode()
    except (binascii.Error, ValueError):
        return ""


def _strings(form: Raw) -> Iterator[tuple[str, str]]:
    """Yield each string of a definition, the names of members included, and where it is."""
    value = wire.value(form)
    if value is None and bytes(form) != b"null":  # nested too deeply to be read
        yield "", bytes(form).decode("utf-8", "replace")
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
                at = at if len(at) < _LONGEST_PLACE else "..."  # else deep nesting costs the square of its depth
                left += [(at + one_line(name, _LONGEST_NAME), inner) for name, inner in reversed(each.items())]
            case list():
                at = where if len(where) < _LONGEST_PLACE else "..."
                left += [(f"{at}[{index}]", inner) for index, inner in reversed([*enumerate(each)])]


# --- characters that nobody sees ----------------------------------------------------------------------------

# A variation selector, a joiner or a mark of direction is no secret where a writing system has it; two in a row are.

# Tags, marks of direction, what has no width, fillers, control characters, selectors, and halves of characters.
_SUSPICIOUS = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Flags of England, Scotland and Wales: the only tags that have a meaning.
_TAGGED_FLAG = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_MOST = 100_000
_DIRECTIONS = "\u061c\u200e\u200f"
_WITH_VARIANTS = frozenset(("Sm", "So", "Sk", "Lo", "Po", "Pd"))
# The colours of the skin, and arrows that are emoji with a selector.
_OTHER_EMOJI = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff\u2194\u2195"
_KEYCAPS = frozenset("0123456789#*")
# Scripts whose letters join: Arabic and its kin, Syriac, N'Ko, Mandaic, those of India, Tibetan, Mongolian, others.
_JOINING = re.compile(
    "[\u0600-\u07ff\u0840-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\u1900-\u1cff\ua800-\uabff\ufb1d-\ufdff"
    "\ufe70-\ufefc\U00010a00-\U00010eff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
# Scripts that have no spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf]"
)
_RIGHT_TO_LEFT = frozenset(("R", "AL"))


def find_hidden(text: str) -> Iterator[str]:
    """Yield each character that is hidden in a text."""
    if text.isascii() and text.isprintable():
        return
    if "\U000e007f" in text:
        text = _TAGGED_FLAG.sub("\U0001f3f4", text)
    is_right_to_left: bool | None = None
    for number, match in enumerate(_SUSPICIOUS.finditer(text)):
        at, character = match.start(), match[0]
        if character in _DIRECTIONS:
            if is_right_to_left is None:
                is_right_to_left = _is_right_to_left(text)
            belongs = is_right_to_left and not (at and _SUSPICIOUS.match(text, at - 1))
        else:
            belongs = _belongs(text, at, character)
        if not belongs or number >= _MOST:  # no text has so many
            yield character


def format_character(character: str) -> str:
    """Return a character as the standard writes it: `U+200B`."""
    return f"U+{ord(character):04X}"


def _belongs(text: str, at: int, character: str) -> bool:
    """Tell whether a writing system, or an emoji, has this character where it is."""
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    match character:
        case "\u200d":
            return bool(_JOINING.match(before)) or _joins_emoji(text, at)
        case "\u200c":
            return bool(_JOINING.match(before))
        case "\u200b":
            return bool(_UNSPACED.match(before) and _UNSPACED.match(after))
        case "\ufeff":
            return at == 0
        case "\xad":
            return before.isalpha() and after.isalpha()
        case "\u115f" | "\u1160":
            return any("\u1100" <= each <= "\u11ff" for each in (before, after))
    return _has_variants(before, character)


def _joins_emoji(text: str, at: int) -> bool:
    """Tell whether a joiner is between two emoji; the first may have a selector, or a colour of the skin."""
    end = at - 1 if text[at - 1 : at] == "\ufe0f" else at
    return end > 0 and _is_emoji(text[end - 1]) and _is_emoji(text[at + 1 : at + 2])


def _is_emoji(character: str) -> bool:
    if not character:
        return False
    return unicodedata.category(character) == "So" or character in _OTHER_EMOJI


def _has_variants(base: str, selector: str) -> bool:
    """Tell whether a character has variants that a selector chooses from."""
    if not base:
        return False
    if "\u180b" <= selector <= "\u180f":
        return "\u1820" <= base <= "\u18aa"
    if "\ufe00" <= selector <= "\ufe0f":
        if base in _KEYCAPS:
            return selector in "\ufe0e\ufe0f"
        return ord(base) >= 0x80 and (unicodedata.category(base) in _WITH_VARIANTS or base == "\u2139")
    return "\U000e0100" <= selector <= "\U000e01ef" and unicodedata.category(base) == "Lo"


def _is_right_to_left(text: str) -> bool:
    return any(
        each.isalpha() and unicodedata.bidirectional(each) in _RIGHT_TO_LEFT for each in text if each > "\u0590"
    )
