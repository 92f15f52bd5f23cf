"""What is known of each AI tool: where its files are, how they are read, and what is unusual about them."""
