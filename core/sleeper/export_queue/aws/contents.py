"""Contents of pending exports: in their items, or as objects in the data bucket.

An object is written before the item that names it, and deleted after it. A process that dies in
between leaves an object that no item names, which `remove_all` or `sweep` deletes.
"""

import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import obstore
from obstore.store import ObjectStore

from sleeper.aws.dynamo import Item
from sleeper.errors import NotFoundError
from sleeper.storage.bucket_folder import store_errors

INLINE_BYTES_MAX = 32 * 1024
"""A larger content costs less as an object: DynamoDB bills each KiB of a write."""
_FOLDER = "export-queues"


@dataclass(frozen=True, slots=True)
class ExportContents:
    """The objects `export-queues/<queue>/<random name>` of a store."""

    objects: ObjectStore

    def write(self, queue: str, content: bytes) -> Item:
        """Returns the attributes of an item with that content, whose object is durable."""
        if len(content) <= INLINE_BYTES_MAX:
            return {"content": content}
        path = f"{_FOLDER}/{queue}/{secrets.token_hex(16)}"
        with store_errors(path):
            obstore.put(self.objects, path, content)
        return {"object": path}

    def read(self, item: Item) -> bytes:
        """Returns the content of an item. NotFoundError if its object is missing."""
        if "object" not in item:
            return bytes(item["content"])
        with store_errors(item["object"]):
            return bytes(obstore.get(self.objects, item["object"]).bytes())

    def delete(self, items: Sequence[Item]) -> None:
        """Deletes the objects of deleted items."""
        for item in items:
            if "object" in item:
                with suppress(NotFoundError), store_errors(item["object"]):
                    obstore.delete(self.objects, item["object"])

    def sweep(self, queue: str, used: Collection[str], before_ms: int) -> int:
        """Deletes objects of a queue from before that time that are not used. Returns how many."""
        folder = f"{_FOLDER}/{queue}"
        swept = 0
        with store_errors(folder):
            for page in obstore.list(self.objects, folder):
                old = [
                    each["path"]
                    for each in page
                    if each["path"] not in used
                    and each["last_modified"].timestamp() * 1000 < before_ms
                ]
                if old:
                    obstore.delete(self.objects, old)
                swept += len(old)
        return swept
