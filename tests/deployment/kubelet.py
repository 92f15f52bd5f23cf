"""A small kubelet of the tests: it starts what manifests say in containers, probes them, drains them and kills them.

It knows what the manifests of this project use: pods of Deployments and StatefulSets with one container, its image,
command, arguments and environment, its user and rights, volumes of ConfigMaps and Secrets, which are exchanged as a
kubelet does it, of empty directories and of claims; probes, hooks and grace periods. Services have an address that
passes connections on to pods that are ready, or are names of the addresses of pods (headless). There are no nodes,
no limits of resources and no policies.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployment.containers import (
    Container,
    Network,
    is_answered,
    start_container,
    wait_until,
)

Json = Any  # objects of Kubernetes
NAMESPACE = "default"
_FIRST_SERVICE = 200  # the last part of the addresses of services


@dataclass
class Pod:
    """A pod: its addresses and volumes stay, also when its container is started again."""

    name: str
    labels: dict[str, str]
    spec: Json
    namespace: str  # of its network
    address: str
    folder: Path
    container: Container | None = None
    starts: int = 0
    is_ready: bool = False
    is_ending: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __repr__(self) -> str:
        state = "ending" if self.is_ending else "ready" if self.is_ready else "not ready"
        return f"<Pod {self.name} at {self.address}, {state}, started {self.starts} times>"

    @property
    def container_spec(self) -> Json:
        (spec,) = self.spec["containers"]
        return spec

    def port_of(self, name: str | int) -> int:
        """Return the number of a port of the container."""
        ports = {each["name"]: int(each["containerPort"]) for each in self.container_spec.get("ports", [])}
        return name if isinstance(name, int) else ports[name]


class Cluster:
    """What runs of some manifests."""

    def __init__(self, objects: Sequence[Json], network: Network, folder: Path) -> None:
        self.pods: dict[str, Pod] = {}
        self._network = network
        self._folder = folder
        self._numbers = itertools.count(1)
        self._services: dict[str, str] = {}
        self._objects = {(each["kind"], each["metadata"]["name"]): each for each in copy.deepcopy(list(objects))}
        self._hosts = folder / "hosts"
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Start all pods, and wait until they are ready."""
        self._folder.chmod(0o755)
        self._hosts.touch()
        for number, service in enumerate(self._list("Service")):
            if service["spec"].get("clusterIP") != "None":
                await self._open_service(service, f"{self._network.prefix}.{_FIRST_SERVICE + number}")
        for workload in (*self._list("StatefulSet"), *self._list("Deployment")):
            for number in range(workload["spec"].get("replicas", 1)):
                await self._make_pod(workload, number)
        await self.until_ready()

    async def close(self) -> None:
        """End all at once."""
        for pod in list(self.pods.values()):
            await self._remove(pod)
        await self._stack.aclose()

    async def until_ready(self) -> None:
        """Wait until all pods are ready."""

        async def are_ready() -> bool:
            for task in (task for pod in self.pods.values() for task in pod.tasks):
                if task.done() and not task.cancelled():
                    task.result()  # it looks after a pod until that ends
            return all(pod.is_ready for pod in self.pods.values())

        await wait_until(are_ready, self.describe)

    async def describe(self) -> str:
        """Return the pods with their logs, for the message of a failure."""
        logs = [(pod, "" if pod.container is None else await pod.container.log()) for pod in self.pods.values()]
        return "\n".join(f"{pod!r}:\n{log}" for pod, log in logs)

    def pods_of(self, service: str) -> list[Pod]:
        """Return the pods that a service selects."""
        wanted = self._objects["Service", service]["spec"]["selector"].items()
        return [pod for pod in self.pods.values() if wanted <= pod.labels.items()]

    def address_of(self, service: str) -> str:
        """Return the address of a service."""
        return self._services[service]

    async def drain(self, pod: Pod) -> int:
        """End a pod in order, as when its node is drained, and start another one; return the exit code."""
        code = await self.end(pod)
        await self._replace(pod)
        return code

    async def end(self, pod: Pod) -> int:
        """End a pod in order: its hook, SIGTERM, and SIGKILL after its grace period. Return the exit code."""
        assert pod.container is not None
        pod.is_ending, pod.is_ready = True, False
        self._write_hosts()
        for task in pod.tasks:
            task.cancel()
        grace_s = float(pod.spec.get("terminationGracePeriodSeconds", 30))
        hook = pod.container_spec.get("lifecycle", {}).get("preStop")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + grace_s
        if hook is not None:
            await pod.container.execute(*hook["exec"]["command"])
        await pod.container.signal("TERM")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_at):
                return await pod.container.wait()
        await pod.container.signal("KILL")
        return await pod.container.wait()

    async def kill(self, pod: Pod) -> None:
        """Kill the container of a pod, which is then started again."""
        assert pod.container is not None
        await pod.container.signal("KILL")

    async def apply(self, objects: Sequence[Json]) -> None:
        """Change ConfigMaps and Secrets, and exchange their files in all volumes, as a kubelet does."""
        for each in copy.deepcopy(list(objects)):
            if each["kind"] in ("ConfigMap", "Secret"):
                self._objects[each["kind"], each["metadata"]["name"]] = each
        for pod in self.pods.values():
            for volume in pod.spec.get("volumes", []):
                if files := self._files_of(volume):
                    publish(pod.folder / volume["name"], files, *_owner_of(pod))

    def _list(self, kind: str) -> list[Json]:
        return [each for (of, _), each in self._objects.items() if of == kind]

    # --- pods -----------------------------------------------------------------------------------------------

    async def _make_pod(self, workload: Json, number: int) -> Pod:
        template = workload["spec"]["template"]
        name = workload["metadata"]["name"]
        labels = dict(template["metadata"]["labels"])
        if workload["kind"] == "StatefulSet":
            name = f"{name}-{number}"
            labels["statefulset.kubernetes.io/pod-name"] = name
        else:
            name = f"{name}-5d8f7c9b6d-{next(self._numbers):05}"
        namespace, address = self._network.join()
        pod = Pod(name, labels, template["spec"], namespace, address, self._folder / f"{name}-{address}")
        pod.folder.mkdir()
        self._make_volumes(pod, workload)
        self.pods[name] = pod
        self._write_hosts()
        await self._start_container(pod)
        pod.tasks = [asyncio.create_task(self._look_after(pod)), asyncio.create_task(self._restart(pod))]
        return pod

    async def _replace(self, pod: Pod) -> None:
        await self._remove(pod)
        for workload in (*self._list("StatefulSet"), *self._list("Deployment")):
            if workload["spec"]["template"]["spec"] is pod.spec:
                number = pod.name.rpartition("-")[2]
                await self._make_pod(workload, int(number))

    async def _remove(self, pod: Pod) -> None:
        for task in pod.tasks:
            task.cancel()
        await asyncio.gather(*pod.tasks, return_exceptions=True)
        if pod.container is not None:
            await pod.container.remove()
        self._network.leave(pod.namespace)
        del self.pods[pod.name]
        self._write_hosts()

    async def _start_container(self, pod: Pod) -> None:
        if pod.container is not None:
            await pod.container.remove()
        pod.starts += 1
        spec = pod.container_spec
        options = [*_rights_of(pod), f"--hostname={pod.name}", f"--volume={self._hosts}:/etc/hosts:ro"]
        for mount in spec.get("volumeMounts", []):
            mode = "ro" if mount.get("readOnly") else "rw"
            options.append(f"--volume={self._folder_of(pod, mount['name'])}:{mount['mountPath']}:{mode}")
        for each in spec.get("env", []):
            options.append(f"--env={each['name']}={self._value_of(each, pod)}")
        if "command" in spec:
            options.append(f"--entrypoint={spec['command']!r}".replace("'", '"'))
        pod.container = await start_container(
            spec["image"], *spec.get("args", []), namespace=pod.namespace, address=pod.address, options=options
        )

    async def _restart(self, pod: Pod) -> None:
        """Start the container of a pod again whenever it has ended."""
        while True:
            assert pod.container is not None
            await pod.container.wait()
            pod.is_ready = False
            await self._start_container(pod)

    async def _look_after(self, pod: Pod) -> None:
        """Probe a pod until it ends: whether it has started, and then whether it lives and is ready."""
        starts, started, failures, now = 0, False, {"startupProbe": 0, "livenessProbe": 0, "readinessProbe": 0}, 0
        while True:
            if starts != pod.starts:
                starts, started, failures = pod.starts, False, dict.fromkeys(failures, 0)
            for kind in ("livenessProbe", "readinessProbe") if started else ("startupProbe",):
                probe = pod.container_spec.get(kind)
                if probe is None or now % probe.get("periodSeconds", 10):
                    started = started or kind == "startupProbe"
                    continue
                is_fine = await self._ask(pod, probe)
                failures[kind] = 0 if is_fine else failures[kind] + 1
                has_failed = failures[kind] >= probe.get("failureThreshold", 3)
                if kind == "readinessProbe":
                    pod.is_ready = is_fine or (pod.is_ready and not has_failed)
                elif has_failed:
                    await self.kill(pod)
                started = started or is_fine
            self._write_hosts()
            now += 1
            await asyncio.sleep(1)

    async def _ask(self, pod: Pod, probe: Json) -> bool:
        assert pod.container is not None
        if "exec" in probe:
            return (await pod.container.execute(*probe["exec"]["command"])).code == 0
        wanted = probe["httpGet"]
        port = pod.port_of(wanted["port"])
        return await is_answered(pod.container, wanted["path"], port, within_s=probe.get("timeoutSeconds", 1))

    def _value_of(self, variable: Json, pod: Pod) -> str:
        if "value" in variable:
            return str(variable["value"])
        match variable["valueFrom"]:
            case {"fieldRef": {"fieldPath": path}}:
                fields = {"metadata.name": pod.name, "metadata.namespace": NAMESPACE, "status.podIP": pod.address}
                return fields[path]
            case {"secretKeyRef": {"name": name, "key": key}}:
                return self._data_of("Secret", name)[key]
            case {"configMapKeyRef": {"name": name, "key": key}}:
                return self._data_of("ConfigMap", name)[key]
        raise AssertionError(variable)

    # --- volumes --------------------------------------------------------------------------------------------

    def _make_volumes(self, pod: Pod, workload: Json) -> None:
        for volume in pod.spec.get("volumes", []):
            place = pod.folder / volume["name"]
            if files := self._files_of(volume):
                publish(place, files, *_owner_of(pod))
            elif "emptyDir" in volume:
                _make_directory(place, _owner_of(pod)[1])
        for claim in workload["spec"].get("volumeClaimTemplates", []):
            place = self._folder / f"claim-{claim['metadata']['name']}-{pod.name}"
            _make_directory(place, _owner_of(pod)[1])
            (pod.folder / claim["metadata"]["name"]).symlink_to(place)

    def _folder_of(self, pod: Pod, volume: str) -> Path:
        return (pod.folder / volume).resolve()

    def _files_of(self, volume: Json) -> dict[str, str]:
        """Return the files of a volume of ConfigMaps and Secrets; nothing for other volumes."""
        sources = volume.get("projected", {}).get("sources", [])
        if "configMap" in volume or "secret" in volume:
            sources = [volume]
        files: dict[str, str] = {}
        for source in sources:
            is_secret = "secret" in source
            reference = source["secret" if is_secret else "configMap"]
            name = reference.get("name") or reference["secretName"]
            data = self._data_of("Secret" if is_secret else "ConfigMap", name)
            items = reference.get("items") or [{"key": key, "path": key} for key in data]
            files |= {each["path"]: data[each["key"]] for each in items}
        return files

    def _data_of(self, kind: str, name: str) -> dict[str, str]:
        found = self._objects[kind, name]
        data = {key: str(value) for key, value in (found.get("data") or {}).items()}
        if kind == "Secret":
            data = {key: base64.b64decode(value).decode() for key, value in data.items()}
            data |= found.get("stringData") or {}
        return data

    # --- services -------------------------------------------------------------------------------------------

    def _write_hosts(self) -> None:
        """Write the names of services and pods; the file stays the same one, which is mounted."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._services.items())]
        for service in self._list("Service"):
            if service["spec"].get("clusterIP") != "None":
                continue
            name, shows_all = service["metadata"]["name"], service["spec"].get("publishNotReadyAddresses", False)
            for pod in self.pods_of(name):
                if shows_all or pod.is_ready:
                    lines.append(
                        f"{pod.address} {name} {pod.name}.{name} {pod.name}.{name}.{NAMESPACE}.svc.cluster.local"
                    )
        text = "\n".join(lines) + "\n"
        if self._hosts.read_text(encoding="utf-8") != text:
            self._hosts.write_text(text, encoding="utf-8")

    async def _open_service(self, service: Json, address: str) -> None:
        name = service["metadata"]["name"]
        turns = itertools.count()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str | int) -> None:
            ready = [pod for pod in self.pods_of(name) if pod.is_ready]
            if ready:
                pod = ready[next(turns) % len(ready)]
                await _connect(reader, writer, pod.address, pod.port_of(target))
            else:
                writer.transport.abort()

        self._network.add_address(address)
        tasks: list[asyncio.Future[None]] = []
        for port in service["spec"]["ports"]:

            def take(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str | int = port["targetPort"]
            ) -> None:
                tasks.append(asyncio.ensure_future(serve(reader, writer, target)))

            server = await asyncio.start_server(take, address, port["port"])
            self._stack.push_async_callback(_close, server, tasks)
        self._services[name] = address


async def _close(server: asyncio.Server, tasks: list[asyncio.Future[None]]) -> None:
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Pass bytes on in both directions until one side ends."""
    other: asyncio.StreamWriter | None = None
    try:
        source, other = await asyncio.open_connection(host, port)
        ways = [asyncio.ensure_future(_copy(reader, other)), asyncio.ensure_future(_copy(source, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    except OSError:
        pass
    finally:
        for each in (writer, other):
            if each is not None:
                each.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


def _owner_of(pod: Pod) -> tuple[int, int]:
    """Return the user and the group of files of ConfigMaps and Secrets."""
    return 0, int(pod.spec.get("securityContext", {}).get("fsGroup", 0))


def _rights_of(pod: Pod) -> list[str]:
    """Return what a container may do, as options of podman."""
    of_pod, of_container = pod.spec.get("securityContext", {}), pod.container_spec.get("securityContext", {})
    context = {**of_pod, **of_container}
    assert context["runAsNonRoot"]
    options = [f"--user={context['runAsUser']}:{context['runAsGroup']}"]
    options += [f"--group-add={context['fsGroup']}"] if "fsGroup" in context else []
    options += [f"--cap-drop={name.lower()}" for name in context.get("capabilities", {}).get("drop", [])]
    options += ["--read-only", "--read-only-tmpfs=false"] if context.get("readOnlyRootFilesystem") else []
    options += ["--security-opt=no-new-privileges"] if context.get("allowPrivilegeEscalation") is False else []
    return options


def _make_directory(place: Path, group: int) -> None:
    """Make an empty directory of root's that a group may use, unless it is there."""
    if not place.exists():
        place.mkdir()
        os.chown(place, 0, group)
        place.chmod(0o2777)


def publish(folder: Path, files: Mapping[str, str], user: int = 0, group: int = 0) -> None:
    """Write files as the kubelet does those of a ConfigMap: a link is exchanged, and with it all of them.

    Source: `AtomicWriter` of Kubernetes.
    """
    folder.mkdir(exist_ok=True)
    old = (folder / "..data").resolve() if (folder / "..data").is_symlink() else None
    data = folder / f"..{int.from_bytes(os.urandom(4), 'big')}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text, encoding="utf-8")
        os.chown(data / name, user, group)
        (data / name).chmod(0o440 if group else 0o644)
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(data.name)
    (folder / "..data_tmp").rename(folder / "..data")
    if old is not None:
        shutil.rmtree(old)


@asynccontextmanager
async def running(objects: Sequence[Json], network: Network, folder: Path) -> AsyncIterator[Cluster]:
    """Run what manifests say, and end it."""
    cluster = Cluster(objects, network, folder)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()
