"""Which failed fetches are logged."""

from __future__ import annotations

from weft.worker.data.core.failed_fetches import MAX_HOLDERS, FetchFailureLog

A = "tcp://a:1"


def test_the_first_failure_is_logged_at_once_and_the_next_ones_with_their_number():
    failed = FetchFailureLog()
    assert failed.on_failed(A, "refused", 0.0) == ("INFO", f"cannot fetch from {A}: refused")
    lines = [failed.on_failed(A, "refused", i / 10) for i in range(1, 3000)]
    logged = [text for _, text in lines if text]
    assert len(logged) == 7  # after 5, 15, 35, 75, 135, 195 and 255 s
    assert logged[0] == f"cannot fetch from {A}: refused; 50 more fetches failed in 5 s, 51 in all"
    assert {level for level, text in lines if text} == {"WARNING"}


def test_an_answer_ends_the_count_and_is_logged_after_several_failures():
    failed = FetchFailureLog()
    assert failed.on_answer(A) == ("", "")
    failed.on_failed(A, "refused", 0.0)
    assert failed.on_answer(A) == ("", "")
    failed.on_failed(A, "refused", 1.0)
    failed.on_failed(A, "refused", 2.0)
    assert failed.on_answer(A) == ("INFO", f"{A} answers again, after 2 failed fetches")
    assert failed.on_failed(A, "refused", 3.0)[0] == "INFO"


def test_few_holders_are_remembered():
    failed = FetchFailureLog()
    for i in range(MAX_HOLDERS + 1):
        failed.on_failed(f"tcp://a:{i}", "refused", 0.0)
    assert failed.on_failed("tcp://a:0", "refused", 0.0)[0] == "INFO"  # forgotten, so the first
    assert failed.on_failed(f"tcp://a:{MAX_HOLDERS}", "refused", 0.0) == ("", "")
