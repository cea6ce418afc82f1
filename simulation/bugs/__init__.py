"""Planted bugs: one-line mutations of the product, which the checks must find.

A mutation that survives shows a check or an operation that is missing. `mutation` is the mechanism,
`planted_bug` the declaration, `catalogue` has all bugs by name, and `search` runs seeds with one
until a check finds it: `python -m simulation.bugs`.
"""
