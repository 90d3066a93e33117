"""Random bytes for everything that reads foreign text; see targets.py."""
