"""Configures which arguments of calls are refused."""

from typing import Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.types import Globs, JsonPath, LongText, Pattern


class Guard(CallRule, frozen=True):
    """A rule on the arguments of tools: `deny` refuses what it matches, `allow` what it does not match."""

    tools: Annotated[Globs, "The tools, by the names that the server gives them; globs. Default: all."] = ("*",)
    path: Annotated[
        JsonPath | None,
        "A JSONPath to the values to judge, such as `$.sql`. A value that is no text is judged as compact JSON."
        " Default: every text in the arguments.",
    ] = field(default=None, name="argument")
    deny: Annotated[Pattern | None, "A regular expression (RE2) that no value may contain."] = None
    allow: Annotated[
        Pattern | None, "A regular expression (RE2) that every value must match as a whole; there must be a value."
    ] = None
    message: Annotated[LongText, "What the model is told. Default: which rule refused the call."] = ""
    effect: Annotated[
        Literal["deny", "ask"], "`ask` has a person approve the call instead of refusing it. Default: deny."
    ] = "deny"

    def __post_init__(self) -> None:
        if (self.deny is None) == (self.allow is None):
            raise FlawError("needs `deny` or `allow`, and not both")

    @property
    def asks(self) -> bool:
        return self.effect == "ask"


Guards = tuple[Guard, ...]


def resolve(presentation: Presentation) -> Presentation:
    """Record in a presentation whether one of the guards asks a user."""
    guards = presentation.rules_of("guards", Guard)
    return replace(presentation, asks=presentation.asks or any(guard.asks for guard in guards))
