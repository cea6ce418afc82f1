"""The client of a simulated S3, with the methods of boto3's that Sleeper uses."""

import io
from collections.abc import Callable
from typing import Any, TypeVar

from simulation.services.control import ACCOUNT
from simulation.services.requests import Exceptions, Requests, client_error
from simulation.services.s3.buckets import PAGE_KEYS_MAX, MissingBucketError, ObjectService

T = TypeVar("T")


class S3Client:
    """A client. Its buckets keep no versions."""

    def __init__(self, service: ObjectService, requests: Requests) -> None:
        self.exceptions = Exceptions()
        self._service = service
        self._requests = requests

    def create_bucket(self, **request: Any) -> dict[str, Any]:
        """Creates a bucket."""
        name = request["Bucket"]

        def effect() -> dict[str, Any]:
            self._service.create(name)
            return {"Location": f"/{name}"}

        return self._send("create_bucket", name, effect)

    def put_object(self, **request: Any) -> dict[str, Any]:
        """Puts an object."""
        name, key, body = request["Bucket"], request["Key"], request.get("Body", b"")

        def effect() -> dict[str, Any]:
            stored = self._service.bucket(name).put(key, bytes(body), self._service.now_ms())
            return {"ETag": stored.e_tag}

        return self._send("put_object", f"{name}/{key}", effect)

    def get_object(self, **request: Any) -> dict[str, Any]:
        """Returns an object."""
        name, key = request["Bucket"], request["Key"]

        def effect() -> dict[str, Any]:
            stored = self._service.bucket(name).objects.get(key)
            if stored is None:
                message = "The specified key does not exist."
                raise client_error("NoSuchKey", message, "GetObject", 404)
            return {"Body": io.BytesIO(stored.content), "ETag": stored.e_tag}

        return self._send("get_object", f"{name}/{key}", effect)

    def head_object(self, **request: Any) -> dict[str, Any]:
        """Describes an object, if its bucket belongs to the expected account."""
        name, key = request["Bucket"], request["Key"]

        def effect() -> dict[str, Any]:
            if request.get("ExpectedBucketOwner", ACCOUNT) != ACCOUNT:
                raise client_error("403", "Forbidden", "HeadObject", 403)
            stored = self._service.bucket(name).objects.get(key)
            if stored is None:
                raise client_error("404", "Not Found", "HeadObject", 404)
            return {"ETag": stored.e_tag, "ContentLength": len(stored.content)}

        return self._send("head_object", f"{name}/{key}", effect)

    def get_bucket_versioning(self, **request: Any) -> dict[str, Any]:
        """Returns no status: versions are not kept."""
        name = request["Bucket"]

        def effect() -> dict[str, Any]:
            self._service.bucket(name)
            return {}

        return self._send("get_bucket_versioning", name, effect)

    def list_object_versions(self, **request: Any) -> dict[str, Any]:
        """Returns the first page of objects, whose only version has the id `null`."""
        name = request["Bucket"]

        def effect() -> dict[str, Any]:
            keys = self._service.bucket(name).page(request.get("Prefix", ""), "")
            versions = [{"Key": key, "VersionId": "null"} for key in keys]
            return {"Versions": versions, "IsTruncated": len(keys) == PAGE_KEYS_MAX}

        return self._send("list_object_versions", name, effect)

    def delete_objects(self, **request: Any) -> dict[str, Any]:
        """Deletes objects. Missing ones are no error."""
        name, objects = request["Bucket"], request["Delete"]["Objects"]

        def effect() -> dict[str, Any]:
            for each in objects:
                self._service.bucket(name).delete(each["Key"])
            return {"Deleted": [{"Key": each["Key"]} for each in objects]}

        return self._send("delete_objects", name, effect)

    def _send(self, operation: str, target: str, effect: Callable[[], T]) -> T:
        def find_and_do() -> T:
            try:
                return effect()
            except MissingBucketError:
                message = "The specified bucket does not exist"
                raise client_error("NoSuchBucket", message, operation, 404) from None

        return self._requests.send(operation, target, find_and_do)
