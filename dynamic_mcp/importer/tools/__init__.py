"""What is known of each AI tool: where its files are, what it reads there, what is odd about it."""
