"""The handlers, imported without changing the logging of the test process."""

import logging

_package = logging.getLogger("sleeper")
_before = (_package.level, _package.propagate, list(_package.handlers))

# ruff: noqa: E402, F401
from lambdas.add_table.handler import handler as add_table
from lambdas.advance_stashes.handler import handler as advance_stashes
from lambdas.athena_metadata.handler import handler as athena_metadata
from lambdas.athena_records.handler import handler as athena_records
from lambdas.collect_garbage.handler import handler as collect_garbage
from lambdas.collect_orphans.handler import handler as collect_orphans
from lambdas.commit_transactions.handler import handler as commit_transactions
from lambdas.create_compaction_jobs.handler import handler as create_compaction_jobs
from lambdas.create_ingest_batches.handler import handler as create_ingest_batches
from lambdas.delete_rows.handler import handler as delete_rows
from lambdas.drain_exports.handler import handler as drain_exports
from lambdas.fan_out_tables.handler import handler as fan_out_tables
from lambdas.find_partitions_to_split.handler import handler as find_partitions_to_split
from lambdas.follow_exports.handler import handler as follow_exports
from lambdas.handle_websocket.handler import handler as handle_websocket
from lambdas.plan_query.handler import handler as plan_query
from lambdas.publish_tables.handler import handler as publish_tables
from lambdas.receive_batch_files.handler import handler as receive_batch_files
from lambdas.report_table_metrics.handler import handler as report_table_metrics
from lambdas.run_leaf_query.handler import handler as run_leaf_query
from lambdas.serve_http.handler import handler as serve_http
from lambdas.split_partition.handler import handler as split_partition
from lambdas.start_adapters.handler import handler as start_adapters
from lambdas.start_bulk_import.handler import handler as start_bulk_import
from lambdas.start_tasks.handler import handler as start_tasks
from lambdas.sweep_instance.handler import handler as sweep_instance
from lambdas.take_state_snapshots.handler import handler as take_state_snapshots
from lambdas.watch_bulk_imports.handler import handler as watch_bulk_imports
from lambdas.watch_instance.handler import handler as watch_instance

_package.setLevel(_before[0])
_package.propagate = _before[1]
_package.handlers = _before[2]
