"""A soak: processes of the product on real servers, faults, and a model that is compared.

A *world* is an instance with its servers and background processes: a folder, or AWS's services.
A *client* is a process that runs commands of the command line. An *operation* is one command, with
its effect on the *model*, which knows the rows that each table may have. A *fault* is a killed,
stopped or misdated process, a restarted server, or a damaged connection. A *calm* is a time
without faults: queues drain, and tables are compared with the model.

    python -m simulation.soak --minutes 5 --servers local,aws --seed 1

The seed determines operations, faults and their targets. The processes are real, so that their
timing differs between runs; the journal, JSON lines, has what was done.
"""
