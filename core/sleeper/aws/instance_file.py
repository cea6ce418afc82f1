"""The file of an instance's properties, before there is an instance to open."""

from dataclasses import dataclass
from typing import Any

_KEY = "instance.properties"


@dataclass(frozen=True, slots=True)
class InstanceFile:
    """`instance.properties` in the config bucket."""

    client: Any
    bucket: str

    def read(self) -> str | None:
        """The file's text, or None if there is none yet."""
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=_KEY)
        except self.client.exceptions.NoSuchKey:
            return None
        text: str = answer["Body"].read().decode()
        return text

    def write(self, text: str) -> None:
        """Replaces the file."""
        self.client.put_object(Bucket=self.bucket, Key=_KEY, Body=text.encode())
