"""Inputs, from which stores are filled."""
