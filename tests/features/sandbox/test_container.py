"""Programs in containers: the same places, no network where `hosts` is empty, and an end with their server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.sandbox.hostile_scene import PYTHON, Scene, hostile_scene
from tests.program import BOUND_S, UPSTREAMS

if sys.platform == "win32":
    pytest.skip("Windows runs no programs in containers", allow_module_level=True)

pytestmark = pytest.mark.full
IMAGE = "localhost/dynamic-mcp-test"
_CONFIG = '[engine]\n{engine}[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
_RUNTIME = 'runtime = "runc"\ncgroup_manager = "cgroupfs"\n'


def run(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, capture_output=True, timeout=BOUND_S, check=False)


def libraries(file: str) -> Iterator[str]:
    listed = run("ldd", file).stdout.decode().split()
    return (word for word in listed if word.startswith("/"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide an image with the Python of this machine, made without a registry."""
    if shutil.which("podman") is None or os.getuid() != 0:
        pytest.skip("there is no `podman`, or not for root")
    folder = tmp_path_factory.mktemp("image")
    config = folder / "containers.conf"
    config.write_text(_CONFIG.format(engine=_RUNTIME if shutil.which("runc") else ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(config))
        patch.setenv("STORAGE_DRIVER", "vfs")
        version = Path(PYTHON).resolve().name
        library = Path("/usr/lib", version)
        modules = [str(each) for each in (library / "lib-dynload").glob("*.so")]
        files = {PYTHON, str(library), *(each for file in (PYTHON, *modules) for each in libraries(file))}
        with tarfile.open(folder / "base.tar", "w", dereference=True) as archive:
            for each in sorted(files):
                archive.add(each)
        for words in (("import", str(folder / "base.tar"), IMAGE), ("run", "--rm", IMAGE, PYTHON, "-c", "")):
            done = run("podman", *words)
            if done.returncode != 0:
                pytest.skip(f"podman does not work here: {done.stderr.decode().strip()[-200:]}")
        yield IMAGE
        run("podman", "rmi", "--force", IMAGE)


@pytest.fixture
def scene(tmp_path: Path, image: str) -> Iterator[Scene]:
    """Provide the scene for a program in a container."""
    with hostile_scene(tmp_path, None) as scene:
        yield scene


def test_a_hostile_program_changes_nothing_outside_of_its_container(scene: Scene, image: str) -> None:
    before = scene.look()
    attempts = scene.attack({"container": image, "read": [str(UPSTREAMS), str(scene.outside)], "hosts": []})
    refused = [name for name, outcome in attempts.items() if outcome != "done"]
    assert {"append", "create", "mode", "times", "parents", "symbolic link", "signal", "device"} <= {*refused}
    assert scene.look() == before


def test_it_writes_in_its_own_places_and_has_no_network(scene: Scene, image: str) -> None:
    code = "import pathlib, os; pathlib.Path('here').write_text('1'); print(sorted(os.listdir('/sys/class/net')))"
    result = scene.run({"container": image, "hosts": []}, PYTHON, ["-c", code])
    assert result == {"code": 0, "stdout": "['lo']\n", "stderr": ""}
    assert (scene.inside / "here").read_text() == "1"


def test_its_container_ends_with_it(scene: Scene, image: str) -> None:
    code = (
        "import os, sys, time; print('started', flush=True); os.close(1); os.close(2); os.fork() or time.sleep(600)"
    )
    result = scene.run({"container": image}, PYTHON, ["-c", code])
    assert result["stdout"] == "started\n"
    assert run("podman", "ps", "--all", "--quiet").stdout == b""
