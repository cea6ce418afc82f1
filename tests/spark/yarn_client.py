"""Spark's own YARN client, without a cluster: what it sends for a command of spark-submit.

The *driver's container* starts with the files that the client uploads, and nothing else in its
working folder. A folder stands for HDFS, and another one for S3.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.spark.java import VARIABLE, find_java

_HOME = Path(pyspark.__file__).parent
_YARN = "org.apache.hadoop.yarn.api.records"
_PATH = "org.apache.hadoop.fs.Path"
_FILE_OPTION = "--primary-py-file"
# Hadoop's own file system that shows another one at the URLs of a scheme.
_DEFAULTS = """
spark.hadoop.fs.s3.impl org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme
spark.hadoop.fs.viewfs.overload.scheme.target.file.impl org.apache.hadoop.fs.LocalFileSystem
spark.hadoop.fs.viewfs.mounttable.{bucket}.linkFallback {folder}
spark.yarn.jars local:/usr/lib/spark/jars/*
"""


@dataclass(frozen=True, slots=True)
class DriverContainer:
    """The command, the files by their names in the working folder, and the environment."""

    command: tuple[str, ...]
    files: Mapping[str, Path]
    environment: Mapping[str, str]

    @property
    def main_file(self) -> str:
        """The name of the driver's file in the working folder."""
        return self.command[self.command.index(_FILE_OPTION) + 1]


@dataclass(frozen=True, slots=True)
class YarnClient:
    """The client in a Java process, with the folder of its settings and uploads."""

    java: JavaGateway
    folder: Path

    def describe_container(self, command: Sequence[str]) -> DriverContainer:
        """Returns the container of a command such as `spark-submit --master yarn …`."""
        jvm = self.java.jvm
        arguments, conf = self._prepare(command)
        client = jvm.org.apache.spark.deploy.yarn.Client(
            jvm.org.apache.spark.deploy.yarn.ClientArguments(self._array("String", arguments)),
            conf,
            None,
        )
        uploads = jvm.org.apache.hadoop.fs.Path((self.folder / "uploads").as_uri())
        self._call(client, "stagingDirPath_$eq", uploads, _PATH)
        application = jvm.org.apache.hadoop.yarn.api.records.ApplicationId.newInstance(1, 1)
        self._call(client, "appId_$eq", application, f"{_YARN}.ApplicationId")
        context = self._call(client, "createContainerLaunchContext")
        files = {
            name: Path(resource.getResource().getFile())
            for name, resource in dict(context.getLocalResources()).items()
        }
        return DriverContainer(tuple(context.getCommands()), files, dict(context.getEnvironment()))

    def _prepare(self, command: Sequence[str]) -> tuple[list[str], Any]:
        """Returns the arguments and settings that spark-submit has for its YARN client."""
        deploy = self.java.jvm.org.apache.spark.deploy
        variables = {"HADOOP_CONF_DIR": str(self.folder), "SPARK_CONF_DIR": str(self.folder)}
        arguments = deploy.SparkSubmitArguments(self._seq(command[1:]), self._map(variables))
        none = self.java.jvm.scala.Option.empty()
        result = deploy.SparkSubmit().prepareSubmitEnvironment(arguments, none)
        return list(self._converters.asJava(result._1())), result._3()

    def _call(self, client: Any, name: str, argument: Any = None, kind: str | None = None) -> Any:
        """Calls a private method."""
        for_name = self.java.jvm.java.lang.Class.forName
        kinds = [] if kind is None else [for_name(kind)]
        method = client.getClass().getDeclaredMethod(name, self._array("Class", kinds))
        method.setAccessible(True)
        return method.invoke(client, self._array("Object", [argument] if kinds else []))

    @property
    def _converters(self) -> Any:
        return self.java.jvm.scala.jdk.javaapi.CollectionConverters

    def _seq(self, values: Iterable[str]) -> Any:
        return self._converters.asScala(self._java_list(values)).toSeq()

    def _java_list(self, values: Iterable[str]) -> Any:
        made = self.java.jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self.java.jvm.java.util.HashMap()
        for name, value in values.items():
            made.put(name, value)
        pairs = getattr(self.java.jvm.scala.Predef, "$conforms")()
        return self._converters.asScala(made).toMap(pairs)

    def _array(self, kind: str, values: Sequence[Any]) -> Any:
        made = self.java.new_array(getattr(self.java.jvm.java.lang, kind), len(values))
        for number, value in enumerate(values):
            made[number] = value
        return made


@contextmanager
def yarn_client(folder: Path, bucket: str, objects: Path) -> Iterator[YarnClient]:
    """Yields a client that sees the objects of a bucket in a folder."""
    settings = _DEFAULTS.format(bucket=bucket, folder=objects.as_uri())
    (folder / "spark-defaults.conf").write_text(settings)
    (jar,) = _HOME.glob("jars/py4j-*.jar")
    # The client looks there for the archives of PySpark.
    with patch.dict(os.environ, {"SPARK_HOME": str(_HOME)}):
        port = launch_gateway(
            jarpath=str(jar),
            classpath=str(_HOME / "jars" / "*"),
            javaopts=[*shlex.split(os.environ.get(VARIABLE, "")), "-Dlog4j2.level=error"],
            java_path=find_java() or "java",
            die_on_exit=True,
        )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield YarnClient(java, folder)
    finally:
        java.shutdown()
