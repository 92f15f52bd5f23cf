"""Creates packs for review by scanning a program's documentation. Nothing here runs when a config is served."""
