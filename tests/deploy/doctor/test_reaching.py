"""Which workers try the way to which others, and what is said of the ports out of reach."""

from __future__ import annotations

from weft.deploy.doctor.checks import FAILED, OK, Finding
from weft.deploy.doctor.gathering import choose_asked
from weft.deploy.doctor.reaching import (
    MAX_LINES,
    MAX_READERS,
    MAX_TRIED,
    OutOfReach,
    Worker,
    choose_tried,
    judge_reach,
)


def workers(n_hosts: int, n_each: int = 1) -> list[Worker]:
    found = [
        {"name": f"{host}-{i}", "host": f"h{host}", "address": f"tcp://h{host}:{i}"}
        for host in range(n_hosts)
        for i in range(n_each)
    ]
    return [*choose_asked(found, 64)]


def pairs(found: list[Worker]) -> set[tuple[str, str]]:
    return {(r["name"], h["name"]) for r, holders in choose_tried(found) for h in holders}


def test_one_worker_of_each_machine_tries_all_others():
    assert pairs(workers(2, 2)) == {
        *(("0-0", name) for name in ("1-0", "0-1", "1-1")),
        *(("1-0", name) for name in ("0-0", "0-1", "1-1")),
    }


def test_on_one_machine_two_workers_try_all():
    assert pairs(workers(1, 3)) == {
        *(("0-0", name) for name in ("0-1", "0-2")),
        *(("0-1", name) for name in ("0-0", "0-2")),
    }
    assert choose_tried(workers(1)) == []
    assert choose_tried([]) == []


def test_all_pairs_of_machines_are_tried_up_to_a_limit_and_then_each_machine_by_some():
    found = {(reader[: reader.index("-")], holder[: holder.index("-")])
             for reader, holder in pairs(workers(32, 2))}  # fmt: skip
    assert len({(a, b) for a, b in found if a != b}) == 32 * 31
    many = choose_tried(workers(64))
    assert len(many) == MAX_READERS
    assert {len(holders) for _, holders in many} == {MAX_TRIED}
    assert {h["name"] for _, holders in many for h in holders} == {f"{i}-0" for i in range(1, 64)}


def test_ports_that_all_reach_are_one_good_line():
    text = "6 pairs of workers were tried, and all reach each other"
    assert judge_reach(6, []) == [Finding(OK, "data ports", "reach", text)]
    assert judge_reach(0, []) == []


def test_a_port_out_of_reach_is_named_with_those_that_tried_it_and_the_usual_cause():
    *readers, holder = workers(7)
    found = [OutOfReach(reader, holder, "no-answer", "no answer within 3 s") for reader in readers]
    (line,) = judge_reach(42, found)
    assert line.level == FAILED
    assert line.text == (
        "0-0 on h0, 1-0 on h1, 2-0 on h2, 3-0 on h3 and 2 more do not reach 6-0 on h6 at "
        "tcp://h6:0: no answer within 3 s"
    )
    assert line.advice.startswith("a firewall drops the packets: open these ports")


def test_each_kind_of_failure_has_advice_of_its_own():
    reader, holder = workers(2)
    kinds = ("refused", "no-answer", "name", "other")
    lines = judge_reach(4, [OutOfReach(reader, holder, kind, kind) for kind in kinds])
    assert len({line.advice for line in lines}) == 4
    assert lines[0].text == "0-0 on h0 does not reach 1-0 on h1 at tcp://h1:0: refused"
    (later,) = judge_reach(1, [OutOfReach(reader, holder, "of a later version", "why")])
    assert later.advice == lines[3].advice


def test_many_ports_out_of_reach_are_counted():
    reader, *holders = workers(20)
    found = [OutOfReach(reader, holder, "refused", "nobody") for holder in holders]
    lines = judge_reach(19, found)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].text == "11 more ports are out of reach for some workers"
    assert {line.level for line in lines} == {FAILED}
