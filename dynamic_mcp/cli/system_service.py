"""`daemon install --system`: a confined service of the system that serves a config over HTTP, with its own user.

The examples of the documents are what this writes.
"""

from __future__ import annotations

import difflib
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.service_managers import format_words, run_manager
from dynamic_mcp.config.addresses import Address, TcpAddress
from dynamic_mcp.config.location import identify
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.substitute import find_credentials
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.own_program import find_own_program
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import os_reason

NAME = "dynamic-mcp"
CONFIG = Path("/etc/dynamic-mcp/dynamic-mcp.json")
DEFAULT_LISTEN = TcpAddress("127.0.0.1", 8808)
_UNITS = "etc/systemd/system"
SERVICE, SOCKET, USERS = f"{_UNITS}/{NAME}.service", f"{_UNITS}/{NAME}.socket", f"etc/sysusers.d/{NAME}.conf"
# What the unit hides from the service, or shows it another one of (`ProtectHome=`, `PrivateTmp=`).
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - nothing is written there
# Lines that follow from the config, so that they were not edited if they differ.
_OF_THE_CONFIG = ("ExecStart=", "ListenStream=", "LoadCredential=", "LoadCredentialEncrypted=")
# Where systemd looks for credentials without a path (systemd.exec(5), `LoadCredential=`).
_CREDENTIALS, _ENCRYPTED = "etc/credstore", "etc/credstore.encrypted"

_USERS_TEXT = f"""\
# /etc/sysusers.d/{NAME}.conf, as `dynamic-mcp daemon install --system` writes it: the user of the service.
u {NAME} - "MCP servers of the team" /var/lib/{NAME} /usr/sbin/nologin
"""
_SOCKET_TEXT = """\
# /etc/systemd/system/dynamic-mcp.socket, as `dynamic-mcp daemon install --system` writes it: systemd listens, also
# while no service runs, so an upgrade refuses nobody. The address is that of `settings.http.listen`.
[Unit]
Description=Where the MCP servers of the team are reached

[Socket]
ListenStream={listen}

[Install]
WantedBy=sockets.target
"""
_SERVICE_TEXT = """\
# /etc/systemd/system/dynamic-mcp.service, as `dynamic-mcp daemon install --system` writes it. What you want changed
# goes into `systemctl edit dynamic-mcp`, which no upgrade overwrites.
[Unit]
Description=MCP servers of the team
Wants=network-online.target
After=network-online.target

[Service]
# it says when it serves, and afterwards that it does not hang
Type=notify
WatchdogSec=60s
User=dynamic-mcp
ExecStart={command}
# reads the config and the certificate again
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5s
# the config or the command line is wrong, which another start does not change
RestartPreventExitStatus=2
# it lets calls end and then ends its servers itself; what is left after that is killed
KillMode=mixed
# more than `shutdown_timeout`, which is 10 s
TimeoutStopSec=30s
# a server that runs out of memory costs the others nothing
OOMPolicy=continue
# a core dump would hold tokens
LimitCORE=0
# a stream is an open file
LimitNOFILE=65536

# where servers keep their files (HOME), and a directory for a Unix socket that other users may enter
StateDirectory=dynamic-mcp
StateDirectoryMode=0700
RuntimeDirectory=dynamic-mcp
RuntimeDirectoryMode=0755
WorkingDirectory=/var/lib/dynamic-mcp
# the programs of your servers: node, uv, …
Environment=PATH=/usr/local/bin:/usr/bin:/bin
# tokens that the config names as ${{NAME}}: readable for root alone, and systemd reads it as root
EnvironmentFile=-/etc/dynamic-mcp/environment
{credentials}
# What neither dynamic-mcp nor usual servers need. A server that does needs its line changed: one that compiles at run
# time needs no more than this, one with a sandbox of its own (browsers) `RestrictNamespaces=no`.
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
PrivateDevices=yes
PrivateIPC=yes
PrivateMounts=yes
PrivateTmp=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class SystemService:
    """The files of the service, below `root`, and the commands that make it run."""

    config: Path
    command: Sequence[str]
    listen: Address = DEFAULT_LISTEN
    credentials: Sequence[str] = ()
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def files(self) -> dict[str, str]:
        """Return the content of each file, by its path below the root."""
        command = format_words([*self.command, "serve", str(self.config), "--http"])
        credentials = "".join(f"{line}\n" for line in self._credential_lines())
        listen = _format_listen(self.listen)
        return {
            USERS: _USERS_TEXT,
            SERVICE: _SERVICE_TEXT.format(command=command, credentials=credentials),
            **({} if listen is None else {SOCKET: _SOCKET_TEXT.format(listen=listen)}),
        }

    def read(self, file: str) -> str | None:
        """Return the present content of a file; None if there is none. Raises OSError."""
        try:
            return read_bytes(self.root / file).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def write(self, file: str, text: str) -> None:
        """Replace a file, which others may read. Raises OSError."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.new")
        written.write_text(text, encoding="utf-8", errors="surrogateescape")
        written.chmod(0o644)
        written.replace(path)

    def missing_credentials(self) -> list[str]:
        """Return the credentials that are in neither of systemd's directories."""
        places = (self.root / _CREDENTIALS, self.root / _ENCRYPTED)
        return [name for name in self.credentials if not any((place / name).exists() for place in places)]

    def is_running(self) -> bool:
        return self._try("is-enabled") and self._try("is-active")

    def start(self, changed: Sequence[str]) -> None:
        """Make the user, and start the service now and with each start of the machine. Raises DynamicMcpError."""
        self._do("systemd-sysusers", str(self.root / USERS))
        self._do("systemctl", "daemon-reload")
        names = [f"{NAME}.socket"] if SOCKET in self.files() else []
        self._do("systemctl", "enable", *names, f"{NAME}.service")
        if SOCKET in changed:  # a socket is not opened while its service runs
            self._do("systemctl", "stop", f"{NAME}.service")
            self._do("systemctl", "restart", *names)
        elif names:
            self._do("systemctl", "start", *names)
        self._do("systemctl", "restart", f"{NAME}.service")

    def removal(self) -> list[list[str]]:
        """Return the commands that end the service and forget it, but for the last one before its files go."""
        units = [Path(each).name for each in (SOCKET, SERVICE) if self.read(each) is not None]
        return [["systemctl", "disable", "--now", *units], ["systemctl", "daemon-reload"]]

    def remove(self) -> list[str]:
        """End the service, and remove its files; return which. Raises DynamicMcpError and OSError."""
        there = [each for each in (SOCKET, SERVICE, USERS) if self.read(each) is not None]
        stop, reload = self.removal()
        if SERVICE in there or SOCKET in there:
            self._do(*stop)
        for each in there:
            (self.root / each).unlink()
        self._do(*reload)
        return there

    def _credential_lines(self) -> Iterator[str]:
        for name in self.credentials:
            is_encrypted = (self.root / _ENCRYPTED / name).exists()
            yield f"{'LoadCredentialEncrypted' if is_encrypted else 'LoadCredential'}={name}"

    def _do(self, *command: str) -> None:
        run_manager([*command], self.environment, hint=f"`journalctl -u {NAME}` says more")

    def _try(self, question: str) -> bool:
        try:
            run_manager(["systemctl", question, "--quiet", f"{NAME}.service"], self.environment, hint="")
        except DynamicMcpError:
            return False
        return True


# --- the commands ----------------------------------------------------------------------------------------------


def install_system_service(
    context: Invocation, *, is_printing: bool = False, root: str | None = None, overwrites: bool = False
) -> int:
    """Install the service, or print its files, or write them below a directory; return the exit code."""
    service = _make_service(context, Path("/") if root is None else Path(root), is_lenient=is_printing or bool(root))
    if is_printing:
        _print(context, service)
        return 0
    if root is None:
        _require_root("install")
        _check_places(service)
    return install(context, service, starts=root is None, overwrites=overwrites)


def install(context: Invocation, service: SystemService, *, starts: bool, overwrites: bool) -> int:
    """Write the files that differ, and start the service again if any does. Raises DynamicMcpError and OSError."""
    changed = _find_changes(context, service, overwrites=overwrites)
    for file in changed:
        service.write(file, service.files()[file])
        context.out.say(f"wrote `{service.root / file}`")
    if SOCKET not in service.files():
        context.out.say(
            "without a socket unit, since `settings.http.listen` is a Unix socket: a restart refuses clients"
        )
    for name in service.missing_credentials() if starts else ():
        context.out.say(
            f"warning: the config names `${{credential:{name}}}`, and there is no `/{_CREDENTIALS}/{name}`: write it"
            f" there, or `systemd-creds encrypt --name={name} - /{_ENCRYPTED}/{name}`, and install again"
        )
    if starts and (changed or not service.is_running()):
        service.start(changed)
        context.out.say(f"started `{NAME}.service` as the user `{NAME}`, which now starts with the machine")
        context.out.say(f"it serves `{service.config}` at `{service.listen}`")
        _warn_unreadable(context, service.config)
    elif not changed:
        context.out.say("all files are there already; nothing was changed")
    if context.out.is_json_requested:
        context.out.print_json({"files": [str(service.root / file) for file in changed], "changed": bool(changed)})
    return 0


def uninstall_system_service(context: Invocation, *, is_printing: bool = False) -> int:
    """End the service and remove its files, or print how; return the exit code."""
    service = SystemService(CONFIG, (), environment=os.environ)
    if is_printing:
        stop, reload = service.removal()
        files = [f"/{each}" for each in (SOCKET, SERVICE, USERS) if service.read(each) is not None]
        for command in (stop, ["rm", *files], reload) if files else ():
            context.out.print_text(quote(*command))
        return 0
    _require_root("uninstall")
    return uninstall(context, service)


def uninstall(context: Invocation, service: SystemService) -> int:
    """End the service, and say what stays. Raises DynamicMcpError and OSError."""
    if service.read(SERVICE) is None and service.read(SOCKET) is None:
        context.out.say(f"no service is installed: there is no `{service.root / SERVICE}`")
        return 0
    for file in service.remove():
        context.out.say(f"removed `{service.root / file}`")
    context.out.say(f"the user `{NAME}`, its files in `/var/lib/{NAME}` and the config are still there")
    return 0


def _make_service(context: Invocation, root: Path, *, is_lenient: bool) -> SystemService:
    """Return the service of the config. `is_lenient`: it may be of another machine, and is not there yet."""
    if sys.platform != "linux" and not is_lenient:
        raise DynamicMcpError(
            "`--system` is for systemd, which only Linux has", hint="leave it out for your own user"
        )
    config = Path(identify(context.config_option or CONFIG))
    program, _ = find_own_program()
    command = ["/usr/local/bin/dynamic-mcp"] if root != Path("/") else program
    if is_lenient and not config.is_file():
        return SystemService(config, command, root=root, environment=os.environ)
    parsed = parse(config)
    http = parsed.resolve(os.environ).http
    names = [each.name for each in find_credentials(parsed.text, {})]
    listen = DEFAULT_LISTEN if http is None else http.listen
    return SystemService(config, command, listen, names, root, os.environ)


def _find_changes(context: Invocation, service: SystemService, *, overwrites: bool) -> list[str]:
    """Return the files to write. Raises DynamicMcpError if others are there, unless they may be overwritten."""
    changed, differing = [], []
    for file, text in service.files().items():
        present = service.read(file)
        if present != text:
            changed.append(file)
        if present is not None and _without_settings(present) != _without_settings(text):
            differing.append(file)
            lines = (str(present).splitlines(), text.splitlines())
            for line in difflib.unified_diff(*lines, f"{service.root / file}", "what would be written", lineterm=""):
                context.out.say(line)
    if differing and not overwrites:
        names = ", ".join(f"`{service.root / file}`" for file in differing)
        raise DynamicMcpError(
            f"nothing was changed, since {names} was edited, or written by another version",
            hint=f"--overwrite replaces it; what you want changed goes into `systemctl edit {NAME}`, which stays",
        )
    return changed


def _without_settings(text: str) -> list[str]:
    """Return the lines of a file that are the same for each config."""
    return [line for line in text.splitlines() if not line.startswith(_OF_THE_CONFIG)]


def _check_places(service: SystemService) -> None:
    """Raises InvalidArguments if the service could not see its program or its config."""
    program, config = Path(service.command[0]), service.config
    for what, path in (("program", program), ("program", Path(os.path.realpath(program))), ("config", config)):
        if any(path.is_relative_to(each) for each in _HIDDEN):
            hint = (
                "install it for all users, for example by `pipx install --global`, and call that one"
                if what == "program"
                else f"put it into `{CONFIG.parent}`"
            )
            raise InvalidArguments(
                f"the service cannot see its {what}: homes and `/tmp` are hidden from it: `{path}`", hint=hint
            )


def _warn_unreadable(context: Invocation, config: Path) -> None:
    """Say if the user of the service may not read the config."""
    if sys.platform == "win32":
        return
    import pwd

    try:
        user, status = pwd.getpwnam(NAME), config.stat()
    except (KeyError, OSError):
        return
    bits = 0o400 if status.st_uid == user.pw_uid else 0o040 if status.st_gid == user.pw_gid else 0o004
    if not status.st_mode & bits:
        context.out.say(
            f"warning: the user `{NAME}` may not read `{config}`: `chgrp {NAME} {config}` and `chmod 640 {config}`"
        )


def _require_root(what: str) -> None:
    if sys.platform != "win32" and os.geteuid() != 0:
        raise InvalidArguments(
            f"`daemon {what} --system` needs root, since the service is one of the machine",
            hint="run it with `sudo`; `--print` shows what it would do",
        )


def _print(context: Invocation, service: SystemService) -> None:
    files = service.files()
    if context.out.is_json_requested:
        context.out.print_json({"files": {f"/{file}": text for file, text in files.items()}})
    else:
        context.out.print_text("\n".join(files.values()).removesuffix("\n"))


def _format_listen(address: Address) -> str | None:
    """Return the address for a socket unit, which has no names of hosts; None for a Unix socket.

    Its directory is that of the service, and goes with it. Raises DynamicMcpError if the host is unknown.
    """
    if not isinstance(address, TcpAddress):
        return None
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise DynamicMcpError(f"the host of `settings.http.listen` is unknown: {os_reason(exc)}") from exc
    return str(TcpAddress(str(found[0][4][0]), address.port))
