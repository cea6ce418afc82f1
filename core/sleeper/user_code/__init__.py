"""User code: iterators and compaction strategies that come as wheels in an instance's `code/`.

A *wheel* is checked when it is added, without running any of it. Its entry points register
*names*, in the groups `sleeper.iterators` and `sleeper.compaction_strategies`. What a
property or a query may say is a registered name and nothing else. Code is unpacked and
imported when a process first needs an object by its name.

What must hold: no text from outside ever reaches an import; a name stands for one object,
whatever order wheels were added in; listing names runs no user code and loads no data
library. There is no sandbox: whoever may add a wheel may run anything that the instance may.
"""
