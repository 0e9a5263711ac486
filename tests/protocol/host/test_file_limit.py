"""The limit of open files of the processes of a cluster."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator

import pytest

from weft.protocol.host.file_limit import MOST_FILES, raise_file_limit

FILES = resource.RLIMIT_NOFILE


@pytest.fixture
def hard() -> Iterator[int]:
    before = resource.getrlimit(FILES)
    if 0 <= before[1] <= 512:
        pytest.skip("a hard limit of more than 512 open files is missing: ulimit -Hn 4096, as root")
    yield before[1]
    resource.setrlimit(FILES, before)


def test_the_soft_limit_is_raised_to_the_hard_one_but_not_without_a_bound(hard, caplog):
    resource.setrlimit(FILES, (512, hard))
    caplog.set_level(logging.DEBUG, "weft")
    raise_file_limit()
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    assert resource.getrlimit(FILES) == (wanted, hard)
    raise_file_limit()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", f"the limit of open files is raised from 512 to {wanted}")
    ]


def test_a_higher_soft_limit_stays_as_it_is(hard):
    if hard != resource.RLIM_INFINITY and hard <= MOST_FILES:
        pytest.skip("a hard limit of more than 65536 open files is missing: ulimit -Hn, as root")
    resource.setrlimit(FILES, (MOST_FILES + 1, hard))
    raise_file_limit()
    assert resource.getrlimit(FILES) == (MOST_FILES + 1, hard)
