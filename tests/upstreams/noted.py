"""Runs a server that is a file of Python, and keeps in a file when it starts, or what it reads.

noted.py starts|reads FILE SERVER [ARGUMENT…]
"""

import runpy
import subprocess
import sys
from pathlib import Path

what, file, *server = sys.argv[1:]
with Path(file).open("ab") as notes:
    if what == "starts":
        notes.write(b"started\n")
        notes.close()
        sys.argv = server
        sys.path.insert(0, str(Path(server[0]).parent))
        runpy.run_path(server[0], run_name="__main__")
    else:
        process = subprocess.Popen([sys.executable, *server], stdin=subprocess.PIPE)
        assert process.stdin is not None
        for line in sys.stdin.buffer:
            notes.write(line)
            notes.flush()
            process.stdin.write(line)
            process.stdin.flush()
        process.stdin.close()
        sys.exit(process.wait())
