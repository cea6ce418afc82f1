"""Output compared with approved text.

The approved text stands in `expected/`. After a wanted change, run the tests with
`APPROVE=1` in the environment, and read the difference before committing it.
"""
