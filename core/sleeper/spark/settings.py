"""Where Spark runs for the processes that start it: a master, and settings of the session.

Commands choose them by `--master` and `--conf`, else the properties of the instance do. Platforms
of AWS start Spark themselves, with settings of their own (`sleeper.jobs.spark_platform`). This
module does not import PySpark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import SPARK_CONF, SPARK_MASTER, SPARK_WAIT_SECONDS
from sleeper.properties.value_kind import parse_spark_setting
from sleeper.properties.values import InstanceProperties

LOCAL_MASTER = "local[*,2]"
"""All processors of this machine. A task is tried twice, because connections may break."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The master of a session, and its settings by their names in Spark.

    `wait_seconds` is the time in which a cluster must offer an executor.
    """

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: int = 60

    @property
    def is_local(self) -> bool:
        """Whether the executors run on this machine."""
        return self.master.startswith("local")


def choose_settings(
    properties: InstanceProperties,
    master: str | None = None,
    conf: Sequence[str] = (),
    default_master: str = LOCAL_MASTER,
) -> SparkSettings:
    """Returns the settings of a command, over those of the instance.

    `conf` has texts such as `spark.executor.memory=4g`. InvalidRequestError for any other.
    """
    chosen = master or properties.get(SPARK_MASTER) or default_master
    own = properties.get(SPARK_CONF)
    return SparkSettings(chosen, dict(own) | _parse(conf), properties.get(SPARK_WAIT_SECONDS))


def choose_cluster(
    properties: InstanceProperties, master: str | None = None, conf: Sequence[str] = ()
) -> SparkSettings | None:
    """Returns the settings of a command that can do without Spark.

    None if neither the command nor the instance names a master, and the command no setting.
    """
    is_named = master is not None or bool(conf) or properties.get(SPARK_MASTER) is not None
    return choose_settings(properties, master, conf) if is_named else None


def _parse(conf: Sequence[str]) -> dict[str, str]:
    settings = {}
    for each in conf:
        try:
            name, value = parse_spark_setting(each)
        except ValueError:
            raise InvalidRequestError(
                f"--conf {each!r} is not a setting of Spark (expected NAME=VALUE, such as "
                "spark.executor.memory=4g)"
            ) from None
        settings[name] = value
    return settings
