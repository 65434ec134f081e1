"""What the parent and its workers say to each other.

Imports the standard library and msgspec, nothing else, so that either side can be read, tested and
simulated without the other.
"""
