"""An iterator and a compaction strategy: see docs/iterators.md."""
