"""The registries of npm, PyPI and images on loopback, with answers as theirs, or anything else."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.features.provenance.signing import (
    Authority,
    Json,
    SigningKey,
    bundle,
    npm_attestations,
    pypi_provenance,
    slsa,
    state,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SLSA = "https://slsa.dev/provenance/v1"
PUBLISHED = "https://docs.pypi.org/attestations/publish/v1"


def days_ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat().replace("+00:00", "Z")


def integrity_of(text: str) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(text.encode()).digest()).decode()}"


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that go away."""

    def handle_error(self, *_: object) -> None:
        pass


class FakePackages:
    """Packages by their versions, oldest first. `answers` has what is answered at a path, whatever else is there."""

    def __init__(self) -> None:
        self.authority = Authority()
        self.key = SigningKey()
        self.answers: dict[str, tuple[int, bytes, Mapping[str, str]]] = {}
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.released = threading.Event()
        self.delayed: set[str] = set()
        self.token = ""  # for images, if not empty
        self._packuments: dict[str, Json] = {}
        self._files: dict[str, list[Json]] = {}
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which npm, uv and pip ask this one."""
        return {
            "npm_config_registry": self.url,
            "npm_config_userconfig": "/nonexistent/npmrc",
            "UV_INDEX_URL": f"{self.url}/simple",
            "PIP_INDEX_URL": f"{self.url}/simple",
            "npm_config_offline": "false",
            "UV_OFFLINE": "",
            "PIP_NO_INDEX": "",
        }

    def answer(self, path: str, value: Json, status: int = 200, **headers: str) -> None:
        """Have a path answered with JSON, or with bytes."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answers[path] = (status, body, headers)

    def publish_npm(
        self,
        name: str,
        version: str,
        *,
        days: float = 100,
        publisher: str = "ada",
        maintainers: tuple[str, ...] = ("ada",),
        is_signed: bool = True,
        is_by_workflow: bool = False,
        provenance: Json | None = None,
        is_attested: bool = False,
        repository: str = "https://github.com/acme/weather",
        **manifest: Json,
    ) -> None:
        """Publish a version; with `is_attested`, with provenance of the repository, or with this one."""
        integrity = integrity_of(f"{name}@{version}")
        distribution: Json = {"integrity": integrity, "tarball": f"{self.url}/{name}/-/x.tgz"}
        if is_signed:
            distribution["signatures"] = [self.key.sign(f"{name}@{version}:{integrity}")]
        if is_attested or provenance is not None:
            path = f"/-/npm/v1/attestations/{name}@{version}"
            distribution["attestations"] = {"url": f"{self.url}{path}", "provenance": {"predicateType": SLSA}}
            self.answer(path, self.attest(name, version, repository) if provenance is None else provenance)
        packument = self._packuments.setdefault(
            name, {"name": name, "versions": {}, "time": {"created": days_ago(days)}, "dist-tags": {}}
        )
        packument["time"][version] = days_ago(days)
        packument["dist-tags"]["latest"] = version
        packument["versions"][version] = {
            "name": name,
            "version": version,
            "dist": distribution,
            "_npmUser": {
                "name": "GitHub Actions" if is_by_workflow else publisher,
                "email": "x@example.com",
                **({"trustedPublisher": {"id": "github", "oidcConfigId": "oidc:1"}} if is_by_workflow else {}),
            },
            "maintainers": [{"name": each, "email": "x@example.com"} for each in maintainers],
            **manifest,
        }

    def attest(self, name: str, version: str, repository: str = "https://github.com/acme/weather") -> Json:
        """Return an attestation of npm that holds."""
        digest = hashlib.sha512(f"{name}@{version}".encode()).hexdigest()
        statement = state(f"pkg:npm/{name}@{version}", {"sha512": digest}, SLSA, slsa(repository))
        return npm_attestations([bundle(self.authority.signer(repository=repository), statement)])

    def publish_pypi(
        self,
        name: str,
        version: str,
        *,
        days: float = 100,
        is_attested: bool = False,
        repository: str = "acme/weather",
        provenance: Json | None = None,
        yanked: bool | str = False,
    ) -> None:
        """Publish a version as one wheel."""
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        digest = hashlib.sha256(file.encode()).hexdigest()
        path = f"/integrity/{name}/{version}/{file}/provenance"
        if is_attested or provenance is not None:
            signer = self.authority.signer(repository=f"https://github.com/{repository}")
            statement = state(file, {"sha256": digest}, PUBLISHED, None)
            made = pypi_provenance(signer, statement, repository=repository)
            self.answer(path, made if provenance is None else provenance)
        self._files.setdefault(name, []).append(
            {
                "filename": file,
                "url": f"{self.url}/files/{file}",
                "hashes": {"sha256": digest},
                "upload-time": days_ago(days),
                "yanked": yanked,
                "provenance": f"{self.url}{path}" if is_attested or provenance is not None else None,
            }
        )

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def find(self, path: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Return the answer at a path."""
        if path == "/release":
            self.released.set()
        if path in self.answers:
            return self.answers[path]
        if path == "/-/npm/v1/keys":
            return 200, json.dumps({"keys": [self.key.publish()]}).encode(), {}
        if path.startswith("/simple/"):
            files = self._files.get(path.removeprefix("/simple/").strip("/"))
            found = None if files is None else {"meta": {"api-version": "1.3"}, "files": files}
        else:
            found = self._packuments.get(path[1:])
        return (404, b"{}", {}) if found is None else (200, json.dumps(found).encode(), {})

    def is_allowed(self, authorization: str | None) -> bool:
        return authorization == f"Bearer {self.token}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(self.path.partition("?")[0])
                fake.requests.append(f"{self.command} {unquote(self.path)}")
                fake.headers.append({name.lower(): value for name, value in self.headers.items()})
                if path in fake.delayed:
                    fake.released.wait()
                status, body, headers = fake.find(path)
                if fake.token and path.startswith("/v2/") and not fake.is_allowed(self.headers["authorization"]):
                    challenge = f'Bearer realm="{fake.url}/token",service="fake"'
                    status, body, headers = 401, b"{}", {"www-authenticate": challenge}
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name.replace("_", "-"), value)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    if self.command == "GET":
                        self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name that the library looks for

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def fake_packages() -> Iterator[FakePackages]:
    """Run the registries on loopback."""
    fake = FakePackages()
    try:
        yield fake
    finally:
        fake.close()
