"""The pack of kubectl, with a real kubectl and an API on loopback: what works, and what it must not do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import tool_name
from tests.fakes import Json
from tests.upstream.cli.packs import Place, error_of, output_of, refusal_of

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)

VERBS = ["create", "delete", "get", "list", "patch", "update"]
PODS = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": VERBS}
ANSWERS: dict[str, Json] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [PODS]},
    "/api/v1/namespaces/default/pods/web": {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "-x"}},
        "spec": {"containers": [{"name": "main"}]},
    },
    "/api/v1/namespaces/default/pods/web/log": "started\n",
}


class Cluster:
    """The API of a cluster with one pod, `web`, and the settings of kubectl that lead to it."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    @contextlib.asynccontextmanager
    async def serve(self, place: Place) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            settings = place.folder / ".kube" / "config"
            settings.parent.mkdir()
            settings.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")))
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        self.requests.append(f"{method} {target}")
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        answer = ANSWERS.get(target.partition("?")[0], missing)
        body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        start = f"HTTP/1.1 {404 if answer is missing else 200} x\r\nContent-Type: application/json\r\n"
        writer.write(f"{start}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


def kubeconfig(server: str, command: Path | None = None) -> Json:
    """The settings for a cluster at this address, with a program for the login."""
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command), "interactiveMode": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"exec": login} if command else {}}],
    }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "kubectl")


@pytest.fixture
async def cluster(place: Place) -> AsyncIterator[Cluster]:
    made = Cluster()
    async with made.serve(place):
        yield made


@pytest.mark.full
async def test_a_pod_is_shown_labelled_and_deleted(place: Place, cluster: Cluster) -> None:
    async with place.serve() as client:
        wanted = {"resource": "pods", "names": ["web"], "output": "jsonpath={.metadata.labels.app}"}
        assert await output_of(client, "kubectl_get", wanted) == "-x"
        assert await output_of(client, "kubectl_logs", {"resource": "web", "tail": 5}) == "started\n"
        assert "pods" in await output_of(client, "kubectl_api_resources", {"output": "name"})
        labelled = {"resource": "pod", "name": "web", "labels": ["a=b", "app-"]}
        assert "web" in await output_of(client, "kubectl_label", labelled)
        gone = {"resource": "pod", "names": ["web"], "wait": False}
        assert "deleted" in await output_of(client, "kubectl_delete", gone)

    changes = [each.partition("?")[0] for each in cluster.requests if not each.startswith("GET")]
    assert changes == [f"{method} /api/v1/namespaces/default/pods/web" for method in ("PATCH", "DELETE")]


@pytest.mark.full
async def test_manifests_are_built_without_a_cluster(place: Place) -> None:
    (place.work / "kustomization.yaml").write_text("resources:\n- pod.yaml\nnamePrefix: my-\n")
    (place.work / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n")
    async with place.serve() as client:
        assert "name: my-web" in await output_of(client, "kubectl_kustomize", {"directory": "."})
        assert "Client Version" in await output_of(client, "kubectl_version", {"client": True})


@pytest.mark.full
async def test_the_command_of_exec_is_behind_the_separator(place: Place, cluster: Cluster) -> None:
    async with place.serve() as client:
        await error_of(
            client, "kubectl_exec", {"pod": "web", "command": ["ls", "--kubeconfig=x"], "container": "main"}
        )
        requests = [each for each in cluster.requests if "exec" in each]
        assert requests
        assert all("command=ls&command=--kubeconfig%3Dx" in each for each in requests)
        await error_of(client, "kubectl_exec", {"pod": "--kubeconfig=x", "command": ["ls"]})


# --- dangers -----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_no_tool_takes_a_login_from_a_file_of_a_call(place: Place, cluster: Cluster) -> None:
    (place.work / "login.json").write_text(json.dumps(kubeconfig("https://127.0.0.1:1", place.evil)))
    await asyncio.to_thread(place.run, "--kubeconfig=login.json", "get", "pods")
    assert place.takes_mark()

    async with place.serve() as client:
        for each in library.read_shipped("kubectl").commands:
            tool = tool_name("kubectl", each.name)
            await refusal_of(client, tool, {"kubeconfig": "login.json"})
            for word in each.positionals:
                value = ["--kubeconfig=login.json"] if word.repeatable else "--kubeconfig=login.json"
                needed = {one.name: ["web"] if one.repeatable else "web" for one in each.positionals if one.required}
                await client.call("it", tool, {**needed, word.name: value})
                assert not place.takes_mark(), (tool, word.name)


@pytest.mark.full
@pytest.mark.parametrize(
    "flag",
    [
        *("--as=a", "--as-group=a", "--server=http://127.0.0.1:1", "--token=a", "--user=a", "--cluster=a"),
        *("--context=a", "--insecure-skip-tls-verify=true", "--kuberc=a", "--proxy-url=http://127.0.0.1:1"),
        *("--profile-output=a", "--cache-dir=a"),
    ],
)
def test_kubectl_has_flags_that_no_tool_has(place: Place, flag: str) -> None:
    if "unknown flag" in place.run("version", "--client", flag):
        pytest.skip(f"this kubectl is older than `{flag.partition('=')[0]}`")

    for each in library.read_shipped("kubectl").commands:
        names = {name for one in each.flags for name in (one.name, *one.aliases)}
        assert flag.partition("=")[0] not in names
        assert not any(word.startswith(flag.partition("=")[0]) for word in each.fixed)


@pytest.mark.full
async def test_the_settings_of_a_person_add_no_flags(place: Place, cluster: Cluster) -> None:
    (place.work / "login.json").write_text(json.dumps(kubeconfig("https://127.0.0.1:1", place.evil)))
    chosen = {"name": "kubeconfig", "default": str(place.work / "login.json")}
    preference = {"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference"}
    defaults = [{"command": name, "options": [chosen]} for name in ("get", "describe", "logs")]
    (place.folder / ".kube" / "kuberc").write_text(json.dumps({**preference, "defaults": defaults}))
    await asyncio.to_thread(place.run, "get", "pods", "web")
    if not place.takes_mark():
        pytest.skip("this `kubectl` has no `kuberc`")

    async with place.serve() as client:
        assert await output_of(client, "kubectl_get", {"resource": "pod/web", "output": "name"}) == "pod/web\n"
        await client.call("it", "kubectl_describe", {"resource": "pod/web"})

    assert not place.takes_mark()


@pytest.mark.full
async def test_no_kustomization_runs_a_program(place: Place) -> None:
    chart = {"name": "x", "repo": "https://127.0.0.1:1/", "version": "1", "releaseName": "it"}
    file = place.work / "kustomization.yaml"
    file.write_text(json.dumps({"helmCharts": [chart]}))
    place.run("kustomize", ".", "--enable-helm", f"--helm-command={place.evil}")
    assert place.takes_mark()
    place.make_script("bin/helm")
    place.make_script("bin/git")
    place.environment["PATH"] = f"{place.folder / 'bin'}:{place.environment['PATH']}"

    async with place.serve() as client:
        await error_of(client, "kubectl_kustomize", {"directory": "."})
        assert not place.takes_mark()
        for more in ({"enable_helm": True}, {"helm_command": str(place.evil)}, {"enable_alpha_plugins": True}):
            await refusal_of(client, "kubectl_kustomize", {"directory": ".", **more})


@pytest.mark.full
async def test_git_gets_nothing_for_a_kustomization(place: Place) -> None:
    (place.work / "kustomization.yaml").write_text("resources:\n- git@127.0.0.1:x/y\n")
    assert "not allowed" not in place.run("kustomize", ".", GIT_SSH_COMMAND=str(place.evil))
    assert place.takes_mark()

    async with place.serve({"GIT_SSH_COMMAND": str(place.evil)}, env=["GIT_*"]) as client:
        assert "not allowed" in await error_of(client, "kubectl_kustomize", {"directory": "."})

    assert not place.takes_mark()


@pytest.mark.full
@pytest.mark.parametrize("variable", ["KUBECTL_EXTERNAL_DIFF", "KUBE_EDITOR", "EDITOR"])
async def test_no_program_of_the_environment_is_run(place: Place, cluster: Cluster, variable: str) -> None:
    pod = json.dumps(ANSWERS["/api/v1/namespaces/default/pods/web"])
    (place.work / "pod.json").write_text(pod)
    words = ("diff", "--filename=pod.json") if "DIFF" in variable else ("edit", "pod", "web")
    await asyncio.to_thread(place.run, *words, **{variable: str(place.evil)})
    assert place.takes_mark()

    async with place.serve({variable: str(place.evil)}, env=[variable]) as client:
        for tool, arguments in (("kubectl_diff", {"files": ["pod.json"]}), ("kubectl_diff_text", {"stdin": pod})):
            await client.call("it", tool, arguments)
            assert not place.takes_mark()


@pytest.mark.full
async def test_no_file_outside_of_the_roots_is_read(place: Place, cluster: Cluster) -> None:
    secret = place.folder / "secret"
    secret.write_text("a: [secret text")
    (place.work / "link.yaml").symlink_to(secret)
    (place.work / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n")
    for flag, file in ((f"--filename=pod.yaml,{secret}", secret.name), ("--filename=li*.yaml", "link.yaml")):
        assert f"{file}: error" in await asyncio.to_thread(place.run, "apply", flag)
    (place.work / "template").symlink_to(secret)

    async with place.serve() as client:
        for path in (f"x,{secret}", f'"{secret}"', "li*.yaml", "link.yaml", "../secret", "-", "http://127.0.0.1:1/x"):
            for tool in ("kubectl_apply", "kubectl_diff"):
                await refusal_of(client, tool, {"files": [path]})
        for output in ("jsonpath-file=template", "go-template-file=template", "custom-columns-file=template"):
            await refusal_of(client, "kubectl_get", {"resource": "pods", "output": output})
