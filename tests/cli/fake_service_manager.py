"""A stand-in for `systemctl` and `launchctl`: it records its arguments and keeps what is enabled, running and loaded.

FAKE_MANAGER is its directory: `calls` has one line of JSON for each call, `unreachable` makes every call fail as on a
machine without a session bus, and there is a file for each unit or job that is known, enabled, disabled or running.
"""

from __future__ import annotations

import json
import os
import plistlib
import sys
from pathlib import Path

STATE = Path(os.environ.get("FAKE_MANAGER", "."))


def main(program: str, words: list[str]) -> int:
    """Do what the program would do, and return its exit code."""
    with (STATE / "calls").open("a") as calls:
        calls.write(json.dumps([program, *words]) + "\n")
    if (STATE / "unreachable").exists():
        return fail("Failed to connect to bus: No medium found")
    return systemctl(words) if program == "systemctl" else launchctl(words)


def systemctl(words: list[str]) -> int:
    """Act as `systemctl --user`."""
    user, *words = [word for word in words if word != "--quiet"]
    assert user == "--user"
    command, *rest = words
    name = rest[-1] if rest else ""
    match command:
        case "show":
            print("Version=252")
        case "daemon-reload":
            for known in STATE.glob("known-*"):
                known.unlink()
            for unit in units().glob("*.service"):
                mark("known", unit.name)
        case "enable":
            if not (units() / name).exists():
                return fail(f"Failed to enable unit: Unit file {name} does not exist.")
            mark("enabled", name)
        case "restart":
            if not is_marked("known", name):
                return fail(f"Failed to restart {name}: Unit {name} not found.")
            if (STATE / "broken").exists():
                return fail(f"Job for {name} failed.")
            mark("running", name)
        case "disable":
            assert rest[0] == "--now"
            unmark("enabled", name)
            unmark("running", name)
        case "is-enabled":
            return 0 if is_marked("enabled", name) else 1
        case "is-active":
            return 0 if is_marked("running", name) else 3
        case "reset-failed":
            return fail(f"Failed to reset failed state of unit {name}: Unit {name} not loaded.")
        case _:
            return fail(f"Unknown command verb {command}.")
    return 0


def launchctl(words: list[str]) -> int:
    """Act as `launchctl`."""
    command, target, *rest = words
    session, _, label = target.removeprefix("gui/").partition("/")
    assert session == str(os.getuid())
    match command:
        case "print" if not label:
            print(f"gui/{session} = {{")
        case "print":
            if not is_marked("loaded", label):
                return fail(f'Could not find service "{label}" in domain for user gui: {session}', code=113)
            print(f"{target} = {{\n\tstate = {'running' if is_marked('running', label) else 'not running'}\n}}")
        case "enable":
            unmark("disabled", label)
        case "bootstrap":
            label = plistlib.loads(Path(*rest).read_bytes())["Label"]
            if is_marked("loaded", label) or is_marked("disabled", label):
                return fail("Bootstrap failed: 5: Input/output error", code=5)
            mark("loaded", label)
            mark("running", label)
        case "bootout":
            if is_marked("loaded", label):  # the job ends after the command: it is seen once more
                (STATE / f"loaded-{label}").rename(STATE / f"ending-{label}")
            unmark("running", label)
        case _:
            return fail(f"Unrecognized subcommand: {command}", code=64)
    return 0


def units() -> Path:
    """Return the directory of the user's units."""
    return Path(os.environ["XDG_CONFIG_HOME"]) / "systemd" / "user"


def is_marked(what: str, name: str) -> bool:
    """Tell whether there is a file for it; a job that ends counts as loaded this one time."""
    ending = STATE / f"ending-{name}"
    if what == "loaded" and ending.exists():
        ending.unlink()
        return True
    return (STATE / f"{what}-{name}").exists()


def mark(what: str, name: str) -> None:
    (STATE / f"{what}-{name}").touch()


def unmark(what: str, name: str) -> None:
    (STATE / f"{what}-{name}").unlink(missing_ok=True)


def fail(words: str, *, code: int = 1) -> int:
    """Print an error and return the exit code."""
    print(words, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
