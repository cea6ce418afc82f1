"""An instance at scale, by simulation: `python -m simulation.scale`.

A discrete-event simulation of thousands of tables on the limits of AWS. The *load* is a model
(`load`). The *rules* are the product's: periods, queues, functions and tasks of its templates, its
properties, planner, backoffs and constants (`rules`). The *work* of each message is measured on
real code (`measure`), and the limits are those of AWS (`limits`).
"""
