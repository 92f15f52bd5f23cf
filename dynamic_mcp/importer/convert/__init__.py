"""From a foreign server to an entry of our config, and from many entries to one config."""
