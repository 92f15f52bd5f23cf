"""Configures the redaction of texts in results and arguments."""

from typing import Annotated, Literal

from msgspec import Meta, field

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.section import Everyday, Value
from dynamic_mcp.config.types import Globs, Pattern, unique

# The texts that a rule applies to.
Place = Literal["results", "arguments"]
Preset = Literal["keys", "tokens", "emails", "card_numbers"]
_Presets = Annotated[tuple[str, ...], Value(unique, written=Annotated[list[Preset], Meta(min_length=1)])]


class Redact(CallRule, frozen=True):
    """Replaces parts of texts in results or arguments."""

    tools: Annotated[
        Globs | None,
        "The tools that the rule is about, by the names that the server gives them. Default: all, and"
        " resources and prompts too.",
    ] = None
    places: Annotated[
        Annotated[tuple[Place, ...], Meta(min_length=1)],
        "Where to replace: in what the server answers (`results`), or in what it is sent (`arguments`)."
        " Default: results.",
    ] = field(default=("results",), name="in")
    presets: Annotated[
        _Presets,
        "Ready-made patterns: private keys and API keys (`keys`), tokens and passwords in URLs and headers"
        " (`tokens`), mail addresses (`emails`), numbers of payment cards (`card_numbers`).",
        Everyday(),
    ] = ()
    pattern: Annotated[Pattern | None, "What to replace (RE2)."] = None
    replacement: Annotated[Annotated[str, Meta(max_length=1000)], "The text to put there. Default: `[redacted]`."] = (
        field(default="[redacted]", name="replace")
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
