"""Whatever a confined program tries, nothing outside of its sandbox changes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("only Linux confines programs", allow_module_level=True)

from dynamic_mcp.features.sandbox import bubblewrap, landlock
from tests.features.sandbox.hostile_scene import NOBODY, PYTHON, Scene, hostile_scene
from tests.program import UPSTREAMS

if not Path(PYTHON).exists():
    pytest.skip(f"the hostile program is run by {PYTHON}, which is not there", allow_module_level=True)

needs_bubblewrap = pytest.mark.skipif(bool(bubblewrap.explain_missing()), reason=bubblewrap.explain_missing() or "-")
needs_landlock = pytest.mark.skipif(
    landlock.read_version() < landlock.NEEDED, reason=f"this kernel has no version {landlock.NEEDED} of Landlock"
)
STRICT: dict[str, object] = {"read": [], "hosts": []}
NOWHERE = "/nowhere"  # where bubblewrap is not found


def command_lines() -> Iterator[list[str]]:
    """Yield the command lines of all processes."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield each.read_bytes().decode(errors="replace").split("\0")


@pytest.fixture(params=["this user", "another user"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Provide the scene for the user of the tests, and if that is root, for one who is not."""
    if request.param == "another user" and os.getuid() != 0:
        pytest.skip("only root can start a program as another user")
    with hostile_scene(tmp_path, NOBODY if request.param == "another user" else None) as scene:
        if scene.user is not None:
            tried = scene.run(STRICT, PYTHON, [str(UPSTREAMS / "stdin_lines.py")])
            if "error" in tried or "Permission denied" in tried["stderr"]:
                pytest.skip(f"another user cannot be confined here: {tried.get('error') or tried['stderr']}")
        yield scene


@needs_bubblewrap
@pytest.mark.parametrize("words", [{}, STRICT], ids=["write", "strict"])
def test_a_hostile_program_changes_nothing_outside(scene: Scene, words: dict[str, object]) -> None:
    before = scene.look()
    attempts = scene.attack(words)
    assert [name for name, outcome in attempts.items() if outcome == "done"] == []
    assert scene.look() == before


@needs_landlock
def test_without_bubblewrap_it_changes_nothing_outside_either(scene: Scene) -> None:
    before = scene.look()
    attempts = scene.attack({}, path=NOWHERE)
    # what it writes at its own places is not limited there
    assert {name for name, outcome in attempts.items() if outcome == "done"} <= {
        "large file",
        "fill the temporary folder",
    }
    assert scene.look() == before


def test_unconfined_it_does_change_what_is_outside(scene: Scene) -> None:
    before = scene.look()
    only = ("socket", "append", "mode", "times", "parents", "symbolic link", "create", "signal")
    assert scene.attack(None, only=only) == dict.fromkeys(only, "done")
    assert scene.look() != before


@needs_bubblewrap
def test_a_program_writes_in_its_own_places(scene: Scene) -> None:
    code = (
        "import os, pathlib; pathlib.Path('here').write_text('1'); os.chmod('here', 0o700); os.utime('here', (5, 5));"
        " t = pathlib.Path(os.environ['TMPDIR'], 'there'); t.write_text('2'); print(t.read_text())"
    )
    result = scene.run({"write": [str(scene.outside)]}, PYTHON, ["-c", code])
    assert result == {"code": 0, "stdout": "2\n", "stderr": ""}
    assert (scene.inside / "here").read_text() == "1"
    assert (scene.inside / "here").stat().st_mtime == 5


@needs_bubblewrap
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this machine has no /dev/shm")  # noqa: S108
def test_files_in_memory_that_it_may_read_stay_as_they_are(scene: Scene) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", mode="w+") as file:
        file.write("kept")
        file.flush()
        Path(file.name).chmod(0o666)
        code = f"print(open({file.name!r}).read(), flush=True); open({file.name!r}, 'w')"
        result = scene.run({"read": [file.name], "hosts": []}, PYTHON, ["-c", code])
        assert (result["stdout"], result["code"]) == ("kept\n", 1), result
        assert Path(file.name).read_text() == "kept"


@needs_bubblewrap
def test_a_place_that_the_config_names_can_be_written(scene: Scene) -> None:
    code = f"import pathlib; pathlib.Path({str(scene.outside / 'file')!r}).write_text('changed')"
    result = scene.run({"write": [str(scene.outside)]}, PYTHON, ["-c", code])
    assert result == {"code": 0, "stdout": "", "stderr": ""}
    assert (scene.outside / "file").read_text() == "changed"


@needs_bubblewrap
def test_what_may_not_be_read_does_not_exist_for_it(scene: Scene) -> None:
    code = "import pathlib, sys\nfor each in sys.argv[1].split(','):\n    print(pathlib.Path(each).exists())"
    (scene.home / "secret").write_text("secret")
    hidden = f",{scene.outside},/etc/shadow,/root/.bashrc,{scene.home / 'secret'}"
    result = scene.run(STRICT, PYTHON, ["-c", code, hidden])
    assert result["stdout"].split() == ["True", "False", "False", "False", "False"]  # the first one is `.`


@needs_bubblewrap
def test_the_secrets_of_the_proxy_are_hidden_from_what_reads_all(scene: Scene) -> None:
    secret = scene.home / "state" / "dynamic-mcp" / "tokens"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("secret")
    if scene.user is not None:
        for each in (secret, *list(secret.parents)[:2]):
            os.chown(each, scene.user, scene.user)
    code = f"import pathlib; print(pathlib.Path({'/'.join(secret.parts)[1:]!r}).exists())"
    assert scene.run({}, PYTHON, ["-c", code])["stdout"] == "False\n"


@needs_bubblewrap
def test_all_that_a_program_starts_ends_with_it(scene: Scene) -> None:
    code = (
        "import os\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        for each in range(3):\n"
        "            os.close(each)\n"
        "        os.execve('/bin/sleep', ['sleep', '77770001'], {})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert scene.run({}, PYTHON, ["-c", code])["code"] == 0
    assert not any("77770001" in words for words in command_lines())


def test_what_cannot_be_enforced_is_an_error_that_says_what_is_missing(scene: Scene) -> None:
    result = scene.run(STRICT, PYTHON, ["-c", "print('started')"], path=NOWHERE)
    assert result["error"].startswith("CannotConfine: only bubblewrap can confine what it reads and its network")
    assert "install" in result["hint"]


@needs_landlock
def test_the_best_effort_starts_it_all_the_same(scene: Scene) -> None:
    result = scene.run({**STRICT, "best_effort": True}, PYTHON, ["-c", "print('started')"], path=NOWHERE)
    assert result["stdout"] == "started\n"


@needs_bubblewrap
def test_a_place_that_does_not_exist_is_an_error(scene: Scene) -> None:
    result = scene.run({"write": [str(scene.outside / "missing")]}, PYTHON, ["-c", "print('started')"])
    assert "does not exist" in result["error"]


@needs_bubblewrap
@pytest.mark.full
def test_a_fork_bomb_stops_at_its_limit(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can start a program as another user")
    code = (
        "import os, time\n"
        "number = 0\n"
        "try:\n"
        "    while number < 10_000:\n"
        "        if not os.fork():\n"
        "            time.sleep(600)\n"
        "        number += 1\n"
        "except OSError as exc:\n"
        "    print(exc.strerror)\n"
    )
    with hostile_scene(tmp_path, NOBODY) as scene:
        result = scene.run({}, PYTHON, ["-c", code])
    assert result["stdout"] == "Resource temporarily unavailable\n"
    assert shutil.which("bwrap")
