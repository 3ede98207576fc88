"""The command line: one program, a module a noun.

A command's module is imported when the command is named, and not before, so that `tidelog start` never loads what makes
tables pretty and `tidelog --help` loads none of it. A module offers one of two things:

    run(arguments: Sequence[str]) -> int      parses what follows the command's name itself, and returns the exit code
    app: typer.Typer                          or leaves that to typer

Exit codes: 0 done, 1 refused or failed (one line on stderr says why and what to do), 2 wrong usage.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cli.errors import Refused, WrongUsage

if TYPE_CHECKING:
    import typer

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 and SIGINT, as shells count: for commands that Ctrl-C keeps from finishing."""


WITHOUT_COMMAND_CONFIG: Final = ("start", "broker", "secure", "store", "dump", "spark-package")
"""Commands that reach no brokers by themselves: they refuse --command-config as any option that they don't know."""
BOOTSTRAP_OPTIONS: Final = ("-b", "--bootstrap-server")


class Command(NamedTuple):
    """What the program knows of a command without importing it."""

    module: str
    summary: str


COMMANDS: Final = {
    "start": Command("tidelog.cli.start", "A cluster on this machine: embedded store and one or more brokers."),
    "broker": Command("tidelog.cli.broker", "One broker from a server.properties file."),
    "secure": Command("tidelog.cli.secure", "What secures a cluster: a CA, certificates, users, ready files."),
    "topics": Command("tidelog.cli.topics", "Topics and partitions: create, list, describe, alter, delete."),
    "configs": Command("tidelog.cli.configs", "Settings of topics, brokers, groups: describe, alter."),
    "quotas": Command("tidelog.cli.quotas", "What users, client ids and addresses may use: list, set, remove."),
    "acls": Command("tidelog.cli.acls", "Who may do what: list, add, remove ACLs."),
    "users": Command("tidelog.cli.users", "Who may log in with a password: list, add, remove."),
    "tokens": Command("tidelog.cli.tokens", "Delegation tokens for workers: create, list, renew, expire."),
    "leaders": Command("tidelog.cli.leaders", "Who leads what: the balance, preferred and unclean elections."),
    "produce": Command("tidelog.cli.produce", "Records from files, pipes and the terminal into a topic."),
    "consume": Command("tidelog.cli.consume", "Records out of topics: values, keys, JSON lines."),
    "groups": Command("tidelog.cli.groups", "Consumer groups: list, describe with lag, reset offsets, delete."),
    "brokers": Command("tidelog.cli.brokers", "Brokers: racks, disks, leaders; cordon those that get nothing new."),
    "top": Command("tidelog.cli.top", "A live screen: brokers, rates, partitions that lack replicas, lag, moves."),
    "log-dirs": Command("tidelog.cli.log_dirs", "Log directories of brokers: their replicas, moves, cordons."),
    "plan": Command("tidelog.cli.plan", "What to move so that a cluster is even, whole, or without a broker."),
    "reassign": Command("tidelog.cli.reassign", "Carry out a plan of moves: watch, pause, cancel, undo."),
    "transactions": Command("tidelog.cli.transactions", "Transactions: list, describe; find and end hanging ones."),
    "store": Command("tidelog.cli.store", "The metadata store: export, import, move to an ensemble while brokers run."),
    "dump": Command("tidelog.cli.dump", "What is in a segment, index, checkpoint or snapshot file."),
    "table": Command("tidelog.cli.table", "A topic into a Delta table on Spark, once or for ever."),
    "spark-package": Command("tidelog.cli.spark_package", "What Spark's executors need of tidelog, as an archive."),
}


def main() -> None:
    """The console script: runs the command of sys.argv and exits with its code."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # For as long as the process lives.
    if sys.stdout is None:
        print("tidelog: stdout is closed: there is nowhere to write to", file=sys.stderr)
        sys.exit(FAILED)
    for stream in (sys.stdout, sys.stderr):
        # Names and values may have characters that the terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("start", "broker"):
        from tidelog.launcher.lean_modules import import_lean

        import_lean()  # Here and not in the command: in a process that is a broker and nothing else.
    sys.exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code; what goes wrong is one line on stderr."""
    from tidelog.cli.security import forget_command_config

    try:
        return _run(arguments)
    finally:
        forget_command_config()


def _run(arguments: Sequence[str]) -> int:
    try:
        arguments = _with_bootstrap_behind(_without_command_config(arguments))
        command = COMMANDS.get(arguments[0]) if arguments else None
        if command is None:
            return _top_level(arguments)
        module = importlib.import_module(command.module)
        if hasattr(module, "run"):
            code = int(module.run(arguments[1:]))
        else:
            code = run_app(module.app, arguments[1:], f"tidelog {arguments[0]}")
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:
        # What prints help ends the program itself where its output is not read any more.
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        return DONE
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`).
        _drop_output()
        return DONE
    except WrongUsage as error:
        print(f"tidelog: {error}", file=sys.stderr)
        return WRONG_USAGE
    except Exception as error:
        if undecodable := _undecodable(arguments, error):
            print(f"tidelog: an argument is not valid UTF-8: {undecodable!r}", file=sys.stderr)
            return WRONG_USAGE
        reasons = _expected(error)
        if reasons is None:
            raise
        try:
            sys.stdout.flush()
        except OSError:
            # The reader of the pipe has gone; the refusals go to stderr all the same.
            _drop_output()
        for reason in reasons:
            print(f"tidelog: {reason}", file=sys.stderr)
        return FAILED


def _drop_output() -> None:
    """The reader of the output has gone, or its disk is full: the interpreter's last flush must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_bootstrap_behind(arguments: Sequence[str]) -> Sequence[str]:
    """`tidelog -b HOST:PORT COMMAND ...` as `tidelog COMMAND ... -b HOST:PORT`; other arguments as they are."""
    for option in BOOTSTRAP_OPTIONS:
        if arguments and arguments[0] == option and len(arguments) > 2:
            return [*arguments[2:], option, arguments[1]]
        if arguments and arguments[0].startswith(f"{option}=") and len(arguments) > 1:
            return [*arguments[1:], arguments[0]]
    return arguments


def _without_command_config(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments without --command-config, which all commands that talk to brokers by themselves share."""
    from tidelog.cli.security import without_command_config

    left = without_command_config(arguments)
    named = _with_bootstrap_behind(left)
    return arguments if not named or named[0] in WITHOUT_COMMAND_CONFIG else left


def _undecodable(arguments: Sequence[str], error: BaseException | None) -> str | None:
    """The argument that an error is about: bytes that are no UTF-8 come from the shell as lone surrogates."""
    while error is not None and not isinstance(error, UnicodeEncodeError):
        error = error.__cause__
    if error is None:
        return None
    return next((each for each in arguments if any("\ud800" <= character <= "\udfff" for character in each)), None)


def _expected(error: Exception) -> Sequence[str] | None:
    """What to tell people of an error that the world made, None for one that is ours."""
    if isinstance(error, Refused):
        return error.reasons
    from tidelog.client.errors import ClientError
    from tidelog.model.errors import KafkaError

    if isinstance(error, KafkaError):
        return (error.message or error.code.name,)
    if isinstance(error, ClientError):
        return (str(error),)
    if isinstance(error, OSError):
        return (f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error),)
    return None


def run_app(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    """Runs one command of typer's and returns its exit code."""
    import typer
    from typer.main import get_command

    command = get_command(app)
    try:
        # Not command.main(): it would answer broken pipes and signals itself, and otherwise than we do.
        with command.make_context(name, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            return WRONG_USAGE
        raise
    return DONE


def _top_level(arguments: Sequence[str]) -> int:
    """`tidelog` without a command it knows: help, version, or what was wrong."""
    import typer

    from tidelog import __version__

    app = typer.Typer(
        name="tidelog",
        help="A Kafka-compatible distributed log whose topics are tables in Spark.",
        epilog="`tidelog COMMAND --help` tells more. -b or TIDELOG_BOOTSTRAP names any Kafka cluster (127.0.0.1:9092); "
        "--command-config FILE or TIDELOG_COMMAND_CONFIG has the client properties for a secured one.",
        no_args_is_help=True,
        add_completion=False,
    )

    def version(show: bool) -> None:
        if show:
            print(f"tidelog {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        show_version: bool = typer.Option(
            False, "--version", callback=version, is_eager=True, help="Print the version and exit."
        ),
    ) -> None:
        pass

    def nothing() -> None:
        pass

    for name, command in COMMANDS.items():
        app.command(name, help=command.summary)(nothing)
    return run_app(app, arguments, "tidelog")
