"""User code: iterators, strategies, exporters and extractors, in wheels in an instance's `code/`.

A *wheel* is checked when it is added, without running any of it. Its entry points register
*names*, in the groups `sleeper.iterators`, `sleeper.compaction_strategies`, `sleeper.exporters` and
`sleeper.extractors`. Properties, queries and definitions can only contain registered names. A
process unpacks and imports code when it first needs an object by its name.

Invariants: no text from outside reaches an import; a name identifies one object, regardless of the
order in which wheels were added; listing names runs no user code and loads no data library. There
is no sandbox: code in a wheel has all permissions of the instance.
"""
