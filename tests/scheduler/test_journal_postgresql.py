"""The journal in PostgreSQL: who may write, lost connections, and what errors say."""

from __future__ import annotations

import asyncio
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from random import Random

import psycopg
import pytest

from tests.leaks import SERVERS
from tests.postgresql import PostgresqlServer
from tests.scheduler.test_journal import Opened, job, read_again
from weft.protocol.errors import CommError, ConfigError, TakenOver
from weft.protocol.trust.security import Security
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.core.journal.entries import JobEnded, JournalWritten, WriteJournal
from weft.scheduler.journal import journal as journal_module
from weft.scheduler.journal import postgresql as module
from weft.scheduler.journal.journal import Journal
from weft.scheduler.journal.places import jobs_at, store_at
from weft.scheduler.journal.rows import FORM, drop_oldest
from weft.scheduler.server import SchedulerServer


@pytest.fixture
def url(postgresql):
    return postgresql.url()


@pytest.fixture
def opened(url):
    opened = Opened(url)
    yield opened
    opened.journal.close()


@pytest.fixture
def server():
    """A server of this test, which may be killed."""
    server = PostgresqlServer()
    yield server
    server.close()


def asked(url: str, query: str) -> list[tuple]:
    """Return what a query finds in the schema of a journal, or do what a statement says."""
    plain, _, schema = url.rpartition("&schema=")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}")
        found = connection.execute(query)
        return found.fetchall() if found.description else []


# -- who may write ---------------------------------------------------------------------------------
def test_a_later_scheduler_takes_over_and_the_earlier_one_records_nothing_more(opened, url):
    assert opened.write(job("a")) == ""
    taken = queue.SimpleQueue()
    opened.journal.on_taken_over = taken.put
    later = Opened(url)
    assert later.write(job("b")) == ""
    opened.journal.write(WriteJournal(7, [job("c")]), opened.reports.put)
    error = taken.get()
    assert isinstance(error, TakenOver)
    assert "has taken over the journal postgresql://weft@/postgres?host=" in str(error)
    opened.journal.close()
    assert opened.reports.empty()
    assert [one.key for one in read_again(later, url).jobs] == ["a", "b"]


def test_a_scheduler_of_an_earlier_epoch_does_not_begin(opened, url):
    assert opened.journal.read(1000).jobs == []
    with closing(Journal(store_at(url))) as earlier:
        assert earlier.store.last_epoch == 1000
        with pytest.raises(TakenOver):
            earlier.read(999)
    assert opened.write(job("a")) == ""
    assert opened.journal.read(1001).jobs == [job("a")]  # it may begin again itself
    assert opened.write(job("b")) == ""


def test_two_that_start_at_once_make_the_tables_once(postgresql):
    url = postgresql.url()
    stores = queue.SimpleQueue()
    threads = [threading.Thread(target=lambda: stores.put(store_at(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in threads:
        stores.get_nowait().close()
    assert asked(url, "SELECT form, epoch FROM holder") == [(FORM, 0)]


def test_clusters_have_a_schema_each(postgresql):
    urls = [postgresql.url(), postgresql.url()]
    both = [Opened(url) for url in urls]
    for key, one in zip("ab", both, strict=True):
        assert one.write(job(key)) == ""
    assert [[one["key"] for one in jobs_at(url, 10)] for url in urls] == [["a"], ["b"]]
    for one in both:
        one.journal.close()


# -- lost connections ------------------------------------------------------------------------------
class CutLine:
    """A line to a server that is cut around the commits that are named.

    Args:
        path: of the server's socket.
        cuts: one for each commit that passes: "before" it reaches the server, "after" the server
            has answered, or "" = not.
    """

    def __init__(self, path: str, cuts: list[str]) -> None:
        self._path = path
        self._cuts = iter(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with client:
                if not client.recv(1, socket.MSG_PEEK):
                    return
                with socket.socket(socket.AF_UNIX) as server:
                    server.connect(self._path)
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on one question and its answer after the other, until the line is cut."""
        back = threading.Thread(target=_copy, args=(server, client))
        back.start()
        while data := client.recv(1 << 16):
            cut = next(self._cuts, "") if b"COMMIT" in data else ""
            if cut == "after":
                client.shutdown(socket.SHUT_WR)  # so that the answer does not arrive
            if cut != "before":
                server.sendall(data)
            if cut:
                break
        server.shutdown(socket.SHUT_WR)
        back.join()  # the server has answered, and ended the session

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 16):
        try:
            target.sendall(data)
        except OSError:
            continue  # it is read to its end all the same


@pytest.fixture
def line(postgresql) -> Iterator[object]:
    """Opens a line to the server: the URL by way of it."""
    lines = []

    def opens(*cuts: str) -> str:
        folder, _, schema = postgresql.url().partition("host=")[2].partition("&schema=")
        lines.append(CutLine(f"{folder}/.s.PGSQL.5432", [*cuts]))
        place = f"127.0.0.1:{lines[-1].port}/postgres"
        return f"postgresql://weft@{place}?sslmode=disable&gssencmode=disable&schema={schema}"

    yield opens
    for one in lines:
        one.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_applied_once(line, cut):
    # The first two are of the tables and of the claim.
    url = line("", "", "", cut)
    opened = Opened(url)
    assert opened.write(job("a")) == ""
    assert opened.write(job("b"), JobEnded("a", "done", result=b"r")) == ""
    assert opened.write(job("c")) == ""
    numbers = [(one["key"], one["state"]) for one in opened.ask("jobs").info["jobs"]]
    assert numbers == [("c", "pending"), ("b", "pending"), ("a", "done")]
    opened.journal.close()
    # A number that is left out is that of a transaction that was not committed.
    n_lost = {"before": 1, "after": 0}[cut]
    assert [one["number"] for one in jobs_at(url, 10)] == [3 + n_lost, 2 + n_lost, 1]
    assert asked(url, "SELECT commits FROM holder") == [(3,)]


def test_a_takeover_whose_answer_is_lost_is_one(line):
    opened = Opened(line("", "after"))
    assert opened.write(job("a")) == ""
    opened.journal.close()


def test_jobs_that_come_while_the_server_is_killed_are_recorded_when_it_is_back(server):
    url = server.url()
    opened = Opened(url)
    n, n_killed = 400, 3
    reported: queue.SimpleQueue[JournalWritten] = queue.SimpleQueue()
    done = threading.Event()

    def kill() -> None:
        for _ in range(n_killed):
            server.stop(signal.SIGKILL)
            server.start()
        done.set()

    killing = threading.Thread(target=kill)
    killing.start()
    errors = []
    n_sent = 0
    while n_sent < n or not done.is_set():  # so that commits go on beside each kill
        opened.journal.write(
            WriteJournal(n_sent, [job(f"a{n_sent}"), JobEnded(f"a{n_sent}", "done", result=b"r")]),
            reported.put,
        )
        n_sent += 1
        report = reported.get()
        assert report.number == n_sent - 1
        errors.append(report.error)
    killing.join()
    assert not any(errors)
    opened.journal.close()
    assert asked(url, "SELECT count(*), count(DISTINCT key) FROM jobs WHERE state = 'done'") == [
        (n_sent, n_sent)
    ]
    assert asked(url, "SELECT key FROM jobs ORDER BY number") == [(f"a{i}",) for i in range(n_sent)]


def test_a_server_that_stays_away_is_an_error_and_work_goes_on_when_it_is_back(server, monkeypatch):
    url = server.url()
    opened = Opened(url)
    assert opened.write(job("a")) == ""
    server.stop()
    with monkeypatch.context() as patch:
        patch.setattr(module, "PATIENCE_S", 0.2)
        assert "cannot be written: connection" in opened.write(job("b"))
        assert "cannot be read" in opened.ask("jobs").text
        assert "cannot be read" in opened.again("a").problem
    server.start()
    assert opened.write(job("c")) == ""
    assert [one.key for one in read_again(opened, url).jobs] == ["a", "c"]


def test_a_server_that_is_away_is_said_without_any_write_and_that_it_is_back(server, monkeypatch):
    monkeypatch.setattr(journal_module, "PROBE_S", 0.05)
    opened = Opened(server.url())
    probed = queue.SimpleQueue()
    opened.journal.on_probed = probed.put
    server.stop()
    error = probed.get(timeout=60).error
    assert error.startswith("the journal postgresql://weft@/postgres?host=")
    assert "cannot be written" in error
    server.start()
    while probed.get(timeout=60).error:
        pass
    assert opened.write(job("a")) == ""
    opened.journal.close()


def test_a_takeover_is_noticed_without_any_write(opened, url, monkeypatch):
    taken = queue.SimpleQueue()
    opened.journal.on_taken_over = taken.put
    monkeypatch.setattr(journal_module, "PROBE_S", 0.05)
    opened.ask("jobs")
    later = Opened(url)
    assert isinstance(taken.get(timeout=60), TakenOver)
    later.journal.close()


def test_the_end_does_not_wait_for_a_server_that_is_away(server):
    opened = Opened(server.url())
    assert opened.write(job("a")) == ""
    server.stop()
    opened.journal.write(WriteJournal(9, [job("b")]), opened.reports.put)
    opened.journal.close()
    assert "cannot be written" in opened.reports.get().error


# -- errors ----------------------------------------------------------------------------------------
def test_a_server_that_is_away_at_the_start_is_said_without_the_password(tmp_path):
    url = f"postgresql://ann:p%40ssw0rd@/jobs?host={tmp_path}&password=s3cret"
    with pytest.raises(CommError, match=r"cannot be reached: .*Start the server, or") as caught:
        store_at(url)
    assert f"postgresql://ann:***@/jobs?host={tmp_path}&password=***" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("p%40ssw0rd", "p@ssw0rd", "s3cret"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql://root:s3cret@db/jobs", "is neither a path nor postgresql://"),
        ("postgresql://ann:s3cret@db:port/jobs?x=1", "is not the URL of a database"),
        ("postgresql://ann:s3cret@db/jobs?schema=Team-A", "is no schema for a journal"),
        ("postgresql://ann:s3cret@db/jobs?schema=public", "is no schema for a journal"),
    ],
)
def test_a_wrong_url_is_said_without_the_password(url, text):
    with pytest.raises(ConfigError) as caught:
        store_at(url)
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_missing_driver_is_said_with_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "weft.scheduler.journal.postgresql")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'weft\[postgres\]'"):
        store_at("postgresql://ann@db/jobs")


def test_a_journal_of_a_later_version_is_refused(opened, url):
    asked(url, f"UPDATE holder SET form = {FORM + 1}")
    with pytest.raises(ConfigError, match=f"has form {FORM + 1}"):
        store_at(url)


def test_a_command_that_looks_makes_no_journal(postgresql):
    url = postgresql.url()
    with pytest.raises(ConfigError, match="there is no journal"):
        jobs_at(url, 10)
    assert asked(url, "SELECT to_regclass('holder')") == [(None,)]


def test_a_job_that_the_database_cannot_take_fails_no_other(opened):
    key = Random(1).randbytes(5000).hex()  # more than an index takes
    jobs = [job("a"), job("nul\0"), job(key), job("b")]
    assert [bool(opened.write(one)) for one in jobs] == [False, True, True, False]


def test_jobs_of_many_megabytes_are_recorded_together(opened, url):
    jobs = [job(f"a{n}", args=bytes(8 << 20)) for n in range(5)]
    assert opened.write(*jobs) == ""
    assert [one.key for one in read_again(opened, url).jobs] == [one.key for one in jobs]


def test_jobs_are_found_by_their_index_also_by_plans_of_an_empty_table(opened, url, wait_until):
    n_batches, n = 30, 100
    for batch in range(n_batches):
        keys = [f"{batch}-{i}" for i in range(n)]
        assert opened.write(*map(job, keys)) == ""
        assert opened.write(*[JobEnded(key, "done", result=b"r") for key in keys]) == ""
    opened.journal.close()
    schema = url.rpartition("=")[2]
    query = (
        "SELECT n_tup_ins, seq_tup_read FROM pg_stat_user_tables "
        f"WHERE relname = 'jobs' AND schemaname = '{schema}'"
    )
    wait_until(lambda: asked(url, query)[0][0] == n_batches * n)  # the session has counted
    assert asked(url, query)[0][1] < n_batches * n


def test_a_missing_table_is_damage(opened, url):
    opened.write(job("a"))
    asked(url, "DROP TABLE functions")
    assert "cannot be written" in opened.write(job("b"))
    with pytest.raises(ConfigError, match=r"cannot be used: .*Mend it"):
        opened.journal.read()


def test_the_server_for_tests_is_no_leak(postgresql):
    assert postgresql.pid in SERVERS


def test_leftovers_of_no_job_are_found_by_an_index(opened, url):
    assert opened.write(job("a")) == ""
    statements = []

    class Noting:
        """A database that notes what is deleted."""

        def __init__(self, database):
            self._database = database
            self.executemany = database.executemany

        def execute(self, statement, values=()):
            if statement.lstrip().startswith("DELETE"):
                statements.append((statement, values))
            return self._database.execute(statement, values)

    opened.journal.store.write(lambda database: drop_oldest(Noting(database)))
    assert len(statements) >= 2
    for statement, values in statements:
        plan = opened.journal.store.read(
            lambda database, values=values, statement=statement: "\n".join(
                line for (line,) in database.execute(f"EXPLAIN {statement}", values)
            )
        )
        # A subplan is read as a whole for each row, as is a table without an index.
        assert "SubPlan" not in plan, plan
        assert "Seq Scan on jobs" not in plan, plan


@pytest.mark.parametrize("password", ["pa@s3cret", "12/s3cret", "pa/s3cret", "1@2/s3cret"])
def test_the_rest_of_a_password_without_codes_is_not_shown(password):
    with pytest.raises(ConfigError, match=r"ann:\*\*\*@127.0.0.1:1/jobs is not the URL") as caught:
        store_at(f"postgresql://ann:{password}@127.0.0.1:1/jobs")
    assert "s3cret" not in str(caught.value)


async def test_a_scheduler_that_begins_again_without_its_database_ends(
    server, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    config = SchedulerConfig(
        [f"unix://{tmp_path}/s"],
        Security(b"a token for tests only", b"cluster-of-tests"),
        journal=Journal(store_at(server.url())),
    )
    scheduler = SchedulerServer(config)
    await scheduler.start()
    server.stop(signal.SIGKILL)
    scheduler._start_over(scheduler.state.epoch)
    with pytest.raises(CommError, match="cannot be reached"):
        await scheduler.wait_stopped()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert [one.exc_info for one in caplog.records if one.levelname == "ERROR"] == [None]
