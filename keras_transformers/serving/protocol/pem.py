"""Checks PEM files for TLS at start-up, because OpenSSL's own errors name no file."""

import ssl
from pathlib import Path

_NO_PASSWORD = ""  # otherwise OpenSSL would ask for one on the terminal


def check_certificates(file: Path) -> None:
    """Checks that a file has certificates.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it has no certificate, or the certificate is damaged.
    """
    _check_exists(file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except ssl.SSLError as error:
        raise OSError(
            f"{file}: not a certificate in PEM ({_reason(error)}); pass a file with "
            "-----BEGIN CERTIFICATE-----"
        ) from error


def check_key(certificate: Path, key: Path) -> None:
    """Checks that a file has the private key of a certificate checked by `check_certificates`.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it has no private key, an encrypted one, or another certificate's.
    """
    _check_exists(key)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=_NO_PASSWORD)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OSError(
                f"{key}: not the key of {certificate}; pass the pair that was made together"
            ) from error
        raise OSError(
            f"{key}: not a private key in PEM without a password ({_reason(error)}); pass a file "
            "with -----BEGIN PRIVATE KEY-----"
        ) from error


def _check_exists(file: Path) -> None:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; pass a PEM file for TLS")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "damaged").replace("_", " ").lower()
