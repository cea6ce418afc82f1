"""The wheel with the exporter of the workload: an instance on AWS imports registered names only."""

import io
import zipfile

_CLASS = "RecordingExporter"
EXPORTER = f"python:{_CLASS}"
"""The name of the exporter, as queues have it."""

FILE_NAME = "recorder-1.0-py3-none-any.whl"
_INFO = "recorder-1.0.dist-info"
_MEMBERS = {
    "recorder.py": f"from simulation.systems.receiver import {_CLASS} as {_CLASS}\n",
    f"{_INFO}/METADATA": "Metadata-Version: 2.1\nName: recorder\nVersion: 1.0\n",
    f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{_INFO}/entry_points.txt": f"[sleeper.exporters]\n{_CLASS} = recorder:{_CLASS}\n",
    f"{_INFO}/RECORD": "",
}


def make_wheel() -> bytes:
    """Returns the content of the wheel, which is the same in every run."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in _MEMBERS.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return content.getvalue()
