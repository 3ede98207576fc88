"""Run by Python as a Python process of Spark's starts: has it connect to its JVM first, and load PySpark from where it
is installed.

Spark puts an archive of PySpark's sources first on the path of its Python processes. What is imported from an archive
without bytecode is compiled again by each process: half a second of CPU time, for each of the dozen that a first
query starts. Where the archive lies inside an installed PySpark, that one has the same modules, compiled.

A process that plans a stream connects when it has loaded PySpark and Arrow, and Spark's JVM waits ten seconds for it,
which no setting changes: on a busy machine the query then ends with "Python worker failed to connect back". Here such
a process connects before it loads them.

`session` puts this folder on the path of Spark's JVM, whose processes inherit it. A sitecustomize of the machine's own
is run after this one.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

_ACCEPTED: Final = b"\0\0\0\2ok"


def installed_first(path: list[str]) -> list[str]:
    """`path` with PySpark's archives last where it has the folder, too, that PySpark is installed in."""
    archives = [each for each in path if _is_of_installed(each, path)]
    return [each for each in path if each not in archives] + archives


def _is_of_installed(entry: str, path: list[str]) -> bool:
    """Whether `entry` is FOLDER/pyspark/python/lib/NAME.zip, with FOLDER on the path."""
    folder, name = os.path.split(entry)
    package = os.path.dirname(os.path.dirname(folder))
    is_archive = name.endswith(".zip") and os.path.join(package, "python", "lib") == folder
    return (
        is_archive
        and os.path.basename(package) == "pyspark"
        and os.path.dirname(package) in path
        and os.path.isfile(os.path.join(package, "__init__.py"))
    )


def connect_first(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Connects to the JVM that waits for this process, if one does, as `local_connect_and_auth` of pyspark.util would
    later; that gives this connection then.

    `arguments` are the interpreter's: a program that a process of Spark's starts inherits `environment`, and no JVM
    waits for it. OSError.
    """
    port, secret = environment.get("PYTHON_WORKER_FACTORY_PORT"), environment.get("PYTHON_WORKER_FACTORY_SECRET")
    if port is None or secret is None or arguments[1:2] != ["-m"] or not arguments[2].startswith("pyspark."):
        return
    import socket  # Other processes need not load it.

    host = "::1" if environment.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(port)), int(environment.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
    stream = connection.makefile("rwb", int(environment.get("SPARK_BUFFER_SIZE", "65536")))
    stream.write(len(secret.encode()).to_bytes(4, "big") + secret.encode())
    stream.flush()
    if stream.read(len(_ACCEPTED)) != _ACCEPTED:
        raise ConnectionError("Spark's JVM does not accept the secret that it gave")
    util: Any = importlib.import_module("pyspark.util")
    connect, made = util.local_connect_and_auth, [(stream, connection)]

    def local_connect_and_auth(place: object, auth_secret: object) -> Any:
        return made.pop() if made and (place, auth_secret) == (int(port), secret) else connect(place, auth_secret)

    util.local_connect_and_auth = local_connect_and_auth


def _run() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = installed_first([each for each in sys.path if os.path.abspath(each) != own])
    # Python looks for one module of this name: the machine's own comes after this one.
    this = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = this
    connect_first(sys.orig_argv, os.environ)


if __name__ == "sitecustomize":
    _run()
