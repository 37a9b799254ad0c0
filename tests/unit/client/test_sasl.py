"""PLAIN and SCRAM on the client's side: the exchanges of RFC 5802's successors, and dishonest servers."""

import base64
import hashlib
import hmac

import pytest

from penstock.client.connection.sasl import ITERATIONS_MAX, Plain, Scram, ScramName, exchange
from penstock.client.errors import LoginFailed

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc7677() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    scram = rfc7677()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.reply(SERVER_FIRST) == CLIENT_FINAL
    assert scram.reply(SERVER_FINAL) is None


def server_final(mechanism: ScramName, password: str, client_first: bytes, challenge: bytes, answer: bytes) -> bytes:
    """Computes the server's final message independently of the client's code."""
    name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    bare, proof = answer.rsplit(b",p=", 1)
    signed = client_first[3:] + b"," + challenge + b"," + bare
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), hmac.digest(stored, signed, name), strict=True))
    assert hashlib.new(name, key).digest() == stored, "the proof is wrong"
    return b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_honest_server_is_convinced_and_convinces(mechanism: ScramName) -> None:
    scram = Scram(mechanism, "a=b,c", "pässword", "abc")
    first = scram.first()
    assert first == b"n,,n=a=3Db=2Cc,r=abc"
    challenge = b"r=abcdef,s=" + base64.b64encode(b"salt") + b",i=8192"
    answer = scram.reply(challenge)
    assert answer is not None
    assert scram.reply(server_final(mechanism, "pässword", first, challenge, answer)) is None


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (SERVER_FIRST.replace(b"r=rOpr", b"r=sOpr"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1)), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999999999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "iteration"),
        (SERVER_FIRST.replace(b"W22", b"W\xc3\xa4"), "base64"),
        (SERVER_FIRST.replace(b",s=", b",x="), "lacks"),
        (b"r=" + NONCE.encode() + b"x", "lacks"),
        (b"\xff", "not text"),
        (b"", "lacks"),
    ],
)
def test_a_server_that_cheats_gets_no_proof(challenge: bytes, why: str) -> None:
    with pytest.raises(LoginFailed, match=why):
        rfc7677().reply(challenge)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (SERVER_FINAL.replace(b"6rri", b"7rri"), "do not trust"),
        (b"v=", "do not trust"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "lacks"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_not_trusted(final: bytes, why: str) -> None:
    scram = rfc7677()
    scram.reply(SERVER_FIRST)
    with pytest.raises(LoginFailed, match=why):
        scram.reply(final)


def test_plain_says_it_all_at_once() -> None:
    plain = Plain("alice", "sécret")
    assert plain.first() == "\0alice\0sécret".encode()
    assert plain.reply(b"") is None
    with pytest.raises(ValueError, match="zero"):
        Plain("a\0b", "c")


def test_mechanisms_are_chosen_by_name() -> None:
    assert exchange("PLAIN", "a", "b", b"").first() == b"\0a\0b"
    assert exchange("SCRAM-SHA-512", "a", "b", b"\0" * 24).first() == b"n,,n=a,r=" + b"A" * 32
    with pytest.raises(ValueError, match="GSSAPI"):
        exchange("GSSAPI", "a", "b", b"")  # type: ignore[arg-type]
