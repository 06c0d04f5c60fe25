"""The process in which kernels run: `python -m advisor.validation.child FD BACKEND KIND...`. Talks to `workers.Worker`.

Imports `errors`, the backend, and the modules of kinds from elsewhere, as it is told to.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from advisor.errors import AdvisorError

Stage = Callable[[str, float], None]


def load_backend(name: str) -> Any:
    """The class that `module:Class` or `/path/file.py:Class` names."""
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("advisor_validation_backend", place)
        if spec is None or spec.loader is None:
            raise ImportError(f"no backend in {place}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    return getattr(module, attribute)


def serve(connection: Connection, backend: Any) -> None:
    """Answers calls until the parent closes the connection."""
    while True:
        try:
            _, method, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("value", getattr(backend, method)(*args)))
        except AdvisorError as error:
            fields = {"code": error.code, "message": error.message, "fix": error.fix, "numbers": error.numbers}
            connection.send(("refused", type(error).__name__, fields))
        except Exception:  # noqa: BLE001 - the process boundary: whatever it was must reach the parent
            connection.send(("bug", traceback.format_exc()))


def _leave_with_parent(parent: int) -> None:
    """A hung kernel would keep this process alive after its parent was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(arguments: list[str]) -> None:
    descriptor, name, *modules = arguments
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(int(descriptor))

    def stage(text: str, limit_s: float) -> None:
        connection.send(("stage", text, limit_s))

    if modules:
        from advisor import kinds

        for each in modules:
            kinds.register_from(each)
    serve(connection, load_backend(name)(stage))


if __name__ == "__main__":
    main(sys.argv[1:])
