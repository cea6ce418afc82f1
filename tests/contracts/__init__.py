"""One behaviour suite per port, run over every implementation.

To test an implementation, add it to the fixtures in `conftest.py`. Each suite looks at
what is stored through a back door, such as a connection of its own, so that a store
cannot vouch for itself.
"""
