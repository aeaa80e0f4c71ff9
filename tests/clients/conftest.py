"""What holds for all tests of clients: httpx trusts a single certificate authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True, scope="module")
def _one_certificate_is_enough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the clients of httpx trust a single authority, because reading all authorities of certifi takes 20 ms each
    time.
    """
    file = tmp_path_factory.mktemp("trust") / "one.pem"
    file.write_text("".join(Path(certifi.where()).read_text("utf-8").partition(END)[:2]), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
