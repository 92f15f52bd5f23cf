"""Prints the bill of materials of the image that this runs in, as CycloneDX 1.6, and checks it against the schema.

Python's packages are what CycloneDX's own program finds installed. Debian's are what dpkg lists, and npm's are those
that come with Node. `python sbom.py ENVIRONMENT [REQUIREMENTS FOLDER]`: the last two are those of the programs of the
full image.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

Component = dict[str, str]


def main(environment: str, requirements: str = "", programs: str = "") -> int:
    """Print it, and return the exit code."""
    document = json.loads(_run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible",
                               "--spec-version", "1.6", f"{environment}/bin/python"))  # fmt: skip
    more = [*_list_debian()]
    if requirements:
        more += [*_list_requirements(Path(requirements)), *_list_npm(Path(programs))]
    unique = {each["bom-ref"]: each for each in more}
    document["components"] += [unique[name] for name in sorted(unique)]
    text = json.dumps(document, indent=1, sort_keys=True)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        print(f"error: no valid bill of materials: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


def _list_debian() -> Iterator[Component]:
    release = dict(
        re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    )
    distro = f"{release['ID']}-{release.get('VERSION_ID', 'unstable')}"
    for line in _run("dpkg-query", "-W", "-f", r"${Package}\t${Version}\t${Architecture}\n").splitlines():
        name, version, architecture = line.split("\t")
        yield _component(
            "deb", f"{release['ID']}/{quote(name)}", name, version, f"?arch={architecture}&distro={distro}"
        )


def _list_requirements(file: Path) -> Iterator[Component]:
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(encoding="utf-8"), re.MULTILINE):
        yield _component("pypi", name, name, version)


def _list_npm(folder: Path) -> Iterator[Component]:
    for file in folder.rglob("node_modules/**/package.json"):
        package = json.loads(file.read_text(encoding="utf-8"))
        if "name" in package and "version" in package:  # others only mark a folder
            yield _component("npm", quote(package["name"]), package["name"], package["version"])


def _component(kind: str, path: str, name: str, version: str, more: str = "") -> Component:
    purl = f"pkg:{kind}/{path}@{quote(version)}{more}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
