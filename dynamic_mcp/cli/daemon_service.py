"""`daemon install` and `uninstall`: a service of this user that runs a config's daemon from login to logout."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF16_LE
from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.service_managers import Launchd, ServiceManager, Systemd, TaskScheduler
from dynamic_mcp.config.location import identify
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.importer.formats import files
from dynamic_mcp.system.own_program import find_own_program
from dynamic_mcp.system.shell import quote

if sys.platform == "win32":
    from dynamic_mcp.system import named_pipe

# A service starts with few variables, and must find the same directories as the AI tools.
_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


def install_service(context: Invocation, *, is_printing: bool) -> int:
    """Install and start the service, or only print its file; return the exit code."""
    config = _config_path(context)
    manager = _find_manager(config)
    program, caveat = find_own_program()
    if sys.platform == "win32":
        program = _without_console(program)
    # not the `linger` of the config: this daemon ends with the login session
    command = [*program, "daemon", "run", "--replace", "--linger", "never", "-c", str(config)]
    content = manager.format_file(command, _list_directories(os.environ))
    if is_printing:
        _print(context, manager, content)
        return 0
    _require_config(context, config)
    manager.check()
    before = files.read_bytes(manager.file)
    is_changed = before != content
    if is_changed:
        files.write_bytes(manager.file, content, expected=before)
        context.out.say(f"{'wrote' if before is None else 'updated'} `{manager.file}`")
    is_started = is_changed or not manager.is_running()
    if is_started:
        manager.start()
        context.out.say(f"started `{manager.name}`, which now starts with each login")
    else:
        context.out.say(f"`{manager.name}` is installed and running already; nothing was changed")
    if caveat:
        context.out.say(f"warning: {caveat}")
    _report(context, manager, is_changed=is_started)
    return 0


def find_service(config: Path, platform: str = sys.platform) -> ServiceManager | None:
    """Return the service manager for a config, by its absolute path; None if no service is installed."""
    manager = _find_manager(config, platform)
    return manager if files.read_bytes(manager.file) is not None else None


def uninstall_service(context: Invocation, *, is_printing: bool = False) -> int:
    """Stop the service and remove its file, or print how; return the exit code. The config may be missing."""
    manager = _find_manager(_config_path(context))
    is_there = files.read_bytes(manager.file) is not None
    if is_printing:
        remove = "del" if sys.platform == "win32" else "rm"
        for command in [manager.removal, [remove, str(manager.file)]] if is_there else ():
            context.out.print_text(quote(*command))
        return 0
    if not is_there:
        context.out.say(f"no service is installed for this config: there is no `{manager.file}`")
        _report(context, manager, is_changed=False)
        return 0
    manager.check()
    manager.stop()
    files.remove(manager.file, [])
    manager.forget_file()
    context.out.say(f"stopped `{manager.name}` and removed `{manager.file}`")
    _report(context, manager, is_changed=True)
    return 0


def _find_manager(config: Path, platform: str = sys.platform) -> ServiceManager:
    """Return the service manager of this machine."""
    if sys.platform == "win32":
        return TaskScheduler(config, os.environ, named_pipe.own_user())
    return Launchd(config, os.environ, os.getuid()) if platform == "darwin" else Systemd(config, os.environ)


def _without_console(program: list[str]) -> list[str]:
    """Return the program so that the Task Scheduler opens no window for it."""
    windowless = Path(sys.executable).with_name("pythonw.exe")
    return [str(windowless), "-P", "-m", "dynamic_mcp"] if windowless.is_file() else program


def _list_directories(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set for the directories of logins, catalogs and the log."""
    return {name: environment[name] for name in _DIRECTORIES if environment.get(name, "").startswith("/")}


def _config_path(context: Invocation) -> Path:
    return Path(identify(context.config_path()))


def _require_config(context: Invocation, config: Path) -> None:
    """Read the config, and warn if clients would not use its daemon. Raises ConfigError."""
    if not config.is_file():
        raise ConfigError(
            str(config), "", "does not exist", hint="`dynamic-mcp init` or `dynamic-mcp add` creates one"
        )
    if context.read_config().daemon is None:
        context.out.say(
            f"warning: AI tools do not use this daemon until `{config}` has `settings.daemon`; set it to `true`"
        )


def _print(context: Invocation, manager: ServiceManager, content: bytes) -> None:
    encoding = "utf-16" if content.startswith(BOM_UTF16_LE) else "utf-8"
    text = content.decode(encoding, errors="surrogatepass" if encoding == "utf-16" else "surrogateescape")
    if context.out.is_json_requested:
        context.out.print_json({"service": manager.name, "file": str(manager.file), "content": text})
    else:
        context.out.print_text(text.removesuffix("\n"))


def _report(context: Invocation, manager: ServiceManager, *, is_changed: bool) -> None:
    if context.out.is_json_requested:
        context.out.print_json({"service": manager.name, "file": str(manager.file), "changed": is_changed})
