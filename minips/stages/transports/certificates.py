"""Certificates for one run: each server makes a certificate for its address, and never writes it to a disk."""

import ipaddress
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

VALID = timedelta(days=30)
"""The time for which a certificate is valid, both before and after its creation, since clocks differ."""


def issue_certificate(host: str) -> tuple[str, str]:
    """Return a self-signed certificate for the IP ``host`` and its key, as PEM. Needs the library cryptography."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"minips {host}")])
    never = "content_commitment key_encipherment data_encipherment key_agreement crl_sign encipher_only decipher_only"
    usage = dict.fromkeys(never.split(), False) | {"digital_signature": True, "key_cert_sign": True}
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - VALID, now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode(), secret.decode()


@contextmanager
def files(*texts: str) -> Iterator[list[str]]:
    """Write each text to a temporary file, and yield the files' paths until the block ends. On Linux the files are in
    this process's memory, so that nothing is left if the process is killed; elsewhere only their owner can read them.
    """
    with ExitStack() as stack:
        paths = []
        for text in texts:
            if hasattr(os, "memfd_create"):
                place: int | str = os.memfd_create("minips", os.MFD_CLOEXEC)
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="minips-"))  # with mode 700
                place = os.path.join(folder, "file.pem")
            file = stack.enter_context(open(place, "w", encoding="ascii"))
            file.write(text)
            file.flush()
            paths.append(f"/proc/self/fd/{place}" if isinstance(place, int) else place)
        yield paths
