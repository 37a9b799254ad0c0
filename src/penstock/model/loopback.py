"""Addresses that only programs on this machine reach, and what to do about others where nothing is encrypted."""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is loopback."""
    return host in {"localhost", "::1"} or (host.startswith("127.") and host.count(".") == 3 and host[-1].isdigit())


def beyond_loopback(name: str, host: str, port: int) -> str:
    """The sentence that refuses a plaintext listener beyond loopback."""
    return (
        f"The listener {name} at {host or '*'}:{port} is plaintext and can be reached from other machines: "
        "set allow.plaintext.beyond.loopback=true if the network is trusted, or listen on 127.0.0.1."
    )
