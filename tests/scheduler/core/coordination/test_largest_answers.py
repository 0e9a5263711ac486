"""The largest answers about objects arrive: each is encoded, cut into a frame, and read."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests.protocol.wire.codec_kit import exchange
from weft.protocol.errors import LocalProtocolError
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import MAX_FACTS, MAX_KEY_CHARS
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.plain import unpack
from weft.scheduler.core.coordination import datasets, metadata, topics
from weft.scheduler.core.coordination.cluster_events import MAX_TEXT_CHARS
from weft.scheduler.core.coordination.operating import KINDS
from weft.scheduler.core.coordination.records import (
    Call,
    DatasetsRecord,
    MetadataRecord,
    ObjectRecord,
    ObjectValue,
    QueueRecord,
    Reply,
    TopicEvent,
    TopicRecord,
)

#: A character of four bytes.
WIDE = "\N{GRINNING FACE}"


def asked(record: ObjectRecord, operation: str, **arguments: Any) -> m.Operated:
    """Return the answer to a call, as the client reads it."""
    call: Any = Call(None, 1, record.kind, record.name, operation, arguments)  # type: ignore[arg-type]
    state: Any = None
    reply = KINDS[record.kind].operations[operation].attempt(state, record, call)
    assert isinstance(reply, Reply)
    (answer,) = exchange(
        [
            m.Operated(
                request=1,
                info=dict(reply.info),
                values=[value.blob for value in reply.values],
                keys=[value.keys for value in reply.values],
            )
        ]
    )
    assert isinstance(answer, m.Operated)
    return answer


def long_name(i: int) -> str:
    return f"{i:05}{WIDE * (MAX_KEY_CHARS - 5)}"


def value_of(nbytes: int, *keys: str) -> ObjectValue:
    return ObjectValue(bytes(nbytes), [*keys])


def test_all_datasets_are_listed():
    record = DatasetsRecord(h.DATASET, "all")
    record.values = {long_name(i): value_of(0) for i in range(datasets.MAX_DATASETS)}
    (blob,) = asked(record, "list").values
    assert unpack(blob) == [*record.values]


def test_the_whole_tree_of_metadata_is_read():
    record = MetadataRecord(h.METADATA, "all")
    n = metadata.MAX_NBYTES // 70
    record.tree = {f"{i}": {"x" * 1000: 5} if i % 100 == 0 else i for i in range(n)}
    assert n > MAX_FACTS
    (blob,) = asked(record, "get", path=[]).values
    assert unpack(blob) == record.tree


def test_all_events_of_a_topic_are_read():
    record = TopicRecord(h.TOPIC, "t")
    nbytes = topics.MAX_TOPIC_NBYTES // topics.MAX_EVENTS
    record.events = deque(TopicEvent(i, i, 0.5, value_of(nbytes)) for i in range(topics.MAX_EVENTS))
    assert len(asked(record, "all").values) == topics.MAX_EVENTS


def test_all_events_of_the_scheduler_are_read():
    record = TopicRecord(h.TOPIC, h.OWN_TOPIC)
    nbytes = 5 * 4 * MAX_TEXT_CHARS
    record.events = deque(TopicEvent(i, i, 0.5, value_of(nbytes)) for i in range(topics.MAX_EVENTS))
    assert len(asked(record, "all").values) == topics.MAX_EVENTS


@pytest.mark.parametrize(
    ("n", "nbytes", "n_keys"),
    [
        (h.MAX_BATCH, 250, 1),
        (h.MAX_BATCH, 3000, 0),
        (100, 400 << 10, 0),
        (50, 0, 10_000),
        (10, 100, 3900),
    ],
)
def test_many_values_of_a_queue_are_taken_at_once(n, nbytes, n_keys):
    """Of the last ones each is as large as a message about one may be."""
    record = QueueRecord(h.QUEUE, "q", 0)
    wide = "x" if n_keys == 10_000 else WIDE
    for i in range(n):
        keys = [f"{i}-{j}-{wide * (1 if n_keys < 2 else 1000)}" for j in range(n_keys)]
        if n_keys == 10_000:
            keys = [key[:30] for key in keys]
        record.items.append(value_of(nbytes, *keys))
    n_taken = 0
    while record.items:
        answer = asked(record, "drain")
        assert answer.values
        n_taken += len(answer.values)
    assert n_taken == n


@pytest.mark.parametrize("depth", [0, 1])
def test_a_map_that_the_receiver_would_refuse_is_not_sent(depth):
    """Such a message would end the connection, not only the call."""
    large: dict[str, Any] = {str(i): i for i in range(MAX_FACTS + 1)}
    info = {"workers": large} if depth else large
    with pytest.raises(LocalProtocolError, match="has a map of 4097 entries, more than the limit"):
        exchange([m.Answer(request=1, info=info)])
    large.popitem()
    (answer,) = exchange([m.Answer(request=1, info=info)])
    assert answer == m.Answer(request=1, info=info)
