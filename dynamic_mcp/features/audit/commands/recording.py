"""Records in the audit log of a config what a command has changed: the user, the command, and names; never values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.errors import ConfigError
from dynamic_mcp.system.os_user import os_user

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.features.audit.config import Audit


def record(context: Invocation, file: Path, event: str, members: Mapping[str, object]) -> bool:
    """Record a change of a config, and return whether the config has an audit log.

    A failure is only a warning, as the work of the command is done.
    """
    try:
        audit = _read_settings(file)
        if audit is not None:
            _append(audit, file, event, members)
    except OSError as exc:
        context.out.say(f"warning: this was not recorded in the audit log: {exc}")
        return True
    return audit is not None


def _read_settings(file: Path) -> Audit | None:
    from dynamic_mcp.config.read import parse
    from dynamic_mcp.features.audit.config import Audit

    try:
        parsed = parse(file)
        has_log = parsed.root.settings is not None and bool(parsed.root.settings.audit)
        return parsed.resolve(os.environ).settings_of("audit", Audit) if has_log else None
    except ConfigError:  # of another version, or edited just now: the place of its log is unknown
        return None


def _append(audit: Audit, file: Path, event: str, members: Mapping[str, object]) -> None:
    import msgspec
    from msgspec import Raw

    from dynamic_mcp import __version__
    from dynamic_mcp.config.masking import mask_value
    from dynamic_mcp.features.audit.chain import VERSION, AuditLine
    from dynamic_mcp.features.audit.log import AuditLog
    from dynamic_mcp.identity import LOCAL
    from dynamic_mcp.system import paths

    detail = mask_value({name: value for name, value in members.items() if name != "group"})
    line = AuditLine(
        v=VERSION,
        id=f"command-{os.urandom(8).hex()}",
        event=event,
        issuer=LOCAL.issuer,
        subject=os_user(),
        auth="local",
        client="dynamic-mcp",
        client_version=__version__,
        config=str(file),
        pid=os.getpid(),
        detail=Raw(msgspec.json.encode(detail)) if detail else Raw(),
        group=str(members.get("group", "")),
    )
    log = AuditLog(audit.path or paths.state_dir() / "audit")
    try:
        log.append(line)
    finally:
        log.close()
