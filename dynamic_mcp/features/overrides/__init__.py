"""Changes how tools are shown to clients, and maps calls back to the server's own names and arguments."""
