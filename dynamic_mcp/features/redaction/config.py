"""Configures the redaction of texts in results and arguments."""

from typing import Annotated, Literal

from msgspec import Meta, field

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.section import Value
from dynamic_mcp.config.types import Globs, Pattern, unique

# The texts that a rule applies to.
Place = Literal["results", "arguments"]
Preset = Literal["keys", "tokens", "emails", "card_numbers"]
_Presets = Annotated[tuple[str, ...], Value(unique, written=Annotated[list[Preset], Meta(min_length=1)])]


class Redact(CallRule, frozen=True):
    """Replaces parts of texts in results or arguments."""

    tools: Annotated[
        Globs | None,
        "The tools, by the names that the server gives them; globs. Default: all, and resources and prompts too.",
    ] = None
    places: Annotated[
        Annotated[tuple[Place, ...], Meta(min_length=1)],
        "Where: in what the server answers, or in what it is sent. Default: results.",
    ] = field(default=("results",), name="in")
    presets: Annotated[
        _Presets,
        "Ready sets: private keys and API keys, tokens and passwords in URLs and headers, mail addresses, numbers of"
        " payment cards.",
    ] = ()
    pattern: Annotated[Pattern | None, "A regular expression (RE2)."] = None
    replacement: Annotated[Annotated[str, Meta(max_length=1000)], "The new text. Default: `[redacted]`."] = field(
        default="[redacted]", name="replace"
    )

    def __post_init__(self) -> None:
        if not self.presets and self.pattern is None:
            raise FlawError("needs `presets` or `pattern`")

    @property
    def in_results(self) -> bool:
        return "results" in self.places

    @property
    def in_arguments(self) -> bool:
        return "arguments" in self.places


Redacts = tuple[Redact, ...]
