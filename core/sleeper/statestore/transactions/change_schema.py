"""The change of a table's schema."""

from dataclasses import dataclass, replace
from typing import ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import whole_region
from sleeper.processing.field_changes import ConvertField, StoredChange, TableShape, table_shape
from sleeper.processing.model import check_table_processing
from sleeper.processing.text import processing_from_json, processing_to_json
from sleeper.schema.model import (
    Field,
    PrimitiveType,
    Schema,
    schema_from_json,
    schema_to_json,
)
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.transactions.check_unchanged import CHANGED, CheckUnchanged
from sleeper.statestore.transactions.compaction_jobs import forget_job
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)


@dataclass(frozen=True, slots=True)
class ChangeSchema(Transaction):
    """Makes the changes, one after the other; all or none.

    The schema applies to versions from this number on. Its fields have new names in the
    processing too. Running compaction jobs lose their files, because they write the previous
    schema. Text becomes JSON only if no row was added, and no iterator may have changed one, since
    it was checked. `id` is the change's: a second use is already done.
    """

    kind: ClassVar[str] = "change_schema"
    subject: ClassVar[Subject] = Subject.TABLE
    changes: tuple[StoredChange, ...]

    def validate(self, fold: Fold) -> Verdict:
        before = _current_shape(fold)
        try:
            after = self.after(before)
        except InvalidRequestError as error:
            return refused(str(error))
        if after.schema == before.schema and after.processing == before.processing:
            return already_done("the schema is unchanged")
        for change in self.changes:
            if isinstance(change, ConvertField) and change.type is PrimitiveType.JSON:
                verdict = _check_text(fold, change, before.schema)
                if verdict is not APPLY:
                    return verdict
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.id)

    def apply(self, fold: Fold) -> None:
        before = _current_shape(fold)
        after = self.after(before)
        number, text = fold.next_number, schema_to_json(after.schema)
        fold.run("INSERT INTO schema_versions VALUES (?, ?)", (number, text))
        if after.processing != before.processing:
            text = processing_to_json(after.processing)
            fold.run("INSERT INTO processing_versions VALUES (?, ?)", (number, text))
        for (job_id,) in fold.rows("SELECT id FROM jobs"):
            forget_job(fold, job_id)

    def after(self, before: TableShape) -> TableShape:
        """Returns the changed schema and processing. InvalidRequestError if it is invalid."""
        latest = before.schema.latest
        # Without the choice of rows, a change does not fail for a field that it renames or drops.
        after = replace(before, schema=replace(before.schema, latest=None))
        for change in self.changes:
            after = change.apply(after)
        if latest is not None and latest.by is not None:
            _check_same(before.schema.field(latest.by), after.schema)
        after = replace(after, schema=replace(after.schema, latest=latest))
        check_table_processing(after.processing, after.schema)
        return after


def _check_text(fold: Fold, change: ConvertField, schema: Schema) -> Verdict:
    """Returns whether the rows of the table are those whose text was checked."""
    if change.checked is None:
        return refused(f"the text of field {change.name!r} is not checked")
    verdict = CheckUnchanged(change.checked, (whole_region(schema),)).validate(fold)
    if verdict is not APPLY or not _had_iterator(fold, change.checked):
        return verdict
    # A compaction changes no row that is read, but its iterator may have written other text.
    written = fold.row(_WRITTEN, (change.checked,))
    return refused(f"{CHANGED} by transaction {written[0]}") if written else APPLY


def _had_iterator(fold: Fold, version: int) -> bool:
    """Returns whether the table has an iterator, or had one since the version."""
    texts = fold.rows(_PROCESSING_SINCE, (version,))
    return any(processing_from_json(text).iterator is not None for (text,) in texts)


_WRITTEN = "SELECT added FROM files WHERE added > ? ORDER BY added LIMIT 1"
_PROCESSING_SINCE = (
    "SELECT json FROM processing_versions WHERE version >="
    " (SELECT max(version) FROM processing_versions WHERE version <= ?)"
)


def _check_same(field: Field, schema: Schema) -> None:
    if not any(
        (each.id, each.name, each.type) == (field.id, field.name, field.type)
        for each in schema.values
    ):
        raise InvalidRequestError(
            f"field {field.name!r} orders the rows with equal keys (sleeper.table.latest.by), so "
            "it can be neither dropped nor renamed nor widened nor converted"
        )


def _current_shape(fold: Fold) -> TableShape:
    texts = [text for (text,) in fold.rows("SELECT json FROM schema_versions ORDER BY version")]
    *earlier, schema = [schema_from_json(text) for text in texts]
    (processing,) = fold.row("SELECT json FROM processing_versions ORDER BY version DESC LIMIT 1")
    return table_shape(schema, earlier, processing_from_json(processing))
