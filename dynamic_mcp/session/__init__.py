"""The sessions of clients: JSON-RPC, and the requests of each client."""
