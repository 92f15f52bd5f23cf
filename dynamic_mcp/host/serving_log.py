"""The log of a serving process."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Log
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.observe import log_output
from dynamic_mcp.system import paths


class LogOptions(Struct, frozen=True):
    """The command line's options for the log; None leaves an option to the config."""

    level: str | None
    form: str | None


class ServingLog:
    """The log of a serving proxy; the command line takes precedence over the config."""

    def __init__(self, options: LogOptions, *, worker: str = "") -> None:
        self.config = ""  # the served file, once it is known
        self._options = options
        self._serving = log_output.ServerLog(options.level or Log().level, options.form or Log().form, worker=worker)

    def configure(self, config: Log) -> None:
        """Apply the config's options, except those that the command line sets."""
        level, form = self._options.level or config.level, self._options.form or config.form
        folder = paths.log_dir() if config.file else None
        self._serving.configure(level, form, folder=folder, config=self.config)

    def reload(self, old: ConfigState, new: ConfigState) -> None:
        """Apply another version of the config, and log the change."""
        self.configure(new.base.log)

    def record_failure(self, error: DynamicMcpError) -> None:
        """Log to the file why serving did not start; the command line prints it on stderr."""
        self.close()
        log_output.append_error(paths.log_dir(), f"did not start: {error}", config=self.config)

    def close(self) -> None:
        """Write the queued records."""
        self._serving.close()
