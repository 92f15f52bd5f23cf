"""The facts about each AI tool: its files, their formats, and its quirks."""
