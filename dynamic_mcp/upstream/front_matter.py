"""Reads front matter: a YAML mapping at the beginning of a file, bounded, as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynamic_mcp.system.text import one_line

_MAX_NESTING = 32


class BadFrontMatter(ValueError):
    """Front matter that cannot be read. The message continues `its front matter`."""


def parse_front_matter(text: bytes) -> Mapping[str, object]:
    """Return the mapping that a text is. Raises BadFrontMatter."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.events import AliasEvent

    class _Composer(Composer):
        """Refuses aliases, of which a few can make gigabytes of JSON, and deep nesting, which takes minutes."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.parser.check_event(AliasEvent):
                raise BadFrontMatter("has a YAML alias; write out what it stands for")
            if self.depth > _MAX_NESTING:
                raise BadFrontMatter("is nested too deeply")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    class _Constructor(SafeConstructor):
        """Leaves dates the texts that they are in JSON, too."""

    _Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    yaml.Constructor = _Constructor
    try:
        found = yaml.load(text.decode())
    except BadFrontMatter:
        raise
    except Exception as exc:  # noqa: BLE001 - for odd texts the library raises more types than its own
        raise BadFrontMatter(f"is not YAML: {one_line(str(exc), 200)}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadFrontMatter("is not a mapping")
    return found
