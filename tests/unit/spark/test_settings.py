"""Where processes start Spark, by options of commands and by properties."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from sleeper.cli.arguments import refuse_spark_options
from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import SPARK_CONF, SPARK_MASTER, SPARK_WAIT_SECONDS
from sleeper.properties.values import InstanceProperties
from sleeper.spark.session import run_this_python, session_conf
from sleeper.spark.settings import LOCAL_MASTER, SparkSettings, choose_cluster, choose_settings

HOST = "spark.driver.host"
CORES = "spark.cores.max"


def make_properties(**values: str) -> InstanceProperties:
    by_name = {each.name.rpartition("spark.")[2]: each.name for each in (SPARK_MASTER, SPARK_CONF)}
    return InstanceProperties({by_name[name]: value for name, value in values.items()})


def test_a_command_s_options_come_before_the_properties() -> None:
    properties = make_properties(
        master="yarn", conf="spark.jars=a.jar,b.jar, spark.executor.memory=1g"
    )
    conf = {"spark.jars": "a.jar,b.jar", "spark.executor.memory": "1g"}
    wait_seconds = SPARK_WAIT_SECONDS.default
    assert choose_settings(properties) == SparkSettings("yarn", conf, wait_seconds or 0)
    chosen = choose_settings(properties, "local[2]", ["spark.executor.memory=2g", f"{CORES}=8"])
    assert chosen.master == "local[2]"
    assert chosen.conf == {**conf, "spark.executor.memory": "2g", CORES: "8"}


def test_without_options_and_properties_spark_runs_on_this_machine() -> None:
    assert choose_settings(make_properties()) == SparkSettings(LOCAL_MASTER)
    assert choose_settings(make_properties(), default_master="local[*]").master == "local[*]"


def test_a_command_that_can_do_without_spark_runs_on_a_named_master_only() -> None:
    assert choose_cluster(make_properties()) is None
    assert choose_cluster(make_properties(conf="spark.executor.memory=1g")) is None
    for options, properties, master in (
        (("yarn", []), make_properties(), "yarn"),
        ((None, [f"{CORES}=8"]), make_properties(), LOCAL_MASTER),
        ((None, []), make_properties(master="yarn"), "yarn"),
    ):
        chosen = choose_cluster(properties, *options)
        assert chosen is not None
        assert chosen.master == master


def test_options_of_spark_are_refused_beside_another_option() -> None:
    refuse_spark_options("--submit", None, None)
    for master, conf in (("yarn", None), (None, [f"{CORES}=8"])):
        with pytest.raises(InvalidRequestError, match="do not apply with --submit"):
            refuse_spark_options("--submit", master, conf)


@pytest.mark.parametrize("text", ["", "spark.cores.max", "cores=2", "spark.a b=1", "=2"])
def test_a_setting_without_a_name_of_spark_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"expected NAME=VALUE"):
        choose_settings(make_properties(), conf=[text])


def test_only_local_drivers_listen_on_the_loopback_address(tmp_path: Path) -> None:
    for master in ("local[*]", "local-cluster[2,1,1024]"):
        assert session_conf(SparkSettings(master), tmp_path)[HOST] == "127.0.0.1"
    for master in ("spark://10.0.0.1:7077", "yarn", "k8s://https://10.0.0.1"):
        assert HOST not in session_conf(SparkSettings(master), tmp_path)
    chosen = session_conf(SparkSettings("yarn", {HOST: "10.0.0.2"}), tmp_path)
    assert chosen[HOST] == "10.0.0.2"


@pytest.mark.parametrize(
    ("variable", "conf", "python"),
    [
        (None, {}, sys.executable),
        (None, {"spark.pyspark.python": "/opt/python"}, "/opt/python"),
        ("/usr/bin/python3", {}, "python3"),
    ],
)
def test_workers_of_a_user_s_session_run_this_python_unless_told_otherwise(
    variable: str | None,
    conf: dict[str, str],
    python: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    context = SimpleNamespace(pythonExec="python3", getConf=lambda: conf)
    session: Any = SimpleNamespace(sparkContext=context)
    run_this_python(cast(SparkSession, session))
    assert context.pythonExec == python
