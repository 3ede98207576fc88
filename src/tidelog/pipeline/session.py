"""A Spark session on this machine for jobs that start, work and end: quick to start, quiet, and without surprises.

Spark says "no Java" with a stack trace of its gateway, and "too old a Java" with a class file version; both are found
here before Spark is started. Nothing is fetched: no Ivy, no Maven, the source is Python. The JVM compiles with C1 only
(-XX:TieredStopAtLevel=1) and collects serially: that halves the start, and in this package's jobs record bytes never
enter the JVM. For jobs that compute much in the JVM, pass `quick_start=False`. Spark's Python processes load PySpark
from where it is installed, and connect before that (`workers.sitecustomize`); checkpoints are written without Hadoop's
shell commands.
"""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tidelog.pipeline.errors import JavaMissing, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
"""What Spark 4 is compiled for."""
_JAVA_TIMEOUT_S: Final = 20
_WORKERS: Final = Path(__file__).parent / "workers"
_CONNECT_PORT: Final = 15002
_CONNECT_TIMEOUT_S: Final = 5.0
_INSTALL_JAVA: Final = (
    "On Debian and Ubuntu: apt install openjdk-17-jre-headless; elsewhere see https://adoptium.net. Then set JAVA_HOME,"
    " or put java on the PATH."
)


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """The major version of the Java that Spark will run on; raises `JavaMissing` where it can't."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise JavaMissing(f"Spark needs Java {JAVA_MIN} or later, and there is no java here. {_INSTALL_JAVA}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        where = f"JAVA_HOME is {home}, but " if home else ""
        raise JavaMissing(
            f"Spark needs Java {JAVA_MIN} or later; {where}{java} -version fails: {error}. {_INSTALL_JAVA}"
        ) from error
    version = java_version(answer.stderr + answer.stdout)
    if version is None:
        raise JavaMissing(f"{java} -version does not say which Java it is: {answer.stderr.strip()!r}. {_INSTALL_JAVA}")
    if version < JAVA_MIN:
        raise JavaMissing(f"Spark needs Java {JAVA_MIN} or later; {java} is Java {version}. {_INSTALL_JAVA}")
    return version


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints (8 for "1.8.0_402", 17 for "17.0.15"); None if it names none."""
    found = re.search(r'version "(\d{1,6})(?:\.(\d{1,6}))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


class Place(Enum):
    """Where a session's work is done."""

    HERE = "here"
    """On this machine, in a JVM of this process."""
    CLUSTER = "cluster"
    """On the cluster whose master was named."""
    SUBMITTED = "submitted"
    """Where spark-submit was told, which started this process: it has set the master and all else."""
    CONNECT = "connect"
    """On a server that Spark Connect reaches."""


def place_of(master: str | None, environment: Mapping[str, str]) -> Place:
    """Where work is done, by the master that a user named and by what started this process."""
    if master is not None:
        if master.startswith("sc://"):
            return Place.CONNECT
        return Place.HERE if master.split("[", 1)[0] == "local" else Place.CLUSTER
    if "SPARK_REMOTE" in environment:
        return Place.CONNECT
    return Place.SUBMITTED if "PYSPARK_GATEWAY_PORT" in environment else Place.HERE


def check_connect(url: str) -> None:
    """Raises `PipelineError` where nothing listens at `url`, sc://HOST:PORT: Spark's client would try for minutes."""
    try:
        found = urlsplit(url)
        address = found.hostname or "", found.port or _CONNECT_PORT
    except ValueError as error:
        raise PipelineError(f"{url} is not sc://HOST:PORT: {error}") from error
    try:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise PipelineError(f"no server of Spark Connect listens at {url}: {error}") from error


def check_spark(master: str | None, environment: Mapping[str, str]) -> None:
    """Raises `JavaMissing` or `PipelineError` where Spark cannot be started, or reached."""
    if place_of(master, environment) is Place.CONNECT:
        check_connect(master or environment["SPARK_REMOTE"])
    else:
        check_java(environment)


def spark_session(
    name: str,
    *,
    master: str | None = None,
    cores: int | None = None,
    memory: str = "1g",
    scratch: Path | None = None,
    log: Path | None = None,
    quick_start: bool = True,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The process's Spark session, started if there is none yet; raises `JavaMissing` or `PipelineError`.

    `master` is a cluster's address, or sc://HOST of Spark Connect; None: this machine, with `cores` of it, None for
    all. Inside spark-submit the session is the one that it configured: nothing is changed but by `settings`, which come
    last and win. `scratch` is for Spark's temporary files (None: the system's place for such); `log` takes what the JVM
    and its workers write to stderr (None: this process's); both, and `memory`, are of sessions on this machine. An
    existing session is returned as it is: a user's Spark keeps the user's settings.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError("PySpark is not installed: pip install 'tidelog[spark]'") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    place = place_of(master, os.environ)
    check_spark(master, os.environ)
    builder = SparkSession.builder.appName(name)
    if place is Place.CONNECT and master is not None:
        builder = builder.remote(master)
    elif place is Place.CLUSTER:
        builder = builder.master(str(master))
    elif place is Place.HERE:
        builder = builder.master(master or f"local[{cores or '*'}]")
    defaults = _defaults(memory, scratch, quick_start) if place is Place.HERE else {}
    for key, value in (defaults | dict(settings or {})).items():
        builder = builder.config(key, value)
    if place is not Place.HERE:
        if place is Place.CLUSTER:
            _lend_packages(os.environ)
            # Of these two spark-submit makes variables, and a session that Python starts does not.
            for variable, name in (
                ("PYSPARK_PYTHON", "spark.pyspark.python"),
                ("PYSPARK_DRIVER_PYTHON", "spark.pyspark.driver.python"),
            ):
                if settings and name in settings:
                    os.environ[variable] = settings[name]
        with _own_interrupts():
            try:
                return builder.getOrCreate()
            except ImportError as error:
                raise PipelineError(f"Spark Connect needs pip install 'pyspark[connect]': {error}") from error
    # Workers must be this interpreter: whatever "python3" is on the PATH may lack the project or be another version.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-spark-") as folder,
        _stderr_to(log),
        _quiet_logging(Path(folder)),
        _quick_workers(os.environ),
        _own_interrupts(),
    ):
        return builder.getOrCreate()


def _lend_packages(environment: MutableMapping[str, str]) -> None:
    """The driver's JVM plans in Python workers of its own, which run the executors' Python: they find here what that
    lacks."""
    names = ("tidelog", "pyspark_tidelog", "fastcrc", "cramjam", "deltalake", "arro3", "typing_extensions")
    found = [spec.origin for name in names if (spec := importlib.util.find_spec(name)) and spec.origin]
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    folders = [str(Path(each).parents[0 if each.endswith("typing_extensions.py") else 1]) for each in found]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(each for each in (*known, *folders) if each))


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keeps Spark from taking SIGINT over: its handler asks the JVM in the middle of whatever is being asked of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_logging(folder: Path) -> Iterator[None]:
    """Has the JVM find a log4j2.properties of ours as it starts, or it would first announce its own profile, and
    warn."""
    if "SPARK_CONF_DIR" in os.environ:
        yield
        return
    (folder / "log4j2.properties").write_text(_LOG4J)
    os.environ["SPARK_CONF_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["SPARK_CONF_DIR"]


@contextmanager
def _quick_workers(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Has the JVM's Python processes find `workers.sitecustomize` as they start."""
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_WORKERS), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del environment["PYTHONPATH"]
        else:
            environment["PYTHONPATH"] = before


@contextmanager
def _stderr_to(path: Path | None) -> Iterator[None]:
    """File descriptor 2 for processes started inside; they keep it, this process gets its own back."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


# What fails is told by the exception that Python gets; the JVM's log would only tell it first, and at length.
_LOG4J: Final = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def _defaults(memory: str, scratch: Path | None, quick_start: bool) -> dict[str, str]:
    from pyspark_tidelog.spark_versions import CHECKPOINTS_BY_FILE_SYSTEM

    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" if quick_start else ""
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java.strip(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.streaming.stopTimeout": "30s",
        # The other one, for local files, forks a shell command for each look at a file and each rename.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS_BY_FILE_SYSTEM,
    }
    if scratch is not None:
        settings["spark.local.dir"] = str(scratch / "local")
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
    return settings
