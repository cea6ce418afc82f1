"""An AWS instance in a simulated world: its services, functions, tasks and clients.

Each process is on a machine of its own, so clocks differ. A function's container or a task is a
process that may die at any request.
"""
