"""Claims of links: made by a holder of the token of that role, for one link."""

from __future__ import annotations

import pytest

from weft.protocol.errors import LocalProtocolError
from weft.protocol.trust.page_claims import Claim, Claims, claim
from weft.protocol.wire.levels import Level, lowered, with_user

TOKEN = b"the token of an admin"
MADE = "1000000000.0123456789abcdef"
CLAIMS = Claims(TOKEN)


@pytest.mark.parametrize("level", [Level.CLIENT, Level.ADMIN])
def test_a_claim_of_an_admin_is_for_the_role_that_was_wished(level):
    assert CLAIMS.read(MADE, claim(TOKEN, MADE, level)) == Claim(level, "")


def test_a_claim_of_a_client_has_the_user_of_its_token():
    text = claim(with_user(TOKEN, "ann.b@x"), MADE, Level.CLIENT)
    assert CLAIMS.read(MADE, text) == Claim(Level.CLIENT, "ann.b@x")
    assert CLAIMS.read(MADE, claim(lowered(TOKEN, Level.CLIENT), MADE, Level.CLIENT)) == Claim(
        Level.CLIENT, ""
    )


@pytest.mark.parametrize("level", [Level.VIEW, Level.WORKER, Level.CLIENT])
def test_a_token_makes_no_claim_of_a_higher_role(level):
    token = lowered(TOKEN, level)
    with pytest.raises(LocalProtocolError, match="cannot be made from"):
        claim(token, MADE, Level.ADMIN)


CHANGES = {
    "the role of another claim": lambda text: text.replace("client", "admin"),
    "another user": lambda text: text.replace("ann", "bob"),
    "no user": lambda text: text.replace(".ann", ""),
    "an admin with a user": lambda text: text.replace("client", "admin"),
    "a role that there is not": lambda text: text.replace("client", "view"),
    "another end": lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
    "more behind it": lambda text: text + "\n",
    "letters that are none": lambda text: text[:-1] + "é",
    "nothing": lambda text: "",
    "a name that begins with a dot": lambda text: text.replace("ann", ".ann"),
    "a very long text": lambda text: text.replace("ann", "a" * 100_000),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_claim_is_none(change):
    text = claim(with_user(TOKEN, "ann"), MADE, Level.CLIENT)
    assert CLAIMS.read(MADE, text) is not None
    assert CLAIMS.read(MADE, change(text)) is None


@pytest.mark.parametrize(
    "other", ["1000000001.0123456789abcdef", "1000000000.0123456789abcdeg", ""]
)
def test_a_claim_fits_no_other_link(other):
    assert CLAIMS.read(other, claim(TOKEN, MADE, Level.ADMIN)) is None


def test_a_claim_of_another_cluster_is_none():
    assert Claims(b"another token of an admin").read(MADE, claim(TOKEN, MADE, Level.CLIENT)) is None


def test_a_claim_shows_no_token():
    for level in (Level.CLIENT, Level.ADMIN):
        secret = lowered(TOKEN, level).decode()
        assert secret.partition(".")[2] not in claim(TOKEN, MADE, level) or level is Level.ADMIN
        assert TOKEN.decode() not in claim(TOKEN, MADE, level)
