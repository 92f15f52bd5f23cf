"""Programs that are confined: what they may read and write, and which hosts they reach."""
