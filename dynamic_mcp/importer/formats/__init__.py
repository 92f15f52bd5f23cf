"""Reading and editing foreign files: languages, what a tool's servers look like in them, whose a file is."""
