"""Athena's federated queries: requests of its protocol in, schemas, splits and rows out.

A *connector* answers for one instance. Athena asks it for schemas, which are two: `sleeper`,
whose rows passed through the table's filters, aggregations and iterator, and, unless the
properties hide it, `sleeper_raw`, whose rows are those of the files as they lie there. Then
it asks for a table's columns, for its *layout* (whether there is anything to read) and for
its *splits*. A split is a region of one leaf at one version, which a hold keeps readable;
Athena reads splits in parallel. The rows of a split come back in the answer, or, where there
are many, as *blocks* that are *spilled* to a bucket and named in the answer.

What must hold: all splits of a query are of one version. A split read twice gives the same
rows, and each run spills to names of its own. Rows that do not meet the constraints of the
request are left out, all others are there. Memory is bounded by the engine's pool and one
block.

The protocol is that of Athena's query federation SDK, whose source is its only description
(awslabs/aws-athena-query-federation, `athena-federation-sdk`: `serde`, `data/S3BlockSpiller`,
`security/AesGcmBlockCrypto`, and the JSON files of its tests); docs/design/0012-athena.md
says which facts were taken from where.
"""
