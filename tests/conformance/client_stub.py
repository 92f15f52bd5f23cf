"""What a conformance suite starts as a client: `client_stub.py PORT URL` has the process of the test be that client.

It tells the test, which listens at the port, the URL and what the suite says in the environment, and ends as it is
told. It imports little, so that a scenario does not pay for an interpreter that loads a client.
"""

from __future__ import annotations

import json
import os
import socket
import sys

if __name__ == "__main__":
    facts = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(json.dumps({"url": sys.argv[2], "facts": facts}).encode() + b"\n")
        with connection.makefile("rb") as answer:
            outcome = json.loads(answer.read())
    sys.stderr.write(outcome["words"])
    sys.exit(0 if outcome["went_well"] else 1)
