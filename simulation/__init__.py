"""Simulates a whole instance: real code in a seeded world, with faults and checks."""
