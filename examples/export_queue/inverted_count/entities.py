"""Counts of entities. A change of a count and its export are one transaction."""

import pyarrow as pa

import sleeper

TABLE = "entities"
QUEUE = "ici"
SCHEMA = {
    "rowKeyFields": [{"name": "entity", "type": "StringType"}],
    "valueFields": [{"name": "count", "type": "LongType"}],
}


class Entities:
    """The counts of entities."""

    def __init__(self, instance: sleeper.Instance) -> None:
        self._table = instance.table(TABLE)

    @classmethod
    def create(cls, instance: sleeper.Instance, exporter: str, **settings: object) -> "Entities":
        """Creates the table and its export queue. `settings` are those of the queue."""
        instance.create_table(TABLE, SCHEMA, {"sleeper.table.rows": "latest"})
        instance.create_export_queue(
            QUEUE,
            TABLE,
            on="transaction",
            keys="entity",
            values=["old_count:LongType", "new_count:LongType"],
            exporter=exporter,
            **settings,
        )
        return cls(instance)

    def add(self, entity: str, number: int) -> int:
        """Adds a number to the count of an entity, which begins at 0. Returns the count."""

        def update(transaction: sleeper.Transaction) -> int:
            old = self._read(transaction, entity)
            new = (old or 0) + number
            transaction.ingest(pa.table({"entity": [entity], "count": [new]}))
            # Either both the count and the export are committed, or none of them.
            transaction.export(QUEUE, entity, (old, new))
            return new

        return self._table.transact(update, tries=100)

    def remove(self, entity: str) -> None:
        """Removes an entity."""

        def remove(transaction: sleeper.Transaction) -> None:
            old = self._read(transaction, entity)
            if old is not None:
                transaction.delete(keys=[[entity]])
                transaction.export(QUEUE, entity, (old, None))

        self._table.transact(remove, tries=100)

    def counts(self) -> dict[str, int]:
        """Returns the counts of all entities."""
        rows = self._table.query().to_arrow()
        return dict(zip(rows["entity"].to_pylist(), rows["count"].to_pylist(), strict=True))

    @staticmethod
    def _read(transaction: sleeper.Transaction, entity: str) -> int | None:
        rows = transaction.query(keys=[[entity]]).to_arrow()
        return rows["count"][0].as_py() if rows.num_rows else None
