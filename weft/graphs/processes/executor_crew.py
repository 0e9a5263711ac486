"""The processes of a user's executor, which become workers for one run.

It owns the way from `executor.submit` to a socket on which a worker serves, and back. The executor
gets one call per worker, `worker_main`. It connects to a socket in a directory that only this user
may enter; both ends prove that they have the secret of the invitation before either unpickles
anything. The call returns when the run is over, and its process is the executor's again.

It is no error if some workers do not connect, because the executor is busy: the run goes on with
those that have connected, and calls that have not begun are cancelled at the end. If none can
connect, because an executor's processes are on another machine or see other files, `Unreachable` is
raised before any task was run.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future

from ...protocol.errors import WrongExecutor
from ...protocol.host.exits import describe_exit
from ..drivers.executors import take_back
from . import crew, link
from .crew import Crew, Member
from .link import Channel, Link
from .serving import NO_TASK, Server, note_of
from .sharing import SharedDirectory

_NONCE_NBYTES = 32
_MAC_NBYTES = 32
_PID_NBYTES = 8
_SLOT_NBYTES = 4
_HELLO_NBYTES = _NONCE_NBYTES + _PID_NBYTES + _SLOT_NBYTES + _MAC_NBYTES
_NOTE_NBYTES = 8
#: A parent that does not answer within this time has ended, or is not weft.
_HANDSHAKE_S = 30.0
#: Time that the executor gets to report why its process died.
_DEATH_S = 1.0
_DEATH_POLL_S = 0.005
#: Exit codes of processes that an executor has ended, the likelier the higher.
_LIKELY_KILLED = {-signal.SIGKILL: 1, -signal.SIGTERM: 2}


class Unreachable(Exception):
    """The processes of an executor cannot connect to this one. Nothing was run.

    Private: the graph can still be run with one `submit` for each task.
    """


class CannotConnect(Exception):
    """A call of `worker_main` found no way to the process that sent it, or not the right one."""


class Invitation:
    """The data that a process needs to become a worker."""

    def __init__(self, folder: str, slot: int, secret: bytes) -> None:
        self.folder = folder
        #: Its index in the file of notes.
        self.slot = slot
        self.secret = secret

    def __repr__(self) -> str:  # without the secret: executors log calls
        return f"<Invitation {self.slot} to {self.folder}>"

    @property
    def address(self) -> str:
        """Path of the socket."""
        return os.path.join(self.folder, "socket")

    @property
    def notes(self) -> str:
        """Path of the file of notes: one number for each worker."""
        return os.path.join(self.folder, "notes")

    def proof(self, role: bytes, nonces: bytes, rest: bytes = b"") -> bytes:
        """Return the proof that its sender has this invitation."""
        return hmac.digest(self.secret, role + nonces + rest, "sha256")


# --- In the executor's process --------------------------------------------------------------------


def worker_main(invitation: Invitation) -> None:
    """Be a worker until the run is over.

    Raises:
        CannotConnect: the parent cannot be found from this process.
    """
    try:
        sock = _connect(invitation)
    except OSError as exc:
        raise CannotConnect(f"{invitation!r}: {exc}") from None
    with sock:
        with open(invitation.notes, "r+b") as file:
            mapping = mmap.mmap(file.fileno(), 0)
        channel = Channel(sock)
        Server(channel, note_of(mapping, invitation.slot)).serve()
        channel.close()


def _connect(invitation: Invitation) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(_HANDSHAKE_S)
        sock.connect(invitation.address)
        theirs = _receive(sock, _NONCE_NBYTES)
        ours = secrets.token_bytes(_NONCE_NBYTES)
        rest = os.getpid().to_bytes(_PID_NBYTES, "big")
        rest += invitation.slot.to_bytes(_SLOT_NBYTES, "big")
        sock.sendall(ours + rest + invitation.proof(b"worker", theirs + ours, rest))
        expected = invitation.proof(b"parent", ours + theirs)
        if not hmac.compare_digest(_receive(sock, _MAC_NBYTES), expected):
            raise ConnectionRefusedError("another process than the inviting one listens there")
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def _receive(sock: socket.socket, n_bytes: int) -> bytes:
    data = b""
    while len(data) < n_bytes:
        more = sock.recv(n_bytes - len(data))
        if not more:
            raise ConnectionResetError("the parent has closed the connection")
        data += more
    return data


# --- In the parent --------------------------------------------------------------------------------


class _Guest:
    """A connection whose proof has not arrived yet."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.nonce = secrets.token_bytes(_NONCE_NBYTES)
        self.received = b""
        sock.send(self.nonce)  # does not block: the socket is new


class _InvitedMember(Member):
    """A process of an executor."""

    def __init__(
        self, sock_link: Link, pid: int, note: memoryview, slot: int, process: object
    ) -> None:
        super().__init__(sock_link, pid, note)
        #: The index of its future.
        self.slot = slot
        #: A `multiprocessing.Process` or the like; None if it is not known.
        self.process = process

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, as in multiprocessing; None if it is not known."""
        code = getattr(self.process, "exitcode", None)
        return code if isinstance(code, int) else None


class ExecutorCrew(Crew):
    """Workers in an executor's processes."""

    members: list[_InvitedMember]  # type: ignore[assignment]

    def __init__(self, executor: Executor, n_workers: int) -> None:
        """Submit the calls of `worker_main` to the executor.

        Raises:
            WrongExecutor: it takes no calls.
            Unreachable: no process can connect to this one.
        """
        super().__init__(n_workers, SharedDirectory.create())
        self._executor = executor
        self._run_id = -1
        self._secret = secrets.token_bytes(32)
        self._futures: list[Future[None]] = []
        #: {file descriptor: connection}
        self._guests: dict[int, _Guest] = {}
        self._mapping = mmap.mmap(-1, 1)
        self._listener = socket.socket(socket.AF_UNIX)
        # Futures become done on threads of the executor; this wakes the calling thread's poll.
        self._wakeup, self._waker = socket.socketpair()
        try:
            self._open()
            for slot in range(n_workers):
                self._invite(slot)
        except BaseException:
            self.end(is_clean=True)
            raise

    def _open(self) -> None:
        home = Invitation(self.directory.path, 0, b"")
        with open(home.notes, "wb") as file:
            file.write(NO_TASK.to_bytes(_NOTE_NBYTES, "little", signed=True) * self.n_workers)
        with open(home.notes, "r+b") as file:
            self._mapping = mmap.mmap(file.fileno(), 0)
        self._listener.setblocking(False)
        try:
            self._listener.bind(home.address)
        except OSError as exc:  # the path is too long, or that file system has no sockets
            raise Unreachable(f"{home.address}: {exc}") from exc
        # If its queue is full, a process that connects is refused at once.
        self._listener.listen(self.n_workers + 128)
        self._watch(self._listener.fileno(), self._accept)
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._watch(self._wakeup.fileno(), self._on_wakeup)

    def _invite(self, slot: int) -> None:
        invitation = Invitation(self.directory.path, slot, self._secret)
        try:
            future = self._executor.submit(worker_main, invitation)
        except Exception as exc:  # an executor that takes no more calls may raise anything
            raise WrongExecutor(f"{self._executor!r} cannot run tasks: {exc}") from exc
        self._futures.append(future)
        future.add_done_callback(self._wake)

    def _wake(self, _future: Future[None]) -> None:
        # OSError: it is full, and wakes the thread anyway; or closed, and no thread waits.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _on_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(1024)
        self.is_check_due = True

    # --- Guests -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:  # the connection was closed again
            return
        try:
            guest = _Guest(sock)
        except OSError:
            sock.close()
            return
        fd = sock.fileno()
        self._guests[fd] = guest
        self._watch(fd, lambda: self._hear(fd))

    def _hear(self, fd: int) -> None:
        guest = self._guests[fd]
        try:
            data = guest.sock.recv(_HELLO_NBYTES - len(guest.received))
        except OSError:
            data = b""
        guest.received += data
        if data and len(guest.received) < _HELLO_NBYTES:
            return
        self._unwatch(fd)
        del self._guests[fd]
        if not data or not self._admit(guest):
            guest.sock.close()

    def _admit(self, guest: _Guest) -> bool:
        """Make a guest a member if its proof is right; return whether it is."""
        hello, mac = guest.received[:-_MAC_NBYTES], guest.received[-_MAC_NBYTES:]
        nonce, rest = hello[:_NONCE_NBYTES], hello[_NONCE_NBYTES:]
        slot = int.from_bytes(rest[_PID_NBYTES:], "big")  # valid, because the proof is right
        invitation = Invitation(self.directory.path, slot, self._secret)
        expected = invitation.proof(b"worker", guest.nonce + nonce, rest)
        if not hmac.compare_digest(mac, expected):
            return False
        try:
            guest.sock.send(invitation.proof(b"parent", nonce + guest.nonce))
        except OSError:  # it did not wait
            return False
        pid = int.from_bytes(rest[:_PID_NBYTES], "big")
        # Executors of the standard library and of loky have it, without those that ended.
        processes = getattr(self._executor, "_processes", None)
        process = processes.get(pid) if isinstance(processes, dict) else None
        note = note_of(self._mapping, slot)
        member = _InvitedMember(Link(guest.sock), pid, note, slot, process)
        self.add(member)
        if self._run_id >= 0:
            crew.begin(member, self._run_id, self.directory, None)
        return True

    # --- Crew -------------------------------------------------------------------------------------

    def begin(self, run_id: int) -> None:
        self._run_id = run_id
        for member in self.members:
            crew.begin(member, run_id, self.directory, None)

    def check(self) -> list[Member]:
        if self.members or self._guests or not all(future.done() for future in self._futures):
            return [member for member in self.members if self._futures[member.slot].done()]
        reasons = [_exception_of(future) for future in self._futures]
        for exc in reasons:
            if not isinstance(exc, (CannotConnect, ImportError, AttributeError)):
                text = f"it dropped the call ({type(exc).__name__}: {exc})"
                raise WrongExecutor(f"{self._executor!r} cannot run tasks: {text}") from exc
        raise Unreachable(str(reasons[0])) from reasons[0]

    def on_lost(self, member: Member) -> None:
        self.remove(member)
        member.link.close()
        member.note.release()
        self.is_check_due = True

    def cause_of_death(self, member: Member) -> tuple[Member, str]:
        assert isinstance(member, _InvitedMember)
        deadline_s = time.monotonic() + _DEATH_S
        while not _is_settled(member, self.members) and time.monotonic() < deadline_s:
            if member.process is None and any(map(_has_broken, self._futures)):
                break
            time.sleep(_DEATH_POLL_S)
        ended = {
            one: code for one in (member, *self.members) if (code := one.exit_code) is not None
        }
        if ended:
            first = min(ended, key=lambda one: _LIKELY_KILLED.get(ended[one], 0))
            return first, describe_exit(ended[first])
        for future in filter(_has_broken, self._futures):
            return member, str(_exception_of(future))
        return member, "it closed its connection"

    def end(self, *, is_clean: bool) -> None:
        del is_clean  # a process that is still busy leaves when its task has ended
        take_back(self._executor, self._futures)
        for member in list(self.members):
            self.remove(member)
            member.link.send(link.LEAVE)
            member.link.close()
            member.note.release()
        for guest in self._guests.values():
            guest.sock.close()
        self._guests.clear()
        self._turn_away()
        for sock in (self._listener, self._wakeup, self._waker):
            sock.close()
        # They refer to this object.
        self._watched.clear()
        self._futures.clear()
        self._mapping.close()
        self.directory.close()

    def _turn_away(self) -> None:
        """Refuse connections from now on, so that no process waits for an answer after the run.

        Closing the socket is not enough, because processes that were forked have it too.
        """
        with contextlib.suppress(OSError):  # no other connection waits
            self._listener.shutdown(socket.SHUT_RDWR)
            while True:
                self._listener.accept()[0].close()

    def kill(self) -> None:
        self.end(is_clean=False)


def _is_settled(member: _InvitedMember, others: Iterable[_InvitedMember]) -> bool:
    """Return whether it is known which process died first.

    An executor that has lost a process ends the others, and one of those may be noticed first. The
    exit code of the first one is unknown until the executor's own thread has reaped it.
    """
    code = member.exit_code
    if code is None or code not in _LIKELY_KILLED:
        return code is not None
    return all(one.exit_code is not None for one in others)


def _has_broken(future: Future[None]) -> bool:
    return future.done() and isinstance(_exception_of(future), BrokenExecutor)


def _exception_of(future: Future[None]) -> BaseException:
    try:
        exc = future.exception(0)
    except CancelledError as cancelled:
        return cancelled
    return exc or CannotConnect("it returned at once")
