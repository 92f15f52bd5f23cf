"""nginx and Caddy as child processes, with the configs of `examples/serving` but for their addresses and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.journeys.remote_server import STARTS_WITHIN_S, free_port, wait_until_listening

EXAMPLES = Path(__file__).parent.parent / "examples" / "serving"
COMPOSE_SITE = EXAMPLES.parent.parent / "deploy" / "compose" / "caddy" / "Caddyfile"
UPSTREAM = "127.0.0.1:8808"
SOCKET = "/run/dynamic-mcp/http.sock"


# What each of them needs on the machine; nginx has sites with TLS.
NEEDED = {"nginx": ("nginx", "openssl"), "caddy": ("caddy",), "haproxy": ("haproxy",)}


@dataclass(frozen=True)
class Site:
    """Where a reverse proxy serves; `headers` make a request one of its clients'."""

    origin: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Return what clients are given."""
        return f"{self.origin}{self.path}/mcp"


# Serves what is at this address, HOST:PORT or the path of a Unix socket, with files of its own in this folder.
Serve = Callable[[Path, str], AbstractAsyncContextManager[Site]]


@contextlib.asynccontextmanager
async def nginx(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run nginx with a site of its own, which asks for a password."""
    passwords = folder / "htpasswd"
    passwords.write_text("alice:{PLAIN}example\n")
    replaced = {"/etc/nginx/dynamic-mcp.htpasswd": str(passwords)}
    async with _nginx_site("nginx.conf", folder, address, replaced, _WITH_PASSWORD) as site:
        yield site


@contextlib.asynccontextmanager
async def nginx_bearer(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run nginx with a site of its own, which passes on tokens."""
    async with _nginx_site("nginx-bearer.conf", folder, address) as site:
        yield site


@contextlib.asynccontextmanager
async def nginx_login(folder: Path, address: str, oauth2_proxy: str) -> AsyncIterator[Site]:
    """Run nginx with a site of its own, where people log in with what is at another address."""
    replaced = {"http://127.0.0.1:4180;": f"http://{oauth2_proxy};"}
    async with _nginx_site("nginx-login.conf", folder, address, replaced) as site:
        yield site


@contextlib.asynccontextmanager
async def nginx_path(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run nginx with a path of a site."""
    port = free_port()
    locations = _read_example("nginx-path.conf", {SOCKET: address})
    site = f"server {{\n listen 127.0.0.1:{port};\n{locations}}}\n"
    async with running_nginx(folder, site, port):
        yield Site(f"http://127.0.0.1:{port}", "/tools", {"host": f"www.example.com:{port}"})


@contextlib.asynccontextmanager
async def nginx_round_robin(folder: Path, addresses: Sequence[str]) -> AsyncIterator[int]:
    """Run nginx that sends each request to the next of these addresses; hand out its port."""
    port = free_port()
    servers = "".join(f"server {address};\n" for address in addresses)
    site = (
        f"upstream replicas {{\n{servers}keepalive 32;\n}}\nserver {{\nlisten 127.0.0.1:{port};\n"
        "client_max_body_size 64m;\nlocation / {\nproxy_pass http://replicas;\nproxy_http_version 1.1;\n"
        'proxy_set_header Connection "";\nproxy_set_header Host $http_host;\nproxy_buffering off;\n'
        "proxy_request_buffering off;\nproxy_read_timeout 60s;\n}\n}\n"
    )
    async with running_nginx(folder, site, port):
        yield port


@contextlib.asynccontextmanager
async def nginx_pinned(folder: Path, addresses: Sequence[str]) -> AsyncIterator[int]:
    """Run nginx that sends each request to the replica that it names, without TLS; hand out its port."""
    port = free_port()
    own = {
        **dict(zip(REPLICAS, addresses, strict=True)),
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port};",
        "ssl_certificate /etc/ssl/mcp.example.com.pem;": "",
        "ssl_certificate_key /etc/ssl/mcp.example.com.key;": "",
    }
    async with running_nginx(folder, _read_example("nginx-replicas.conf", own), port):
        yield port


@contextlib.asynccontextmanager
async def haproxy_pinned(folder: Path, addresses: Sequence[str]) -> AsyncIterator[int]:
    """Run HAProxy that sends each request to the replica that it names, without TLS; hand out its port."""
    async with haproxy_replicas(folder, *addresses, host="127.0.0.1") as site:
        yield int(site.origin.rpartition(":")[2])


@contextlib.asynccontextmanager
async def caddy(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run Caddy with a site of its own, which asks for a password; without TLS, for which it would need a CA."""
    port = free_port()
    site = _read_example(
        "Caddyfile",
        {"\nmcp.example.com {": f"\nhttp://mcp.example.com:{port} {{\nbind 127.0.0.1\n", UPSTREAM: address},
    )
    async with _running_caddy(folder, site, port):
        host = {"host": f"mcp.example.com:{port}"}
        yield Site(f"http://127.0.0.1:{port}", "", {**_WITH_PASSWORD, **host})


@contextlib.asynccontextmanager
async def caddy_bearer(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run Caddy with a site of its own, which passes on tokens; without TLS, for which it would need a CA."""
    port = free_port()
    site = _read_example(
        "Caddyfile.bearer",
        {"\nmcp.example.com {": f"\nhttp://mcp.example.com:{port} {{\nbind 127.0.0.1\n", UPSTREAM: address},
    )
    async with _running_caddy(folder, site, port):
        yield Site(f"http://127.0.0.1:{port}", "", {"host": f"mcp.example.com:{port}"})


@contextlib.asynccontextmanager
async def caddy_login(folder: Path, address: str, oauth2_proxy: str) -> AsyncIterator[Site]:
    """Run Caddy as in the compose file, where people log in with what is at another address; without TLS."""
    port = free_port()
    site = COMPOSE_SITE.read_text(encoding="utf-8")
    for old, new in {
        "{$DOMAIN} {": f"http://mcp.example.com:{port} {{\nbind 127.0.0.1\n",
        "oauth2-proxy:4180": oauth2_proxy,
        "dynamic-mcp:8808": address,
    }.items():
        assert old in site
        site = site.replace(old, new)
    async with _running_caddy(folder, site, port):
        yield Site(f"http://127.0.0.1:{port}", "", {"host": f"mcp.example.com:{port}"})


@contextlib.asynccontextmanager
async def caddy_path(folder: Path, address: str) -> AsyncIterator[Site]:
    """Run Caddy with a path of a site."""
    port = free_port()
    site = _read_example(
        "Caddyfile.path",
        {"\nwww.example.com {": f"\nhttp://www.example.com:{port} {{\nbind 127.0.0.1\n", SOCKET: address},
    )
    async with _running_caddy(folder, site, port):
        yield Site(f"http://127.0.0.1:{port}", "/tools", {"host": f"www.example.com:{port}"})


# The addresses of the two replicas in the examples.
REPLICAS = ("10.0.0.1:8808", "10.0.0.2:8808")


@contextlib.asynccontextmanager
async def nginx_replicas(folder: Path, *addresses: str) -> AsyncIterator[Site]:
    """Run nginx with a site of its own in front of two replicas."""
    port = free_port()
    certificate, key = _make_certificate(folder)
    own = {
        **dict(zip(REPLICAS, addresses, strict=True)),
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "/etc/ssl/mcp.example.com.pem": str(certificate),
        "/etc/ssl/mcp.example.com.key": str(key),
    }
    async with running_nginx(folder, _read_example("nginx-replicas.conf", own), port):
        yield Site(f"https://127.0.0.1:{port}", "", _HOST, ssl.create_default_context(cafile=certificate))


@contextlib.asynccontextmanager
async def caddy_replicas(folder: Path, *addresses: str) -> AsyncIterator[Site]:
    """Run Caddy with a site of its own in front of two replicas; without TLS, for which it would need a CA."""
    port = free_port()
    own = {
        **dict(zip(REPLICAS, addresses, strict=True)),
        "\nmcp.example.com {": f"\nhttp://mcp.example.com:{port} {{\nbind 127.0.0.1\n",
    }
    async with _running_caddy(folder, _read_example("Caddyfile.replicas", own), port):
        yield Site(f"http://127.0.0.1:{port}", "", {"host": f"mcp.example.com:{port}"})


@contextlib.asynccontextmanager
async def haproxy_replicas(folder: Path, *addresses: str, host: str = "mcp.example.com") -> AsyncIterator[Site]:
    """Run HAProxy in front of two replicas, which serve this host; without TLS."""
    port = free_port()
    own = {
        "hdr Host mcp.example.com": f"hdr Host {host}",
        **dict(zip(REPLICAS, addresses, strict=True)),
        "bind :443 ssl crt /etc/ssl/mcp.example.com.pem alpn h2,http/1.1": f"bind 127.0.0.1:{port}",
    }
    file = folder / "haproxy.cfg"
    file.write_text(_read_example("haproxy.cfg", own))
    async with _running("haproxy", "-db", "-f", str(file), port=port, folder=folder):
        yield Site(f"http://127.0.0.1:{port}", "", _HOST)


_HOST = {"host": "mcp.example.com"}
_WITH_PASSWORD = {**_HOST, "authorization": "Basic YWxpY2U6ZXhhbXBsZQ=="}  # alice:example


@contextlib.asynccontextmanager
async def _nginx_site(
    name: str,
    folder: Path,
    address: str,
    replaced: Mapping[str, str] = MappingProxyType({}),
    headers: Mapping[str, str] = MappingProxyType(_HOST),
) -> AsyncIterator[Site]:
    port = free_port()
    certificate, key = _make_certificate(folder)
    own = {
        f"server {UPSTREAM};": f"server {address};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "/etc/ssl/mcp.example.com.pem": str(certificate),
        "/etc/ssl/mcp.example.com.key": str(key),
    }
    async with running_nginx(folder, _read_example(name, {**own, **replaced}), port):
        yield Site(f"https://127.0.0.1:{port}", "", headers, ssl.create_default_context(cafile=certificate))


def _read_example(name: str, replaced: Mapping[str, str]) -> str:
    text = (EXAMPLES / name).read_text()
    for old, new in replaced.items():
        assert old in text, f"{name} has no `{old}` any more"
        text = text.replace(old, new)
    return text


@contextlib.asynccontextmanager
async def running_nginx(folder: Path, site: str, port: int) -> AsyncIterator[None]:
    user = "user root;\n" if os.geteuid() == 0 else ""  # it would be one who may not read these files
    temporary = "".join(
        f"{each}_temp_path {folder}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off;\n{user}pid {folder}/nginx.pid;\nerror_log stderr warn;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{site}}}\n"
    )
    async with _running("nginx", "-e", "stderr", "-p", str(folder), "-c", str(file), port=port, folder=folder):
        yield


@contextlib.asynccontextmanager
async def _running_caddy(folder: Path, site: str, port: int) -> AsyncIterator[None]:
    file = folder / "Caddyfile"
    file.write_text("{\nadmin off\n}\n" + site)
    async with _running("caddy", "run", "--adapter", "caddyfile", "--config", str(file), port=port, folder=folder):
        yield


@contextlib.asynccontextmanager
async def _running(*command: str, port: int, folder: Path) -> AsyncIterator[None]:
    """Run a server until the end, with its words shown if something fails."""
    program = find_program(command[0])
    assert program is not None
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "words.log").open("w+b") as words:
        process = await asyncio.create_subprocess_exec(
            program, *command[1:], env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=words, stderr=words
        )
        try:
            async with asyncio.timeout(STARTS_WITHIN_S):
                await wait_until_listening(process, port)
            yield
        except BaseException:
            words.seek(0)
            print(words.read().decode(errors="replace"))
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def skip_without(*programs: str) -> None:
    """Skip the test where one of these servers is not installed."""
    for each in programs:
        if find_program(each) is None:
            pytest.skip(f"{each} is not installed")


def find_program(name: str) -> str | None:
    """Return the path of a server, which may be among the programs of root."""
    return shutil.which(
        name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    )


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ("-subj", "/CN=mcp.example.com", "-addext", "subjectAltName=DNS:mcp.example.com,IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=30
    )
    return certificate, key
