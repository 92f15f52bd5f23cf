"""Our own authorization server: people log in, and clients get tokens of ours."""
