"""A stand-in for `pynvml`: the GPUs are those of the JSON file that `STAND_IN_NVML` names.

Where that file has the name of an error in place of a value, it is raised.
"""

# ruff: noqa: N801, N802, N818 - the names are those of the library

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception): ...


class NVMLError_DriverNotLoaded(NVMLError): ...


class NVMLError_GpuIsLost(NVMLError): ...


class NVMLError_LibraryNotFound(NVMLError): ...


class NVMLError_NoPermission(NVMLError): ...


class NVMLError_NotFound(NVMLError): ...


class NVMLError_NotSupported(NVMLError): ...


def _read() -> dict[str, Any]:
    return json.loads(Path(os.environ["STAND_IN_NVML"]).read_text())


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("NVMLError"):
        raise globals()[value](value)
    return value


def nvmlInit() -> None:
    with Path(os.environ["STAND_IN_NVML"]).with_suffix(".asked").open("a") as asked:
        print(os.getpid(), file=asked)
    said = _read()
    time.sleep(said["seconds"])
    _value(said["error"])


def nvmlShutdown() -> None: ...


def nvmlDeviceGetCount() -> int:
    return len(_read()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> Any:
    return _value(_read()["gpus"][index])


def nvmlDeviceGetName(handle: Any) -> str:
    return handle["name"]


def nvmlDeviceGetUUID(handle: Any) -> str:
    return handle["id"]


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    return len(_value(handle["instances"]))


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> Any:
    return _value(handle["instances"][index])


def nvmlDeviceGetMemoryInfo(handle: Any) -> SimpleNamespace:
    free, total = _value(handle["memory"])
    return SimpleNamespace(free=free, total=total)


def nvmlDeviceGetUtilizationRates(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(gpu=_value(handle["busy"]))
