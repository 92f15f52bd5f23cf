"""The images of this checkout, and containers of them in networks of their own, by buildah and podman.

Images are built once for a state of the checkout, on a Debian from the package archive. `build/containers` keeps them
with all that belongs to them. Nothing of the machine's own containers is seen or changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from dynamic_mcp.system.paths import FileLock
from tests.http_client import Disconnected, HttpClient

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / "build" / "containers"
SERVERS_IMAGE = "localhost/dynamic-mcp:servers"  # `slim` with programs of the tests
BASE = "localhost/dynamic-mcp-base"
SLIM = "localhost/dynamic-mcp:slim"
FULL = "localhost/dynamic-mcp:full"
SERVERS = Path(__file__).parent / "servers"
PORT = 8808
# A build with nothing in the cache fetches some 200 MB.
BUILDS_WITHIN_S = 900
STARTS_WITHIN_S = 60.0
_RUNS_WITHIN_S = 120.0
_POLL_S = 0.05
_NEEDED = ("buildah", "podman", "runc", "debootstrap", "ip")
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,python3,python3-venv"
# Where programs of this machine find the certificates that its package registries have.
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_numbers = itertools.count()
_networks = itertools.count()


def build(image: str) -> None:
    """Build an image, or skip the test with what is missing for that."""
    if missing := _find_missing():
        pytest.skip(missing)
    if failure := _build(image):
        pytest.fail(failure)


@cache
def _find_missing() -> str:
    if not hasattr(os, "geteuid") or os.geteuid():
        return "containers are run by root alone here"
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    name = f"dm{os.getpid():x}probe"  # other workers try at the same time
    probe = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False)
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this machine allows no networks of its own"


@cache
def _build(image: str) -> str:
    """Build an image, and return why that failed."""
    with _locked(CACHE / "lock"):  # other workers wait, and then find it
        _remove_orphans()
        return _build_base() or (_build_with_servers() if image == SERVERS_IMAGE else _build_target(image))


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Do something in one process of the tests at a time."""
    with FileLock(file).held(BUILDS_WITHIN_S):
        yield


def _remove_orphans() -> None:
    """Remove what runs of the tests have left that were killed."""
    listed = subprocess.run(
        podman("ps", "--all", "--format", "{{.Names}}"), capture_output=True, text=True, check=False
    )
    for name in listed.stdout.split():
        if (found := re.match(r"dm-(\d+)-", name)) and not Path(f"/proc/{found[1]}").exists():
            _run_quietly(*podman("rm", "--force", "--time", "0", "--volumes", name))
    for name in re.findall(r"^dm[0-9a-f]+x\d+n\d+", _ip("netns", "list"), re.MULTILINE):
        if _is_orphan(name):
            _ip("netns", "delete", name)
    for name in re.findall(r"^\d+: (dm[0-9a-f]+x\d+):", _ip("-o", "link", "show", "type", "bridge"), re.MULTILINE):
        if _is_orphan(name):
            _ip("link", "delete", name)


def _is_orphan(network: str) -> bool:
    return not Path(f"/proc/{int(network[2:].partition('x')[0], 16)}").exists()


def _build_base() -> str:
    if _run_quietly(*podman("image", "exists", BASE)) == "":
        return ""
    tree = CACHE / "base"
    shutil.rmtree(tree, ignore_errors=True)
    made = _run_quietly("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(tree))
    if made:
        pytest.skip(f"the archive of Debian's packages cannot be reached: {made[-200:]}")
    archive = CACHE / "base.tar"
    try:
        made = _run_quietly("tar", "-C", str(tree), "-cf", str(archive), ".")
        return made or _run_quietly(*podman("import", str(archive), BASE))
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(tree, ignore_errors=True)


def _build_target(image: str) -> str:
    pip = CACHE / "pip.conf"
    pip.write_text(f"[global]\ncert = {_BUNDLE}\n", encoding="utf-8")
    options = ["--volume", f"{pip}:/etc/pip.conf:ro"]
    if bundle := _find_certificates():
        options += ["--volume", f"{bundle}:{_BUNDLE}:ro"]
    failure = _run_quietly(
        *_with_storage("buildah"), "build", "--layers", "--isolation", "chroot", "--format", "docker", *options,
        "--build-arg", f"BASE={BASE}", "--build-arg", "VERSION=0.0.0", "--target", image.rpartition(":")[2],
        "--tag", image, str(ROOT),
    )  # fmt: skip
    # the steps of the last builds are the cache of the next
    _run_quietly(*_with_storage("podman"), "image", "prune", "--force", "--filter", "until=72h")
    return failure


def _build_with_servers() -> str:
    """Build an image as users do that need other programs: from `slim`."""
    return _build_target(SLIM) or _run_quietly(
        *_with_storage("buildah"), "build", "--isolation", "chroot", "--format", "docker", "--tag", SERVERS_IMAGE,
        str(SERVERS),
    )  # fmt: skip


def _find_certificates() -> str:
    return next((os.environ[name] for name in _CERTIFICATES if os.environ.get(name)), "")


def certificate_options() -> list[str]:
    """Return the options with which programs in a container accept the certificates that this machine accepts."""
    bundle = _find_certificates()
    if not bundle:
        return []
    names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
    return [
        "--volume",
        f"{bundle}:{_BUNDLE}:ro",
        *(word for name in names for word in ("--env", f"{name}={_BUNDLE}")),
    ]


def _run_quietly(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=BUILDS_WITHIN_S, check=False
    )
    return "" if done.returncode == 0 else f"{command[0]}: {(done.stdout + done.stderr)[-3000:] or 'failed'}"


def _with_storage(program: str) -> list[str]:
    return [program, "--root", str(CACHE / "storage"), "--runroot", str(CACHE / "run")]


def podman(*words: str) -> list[str]:
    """Return a command of podman with the storage of the tests."""
    return [*_with_storage("podman"), "--runtime", "runc", "--cgroup-manager", "cgroupfs", *words]


def inspect_image(image: str, form: str) -> str:
    """Return what podman tells of an image, in a form of Go's templates."""
    done = subprocess.run(
        podman("image", "inspect", "--format", form, image), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@dataclass
class CommandOutcome:
    """How a command in a container ended."""

    code: int
    out: str
    err: str


async def run_podman(*words: str, stdin: bytes | None = None) -> CommandOutcome:
    """Run a command of podman."""
    process = await asyncio.create_subprocess_exec(
        *podman(*words),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_RUNS_WITHIN_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:  # cancelled
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return CommandOutcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


@dataclass(frozen=True)
class Network:
    """A network of the tests alone: this machine is at its first address, and there is no way out of it."""

    name: str
    prefix: str
    _members: Iterator[int] = field(default_factory=lambda: itertools.count(2))

    def join(self) -> tuple[str, str]:
        """Make a namespace in the network; return its name and its address."""
        number = next(self._members)
        namespace, address = f"{self.name}n{number}", f"{self.prefix}.{number}"
        outer, inner = f"{self.name}o{number}", f"{self.name}i{number}"
        _ip("netns", "add", namespace)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
        _ip("link", "set", outer, "master", self.name, "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", inner)
        _ip("-n", namespace, "link", "set", inner, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace, address

    def add_address(self, address: str) -> None:
        """Give this machine another address in the network."""
        _ip("address", "add", f"{address}/24", "dev", self.name)

    def leave(self, namespace: str) -> None:
        """Remove a namespace, with its link, which would go a moment later."""
        _ip("link", "delete", f"{self.name}o{namespace.removeprefix(f'{self.name}n')}")
        _ip("netns", "delete", namespace)


@contextlib.contextmanager
def open_network() -> Iterator[Network]:
    """Make a network, and remove it with its namespaces."""
    name = f"dm{os.getpid():x}x{next(_networks) % 100}"  # names of interfaces have 15 characters at most
    with _locked(Path("/run/dynamic-mcp-tests/lock")):  # also against the tests of other checkouts
        network = Network(name, _find_free_prefix())
        _ip("link", "add", name, "type", "bridge")
        _ip("address", "add", f"{network.prefix}.1/24", "dev", name)
    try:
        _ip("link", "set", network.name, "up")
        yield network
    finally:
        for line in _ip("netns", "list").splitlines():
            if line.startswith(f"{network.name}n"):
                network.leave(line.split()[0])
        _ip("link", "delete", network.name)


def _find_free_prefix() -> str:
    """Return a part of 198.18.0.0/15, which is for tests of networks (RFC 2544), that no other network has."""
    taken = _ip("-o", "-4", "address")
    prefixes = (f"198.{second}.{third}" for second in (18, 19) for third in range(256))
    return next(each for each in prefixes if f" {each}." not in taken)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Container:
    """A running container."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def __repr__(self) -> str:
        return f"<Container {self.name} at {self.address or 'no address'}>"

    def client(self, port: int = PORT) -> HttpClient:
        """Return a client of what it serves over HTTP."""
        return HttpClient(f"http://{self.address}:{port}")

    async def execute(self, *command: str, user: str = "") -> CommandOutcome:
        """Run a command in it."""
        return await run_podman("exec", *(("--user", user) if user else ()), self.name, *command)

    async def run(self, *command: str) -> str:
        """Run a command in it that has to succeed, and return what it prints."""
        done = await self.execute(*command)
        assert done.code == 0, (command, done, await self.log())
        return done.out

    async def make_token(self, subject: str = "ci", *options: str) -> str:
        """Make a token of the program in it."""
        return (await self.run("dynamic-mcp", "token", "create", "--as", subject, *options)).strip()

    async def check_health(self) -> CommandOutcome:
        """Run the health check of the image."""
        return await run_podman("healthcheck", "run", self.name)

    async def log(self) -> str:
        """Return what it has written to stdout and stderr."""
        done = await run_podman("logs", self.name)
        return done.out + done.err

    async def signal(self, name: str) -> None:
        """Signal its process 1."""
        await run_podman("kill", "--signal", name, self.name)

    async def remove(self) -> None:
        """Kill it if it runs, and remove it with its volumes."""
        await run_podman("rm", "--force", "--time", "0", "--volumes", self.name)

    async def stop(self, grace_s: int = 30) -> int:
        """End it as an orchestrator does, and return the exit code."""
        done = await run_podman("stop", "--time", str(grace_s), self.name)
        assert done.code == 0, done
        return await self.wait()

    async def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        return int((await run_podman("wait", self.name)).out)

    async def read_state(self, form: str) -> str:
        """Return what podman tells of it, in a form of Go's templates."""
        return (await run_podman("inspect", "--format", form, self.name)).out.strip()

    async def until(self, *command: str) -> None:
        """Repeat a command in it until it succeeds."""

        async def has_succeeded() -> bool:
            return (await self.execute(*command)).code == 0

        await wait_until(has_succeeded, self.log)


LIMITS = (
    "--health-interval=disable",  # the tests run the check themselves
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=1000:1000",
)
# A container may write nowhere but to its volume, and gets no right that its user has not.
CONFINED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
)


@contextlib.asynccontextmanager
async def run_container(
    image: str,
    *args: str,
    network: Network | None = None,
    is_online: bool = False,
    volumes: Sequence[str] = (),
    options: Sequence[str] = (),
) -> AsyncIterator[Container]:
    """Run a container, and remove it at the end. It has a network of the tests, that of this machine, or none.

    `volumes` are `HOST:CONTAINER[:OPTIONS]`.
    """
    namespace, address = network.join() if network is not None else ("", "")
    words = [*CONFINED, *(f"--volume={volume}" for volume in volumes), *options]
    words += ["--network=host"] if is_online else []
    container = None
    try:
        container = await start_container(image, *args, namespace=namespace, address=address, options=words)
        yield container
    finally:
        if container is not None:
            await container.remove()
        if network is not None:
            network.leave(namespace)


async def start_container(
    image: str, *args: str, namespace: str = "", address: str = "", options: Sequence[str] = ()
) -> Container:
    """Start a container in a network namespace, or in no network unless the options say otherwise."""
    name = f"dm-{os.getpid()}-{next(_numbers)}"
    where = f"ns:/run/netns/{namespace}" if namespace else "none"
    words = [] if any(each.startswith("--network=") for each in options) else [f"--network={where}"]
    done = await run_podman("run", "--detach", f"--name={name}", *LIMITS, *words, *options, image, *args)
    if done.code:
        await run_podman("rm", "--force", name)
        raise AssertionError(done)
    return Container(name, address)


async def wait_until(
    is_so: Callable[[], Awaitable[bool]], explain: Callable[[], Awaitable[str]] | None = None
) -> None:
    """Ask until it is so."""
    try:
        async with asyncio.timeout(STARTS_WITHIN_S):
            while not await is_so():  # noqa: ASYNC110 - a container raises no event here
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise AssertionError(f"waited for {is_so}: {await explain() if explain else ''}") from None


async def wait_until_served(container: Container) -> None:
    """Wait until it is ready."""

    async def is_served() -> bool:
        return await is_answered(container, "/ready")

    await wait_until(is_served, container.log)


async def is_answered(container: Container, path: str, port: int = PORT, *, within_s: float = 5.0) -> bool:
    """Ask for a path; return whether that succeeds."""
    with contextlib.suppress(OSError, Disconnected, TimeoutError):
        async with asyncio.timeout(within_s), container.client(port) as http:
            return (await http.request("GET", path)).status == 200
    return False
