"""Histories that found a bug once, with what they found."""

from simulation.plan import Plan

PINNED: dict[str, Plan] = {}
"""Plans by what each found in the product. A plan that `--shrink` wrote is pasted as its fields."""
