"""The principal of a client, as a broker forwards it in an Envelope."""

from penstock.wire.declare import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str
    name: str
    token_authenticated: bool
