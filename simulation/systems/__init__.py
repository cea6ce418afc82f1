"""What stands outside of the instance, or is made for it: a receiver of exports, records of checks.

A *system* is one of the product's (stash, export queues, adjunct stores, adapters). The workload of
a system is `simulation.workload.<system>`, its rule is `simulation.checks.<system>`.
"""
