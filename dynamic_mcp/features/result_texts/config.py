"""Configures how texts in results of servers are cleaned and marked."""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.config.section import Everyday, Section, Value
from dynamic_mcp.config.types import unique

Unwanted = Literal["ansi", "invisible"]
_Unwanted = Annotated[tuple[str, ...], Value(unique, written=Annotated[list[Unwanted], Meta(max_length=2)])]


class ResultTexts(Section, frozen=True):
    """The treatment of texts in results of a server that is not trusted."""

    strip: Annotated[
        _Unwanted,
        "What is removed from texts: escape sequences and control characters of terminals (`ansi`), and invisible"
        " characters (`invisible`), such as those of zero width, marks of direction and tags. Default: nothing.",
        Everyday(),
    ] = ()
    mark: Annotated[
        bool,
        "Put the texts of a tool's result between lines that name the group and cannot be forged, so that a model"
        " can tell data from instructions. Default: false.",
        Everyday(),
    ] = False


def resolve(presentation: Presentation) -> Presentation:
    """Record in a presentation whether results are marked after they have been cut."""
    texts = presentation.rules["results"]
    assert isinstance(texts, ResultTexts)
    return replace(presentation, answers=replace(presentation.answers, marks=texts.mark))
