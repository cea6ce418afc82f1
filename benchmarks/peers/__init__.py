"""Peers that do the same work, each in a subprocess with the peers' virtual environment.

A module here is a peer: functions for `benchmarks.measuring` that run one job each. The caller
checks the results. `environment` creates the virtual environment from the pins in
`requirements.txt`. It does not contain the product, so peers do not import it.
"""
