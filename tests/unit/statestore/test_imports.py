"""The state store is part of the control plane and imports neither Arrow nor DataFusion."""

import subprocess
import sys


def test_the_state_store_loads_neither_pyarrow_nor_datafusion():
    code = (
        "import sys, sleeper.local.state_store, sleeper.statestore.transactions.codec;"
        "print([m for m in ('pyarrow', 'datafusion', 'boto3', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
