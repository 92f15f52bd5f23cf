"""Read and edit foreign files: their languages, the shape of a tool's servers, and which tool a file belongs to."""
