"""Federated queries of Athena: answers requests with schemas, splits and rows.

A *connector* serves one instance. It has two schemas: the rows of `sleeper` have passed through
the table's filters, aggregations and iterator; the rows of `sleeper_raw`, which the properties
can hide, are those of the files. Athena requests a table's columns, its *layout* (whether it has
rows for the query) and its *splits*. A split is a region of one or more leaves at one version,
under a hold; Athena reads splits in parallel. A response contains the rows of a split, or names
the *blocks* that were *spilled* to a bucket.

Invariants: all splits of a query are of one version. Two reads of a split return the same rows,
and spill under different keys. A read returns exactly the rows that meet the constraints. Memory
is bounded by the engine's pool and one block.

The source of Athena's query federation SDK is the only description of the protocol
(awslabs/aws-athena-query-federation, `athena-federation-sdk`: `serde`, `data/S3BlockSpiller`,
`security/AesGcmBlockCrypto`, and the JSON files of its tests); docs/design/0012-athena.md
cites it fact by fact.
"""
