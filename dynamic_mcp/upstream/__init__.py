"""Links to the foreign servers: one live connection each, over stdio now and HTTP later."""
