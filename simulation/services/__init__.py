"""Simulates AWS services in memory, so that the adapters of Sleeper run on them unchanged.

The *world* of the services has `calls`, which carry out each effect (see `simulation.calls`), and
`sleep`, which passes virtual time. `Services(calls, sleep)` holds the state of all services of one
account:

- `client(name)` returns a client with the methods of boto3's that Sleeper uses.
- `install()` is a context in which Sleeper's own code gets these clients, and buckets of `s3`.

Latencies are those of `calls`. Retries are those of boto3 and of the object store, in virtual time.
Nothing here has a thread, a clock or a random source: what AWS leaves open, such as a late index, a
second delivery or an unprocessed item, is decided by `calls.choose`.
"""
