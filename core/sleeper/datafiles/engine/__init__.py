"""DataFusion, and the workarounds for its and Arrow's defects.

| module | workaround for |
|---|---|
| `errors` | exceptions without types |
| `scan` | tables of one path; missing files as empty tables |
| `parquet_footer` | footers that abort the process; footers of some row groups |
| `expression` | pruning by long lists; recursion; extremes of floats that depend on row order |

Each module cites the upstream issue. `tests/unit/datafiles/test_engine_canaries.py` fails when
upstream has corrected a defect.
"""
