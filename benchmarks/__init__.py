"""Benchmarks: how fast, in how much memory, beside what else does the same work.

`python -m benchmarks [NAME...] [--rows N]`. Each module measures one thing and gives a
`Result`: it runs ours, its anchor and the peers (`peers/`) by turns, each run in a fresh
process, checks what came out, and only then has figures, each the median of its runs. The
table, the JSON and the pictures are written from results and never by hand.
"""
