"""Java key stores made by keytool yield the certificates and keys stored in them."""

import base64
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from penstock.client.connection.keystore import KeyStoreError, read_key_store

# An elliptic-curve key for CN=client, whose certificate is valid for a hundred years. The password is changeit; in JKS
# the key's password is secret11.
OWN_JKS = """
/u3+7QAAAAIAAAABAAAAAQADb3duAAABod51z8UAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGuQDNWwhIbd7HZgVriIPgVXX1qGj0S2
6Ivx/DYVpDZfHja1pCcZQT6YGjS98cB3seU9bmgZCkU0rpOVmgCx9HhsJLfS34ABH8haXwbd+max2MU4WZAdEPh1GHE1wdgddERZ
rCZTLI0IKJ8qyAAAAAEABVguNTA5AAABPTCCATkwgeGgAwIBAgIIMfbNVGwUPWkwCgYIKoZIzj0EAwIwETEPMA0GA1UEAxMGY2xp
ZW50MCAXDTI2MTExNTA5MDcwNVoYDzIxMjYxMDIyMDkwNzA1WjARMQ8wDQYDVQQDEwZjbGllbnQwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARyCCDmLLaYhoY6UgeFHIOLg1eh9wTjY+WL7K4gG4jFkXstZn7bGqbs/2m1Pt4pK37V2iZ+0P6qM82Spv5D3UQgoyEw
HzAdBgNVHQ4EFgQUec0x+TDSPPSoq8wYOlAzmUjNgfswCgYIKoZIzj0EAwIDRwAwRAIgNRDiJcMBZplZFyLtKGmJk39Zo/IYnrzq
cXOfdYEbeOoCICy0n7cdMAOVReq0HriOsqB3Z7rWrSuZPjXOZsHdOIaptUMf+rBa0F2ehvfvT7ozq5tcaag=
"""
OWN_PKCS12 = """
MIID2gIBAzCCA4QGCSqGSIb3DQEHAaCCA3UEggNxMIIDbTCCASQGCSqGSIb3DQEHAaCCARUEggERMIIBDTCCAQkGCyqGSIb3DQEM
CgECoIG9MIG6MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBRgt/o/hGkkOblgAHqltejXGPiTcwICJxACASAwDAYIKoZI
hvcNAgkFADAdBglghkgBZQMEASoEEOXrDXaMvNks7ziE2XavRl4EUKjfdlsYtJTcJ/2RVcjxpNZV4kDJf/wjx7DWKcFCnemJbCeG
y5ob1eWAMVNwMRB4h8VJqUDXgPQUiA1f/JEr5lyih1PUMSjiA+svUk18+7ykMTowFQYJKoZIhvcNAQkUMQgeBgBvAHcAbjAhBgkq
hkiG9w0BCRUxFAQSVGltZSAxNzk0NzMzNjI3NzQyMIICQQYJKoZIhvcNAQcGoIICMjCCAi4CAQAwggInBgkqhkiG9w0BBwEwZgYJ
KoZIhvcNAQUNMFkwOAYJKoZIhvcNAQUMMCsEFC3Bbie1p0dLC5r+57xffrzYWYViAgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCG
SAFlAwQBKgQQaA33DwMzBBuA9P59Hwnn8YCCAbDT+jOoKofWwJs39rtXKYgsL9QaUlbhVft63nmHhTGX/yX90I4ksXKzKiLqQ/xc
d+flOVjveCWwarb/KWY6uB5nzN+79Zpa81PJTrE6MdM5U7aEK88H8tshTW1Rr4xCf4Cbpap3ShMvAKcqagvXeS4ahyh1FOoIdV79
dTP19MqdhZkG/GADqxG0dQbqEUlwjeOxjQ5VvKabiTTicQ7a+tIoKFFazJOFeR1gqVP+DASKUACFa2cs94NHRYThlfmxaCzta6dM
d62gHjaw/+/CGIfLIGPbzO4q3NrF9iNnahsoKqNTQYbrNFKfVj1NXviZIvmNYL/qoaT7FbVpKAgDzSiWlTzbgival42PtPDpoElM
53jPWLTdwK4PW0cv3TtntWuM73By/F3yBdnZzG+zCCmQ4VO64w2JVpZjKaHxFXFCALfehKBl/4hDjiNgAEwaqtQ1OLt19wZIn+GH
7PwyfFC3OMMW/jPD+oDFJZm6hqwJXx27sW/WVSIHA2lVFuO1fWaT3lkN0tZbCY/VOet4Rgg90/hCYoLnFNDrE9Otnk/e3kKxxm71
rhx9eTyjW6HJ8/kwTTAxMA0GCWCGSAFlAwQCAQUABCAiD0Es63TC3Yd6ZBYb4GhB9EVTqKmHfRzLMQhtTA4KpQQUXuAUXb/FfT7G
R/eSwerVupCisC4CAicQ
"""
# The same certificate as a trusted one.
TRUST_JKS = """
/u3+7QAAAAIAAAABAAAAAgADb25lAAABod51048ABVguNTA5AAABPTCCATkwgeGgAwIBAgIIMfbNVGwUPWkwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAxMGY2xpZW50MCAXDTI2MTExNTA5MDcwNVoYDzIxMjYxMDIyMDkwNzA1WjARMQ8wDQYDVQQDEwZjbGllbnQwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAARyCCDmLLaYhoY6UgeFHIOLg1eh9wTjY+WL7K4gG4jFkXstZn7bGqbs/2m1Pt4pK37V2iZ+
0P6qM82Spv5D3UQgoyEwHzAdBgNVHQ4EFgQUec0x+TDSPPSoq8wYOlAzmUjNgfswCgYIKoZIzj0EAwIDRwAwRAIgNRDiJcMBZplZ
FyLtKGmJk39Zo/IYnrzqcXOfdYEbeOoCICy0n7cdMAOVReq0HriOsqB3Z7rWrSuZPjXOZsHdOIapq+bcIAE5BuTR35np2f9PyTMa
URU=
"""
TRUST_PKCS12 = """
MIICogIBAzCCAkwGCSqGSIb3DQEHAaCCAj0EggI5MIICNTCCAjEGCSqGSIb3DQEHBqCCAiIwggIeAgEAMIICFwYJKoZIhvcNAQcB
MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBSeqLglC54aMjgrK99gv2pgjWYuWAICJxACASAwDAYIKoZIhvcNAgkFADAd
BglghkgBZQMEASoEEHcIDGuieoUZISKKB9kS8aWAggGg1NyUAAE3B3D/N/ICILT9Dx2aJ+DsXSj1Mb7GB9bocr1KqMF/U5ZNjdi8
AqzDZdCa5W2g52Xrzy/SNqDucT8lrN3oOdwkEsjtAw0yLlJjsfo4yij3LIooLv1UovUc22fsP12HM7ydqoUP9J1c8M1nxMshgBZs
gLU5twSsvk9ysauZmgmgSgqQ2YHG9FumOm1vWeC3ujhtsqb0lA3yxdRipL0iehs9cNvQvn97c6UNlPrbj8W2WavfTbXub1BJ0Q3i
s9HbsSA9CNEjli8cHbspXUEDs7T4VQxiahwcUdTxEz2+cFVPlvhakXigD+Er22ADdefUk6vmeQezzUQElpcmQPQknYgJrFTbUw8C
R2YZyHLBuILQ+e4ddfPTcJ5Grx/SlA+7UpVUsRz3FooboNVYxzEDI1LyCrEJyf/plN1mpfAsAadJLrD79zwYSVIlxdHB+GpMmzV9
hGBwavTlyq41KJfDG7SvF/vEGyz2LR5tGIsZi+U40+i3nHo+K0PEFRCxtsSRZmRRyG4oltCJRq9ZUgERwu1qDmZxPpZJE5DzSncw
TTAxMA0GCWCGSAFlAwQCAQUABCCdE0vYSkgj8LpkCWAtxhsjqZQ29FgWHfkp+OmZxGPh+gQU17jULt4ePhUpkWilJpSPmOSV5NsC
AicQ
"""


def name_of(certificate: str) -> str:
    return x509.load_pem_x509_certificate(certificate.encode()).subject.rfc4514_string()


@pytest.mark.parametrize(("store", "key_password"), [(OWN_JKS, "secret11"), (OWN_PKCS12, None)])
def test_a_key_comes_out_with_its_certificate(store: str, key_password: str | None) -> None:
    found = read_key_store(base64.b64decode(store), "changeit", key_password)
    assert found.key is not None
    key = load_pem_private_key(found.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(found.chain.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == certificate.public_key()
    assert name_of(found.chain) == "CN=client"
    assert found.trusted == ""


@pytest.mark.parametrize(
    ("store", "password"), [(TRUST_JKS, "changeit"), (TRUST_JKS, None), (TRUST_PKCS12, "changeit")]
)
def test_a_trust_store_gives_its_certificates(store: str, password: str | None) -> None:
    found = read_key_store(base64.b64decode(store), password)
    assert name_of(found.certificates) == "CN=client"
    assert found.key is None
    ssl.create_default_context(cadata=found.certificates)


def test_pem_is_taken_as_it_is() -> None:
    jks = read_key_store(base64.b64decode(OWN_JKS), "changeit", "secret11")
    assert jks.key is not None
    again = read_key_store(f"a remark\n{jks.key}{jks.chain}".encode(), None)
    assert (again.key, again.chain, again.trusted) == (jks.key, jks.chain, "")
    assert read_key_store(jks.chain.encode(), None).trusted == jks.chain


@pytest.mark.parametrize(
    ("store", "password", "key_password", "sentence"),
    [
        (base64.b64decode(OWN_JKS), "wrong", None, "the password is wrong"),
        (base64.b64decode(OWN_JKS), "changeit", "wrong", "the password of the key is wrong"),
        (base64.b64decode(OWN_JKS)[:100], None, None, "ends early"),
        (base64.b64decode(OWN_PKCS12), "wrong", None, "the password is wrong"),
        (b"0garbage", None, None, "not PKCS #12"),
        (b"garbage", None, None, "neither PEM nor JKS nor PKCS #12"),
        (b"-----BEGIN CERTIFICATE-----\nabc", None, None, "does not end"),
        (b"-----BEGIN PRIVATE KEY-----a-----END PRIVATE KEY-----" * 2, None, None, "more than one key"),
    ],
)
def test_a_store_that_cannot_be_read_says_why(
    store: bytes, password: str | None, key_password: str | None, sentence: str
) -> None:
    with pytest.raises(KeyStoreError, match=sentence):
        read_key_store(store, password, key_password)


@pytest.mark.parametrize("position", range(4, 120, 7))
def test_a_damaged_jks_store_is_noticed(position: int) -> None:
    damaged = bytearray(base64.b64decode(TRUST_JKS))
    damaged[position] ^= 1
    with pytest.raises(KeyStoreError, match="damaged"):
        read_key_store(bytes(damaged), "changeit")
