"""Tables of TPC-H: generated once in Parquet, and ingested into an instance."""

import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sleeper

LINEITEM_ROWS = 6_000_000
"""The rows of lineitem at scale 1, about."""

_MONEY = {"DecimalType": {"precision": 15, "scale": 2}}
_LONG, _INT, _TEXT, _DATE = "LongType", "IntType", "StringType", "DateType"
_FIELDS: dict[str, dict[str, Any]] = {
    "lineitem": {
        "l_orderkey": _LONG,
        "l_linenumber": _INT,
        "l_partkey": _LONG,
        "l_suppkey": _LONG,
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": _TEXT,
        "l_linestatus": _TEXT,
        "l_shipdate": _DATE,
        "l_commitdate": _DATE,
        "l_receiptdate": _DATE,
        "l_shipinstruct": _TEXT,
        "l_shipmode": _TEXT,
        "l_comment": _TEXT,
    },
    "orders": {
        "o_orderkey": _LONG,
        "o_custkey": _LONG,
        "o_orderstatus": _TEXT,
        "o_totalprice": _MONEY,
        "o_orderdate": _DATE,
        "o_orderpriority": _TEXT,
        "o_clerk": _TEXT,
        "o_shippriority": _INT,
        "o_comment": _TEXT,
    },
    "customer": {
        "c_custkey": _LONG,
        "c_name": _TEXT,
        "c_address": _TEXT,
        "c_nationkey": _LONG,
        "c_phone": _TEXT,
        "c_acctbal": _MONEY,
        "c_mktsegment": _TEXT,
        "c_comment": _TEXT,
    },
    "part": {
        "p_partkey": _LONG,
        "p_name": _TEXT,
        "p_mfgr": _TEXT,
        "p_brand": _TEXT,
        "p_type": _TEXT,
        "p_size": _INT,
        "p_container": _TEXT,
        "p_retailprice": _MONEY,
        "p_comment": _TEXT,
    },
}
_SORTED_BY = {"lineitem": 1}
_KEYS_AT_SCALE_1 = {"lineitem": 6_000_000, "orders": 6_000_000}
_ONE_FILE = {"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"}


def schema(table: str) -> dict[str, Any]:
    """Returns the schema of a table, whose first column is its key."""
    fields = [{"name": name, "type": kind} for name, kind in _FIELDS[table].items()]
    values = 1 + _SORTED_BY.get(table, 0)
    return {
        "rowKeyFields": fields[:1],
        "sortKeyFields": fields[1:values],
        "valueFields": fields[values:],
    }


def parquet_files(folder: Path, scale: float) -> Mapping[str, Path]:
    """Returns the generator's file of each table, made once."""
    return _generated(folder / f"tpch-{scale:g}", scale, tuple(_FIELDS))


def lineitem_file(folder: Path, scale: float) -> Path:
    """Returns the generator's file of lineitem alone, made once."""
    return _generated(folder / f"lineitem-{scale:g}", scale, ("lineitem",))["lineitem"]


def _generated(target: Path, scale: float, tables: Sequence[str]) -> Mapping[str, Path]:
    files = {table: target / f"{table}.parquet" for table in tables}
    if not all(file.exists() for file in files.values()):
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        command: list[str | Path] = [
            program,
            "parquet",
            "-s",
            f"{scale:g}",
            f"--tables={','.join(tables)}",
            f"--output-dir={unfinished}",
        ]
        subprocess.run(command, check=True, capture_output=True)
        unfinished.rename(target)
    return files


def ingested(folder: Path, scale: float, leaves: int) -> Path:
    """Returns an instance with the tables, made once. Large tables have so many leaves."""
    home = folder / f"tpch-instance-{scale:g}-{leaves}"
    if not (home / "done").exists():
        files = parquet_files(folder, scale)
        shutil.rmtree(home, ignore_errors=True)
        with sleeper.create_instance(home) as instance:
            for name in _FIELDS:
                keys = int(_KEYS_AT_SCALE_1.get(name, 0) * scale)
                points = [keys * place // leaves for place in range(1, leaves)] if keys else []
                table = instance.create_table(name, schema(name), _ONE_FILE, points)
                table.ingest(files[name])
        (home / "done").touch()
    return home
