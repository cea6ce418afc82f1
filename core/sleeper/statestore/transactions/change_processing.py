"""A table's filters, aggregations or iterator are changed."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.processing.check import check_table_processing
from sleeper.processing.model import Processing
from sleeper.processing.text import (
    iterator_call,
    parse_aggregations,
    parse_filters,
    processing_from_json,
    processing_to_json,
)
from sleeper.schema.json import schema_from_json
from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import APPLY, Verdict, already_done, refused
from sleeper.statestore.transactions.compaction_jobs import forget_job
from sleeper.statestore.transactions.transaction import Transaction, new_transaction_id


@dataclass(frozen=True, slots=True)
class ChangeProcessing(Transaction):
    """Sets what is given; None leaves one as it is, an empty text has none.

    The iterator is a registered name, which whoever commits this has looked up. From its
    number on the rows of every version pass through the processing. Compaction jobs that hold
    files lose them: they may have left out rows, or not, as it was before.
    """

    kind: ClassVar[str] = "change_processing"
    json_version: ClassVar[int] = 2
    filters: Annotated[str | None, Member(optional=True)] = None
    aggregations: Annotated[str | None, Member(optional=True)] = None
    iterator: Annotated[str | None, Member(optional=True)] = None
    iterator_config: Annotated[str | None, Member(optional=True)] = None
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:
        before = _current(fold)
        try:
            after = self.after(before)
            (schema,) = fold.row("SELECT json FROM schema_versions ORDER BY version DESC LIMIT 1")
            check_table_processing(after, schema_from_json(schema))
        except InvalidRequestError as error:
            return refused(str(error))
        return already_done("it is so already") if after == before else APPLY

    def apply(self, fold: Fold) -> None:
        after = processing_to_json(self.after(_current(fold)))
        fold.run("INSERT INTO processing_versions VALUES (?, ?)", (fold.next_number, after))
        for (job_id,) in fold.rows("SELECT id FROM jobs"):
            forget_job(fold, job_id)

    def after(self, before: Processing) -> Processing:
        """What the processing is with the change. InvalidRequestError if it makes none."""
        called = before.iterator
        name = (called.name if called else "") if self.iterator is None else self.iterator
        config = self.iterator_config
        if config is None:
            config = called.config if called and name else ""
        return Processing(
            before.filters if self.filters is None else parse_filters(self.filters),
            before.aggregations
            if self.aggregations is None
            else parse_aggregations(self.aggregations),
            iterator_call(name, config),
        )


def _current(fold: Fold) -> Processing:
    (text,) = fold.row("SELECT json FROM processing_versions ORDER BY version DESC LIMIT 1")
    return processing_from_json(str(text))
