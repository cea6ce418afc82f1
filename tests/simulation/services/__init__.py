"""Tests of the simulated services of AWS."""
