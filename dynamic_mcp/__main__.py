"""`python -m dynamic_mcp` is `dynamic-mcp`."""

from dynamic_mcp.cli.main import main

if __name__ == "__main__":
    main()
