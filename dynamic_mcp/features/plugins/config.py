"""Configures plug-ins for calls and lists: `settings.middleware`."""

from typing import Annotated, Literal, cast

from msgspec import field

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.section import Section
from dynamic_mcp.config.types import Duration, Globs, Json, PluginName


class Plugin(Section, frozen=True):
    """A plug-in on the way of calls and lists."""

    use: Annotated[
        PluginName,
        "The name under which a package offers it (entry point group `dynamic_mcp.middleware`), or `module:Class`.",
    ]
    servers: Annotated[Globs, "The servers that it is used for. Default: all."] = ("*",)
    options: Annotated[dict[str, Json], "What the plug-in gets when it is opened."] = {}
    timeout_s: Annotated[
        Duration, "How long each of its steps may take, without what comes after it. Default: 5s."
    ] = field(default=5.0, name="timeout")
    on_error: Annotated[
        Literal["fail", "skip"],
        "What an error of the plug-in does to a call: `fail` refuses it, `skip` continues without the"
        " plug-in. Default: fail.",
    ] = "fail"

    @property
    def skips_errors(self) -> bool:
        return self.on_error == "skip"


def plugins_of(config: Config) -> tuple[Plugin, ...]:
    """Return the plug-ins of a config."""
    return cast("tuple[Plugin, ...]", config.middleware)
