import ssl
from pathlib import Path

import pytest
import trustme

from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page
from tests.http.tls import CertificateServer


async def test_mask(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample prints a text without the key that it contains."""
    async with emulator.session() as session:
        await run_page("security")["show"](session, f"key={emulator.api_key}")
    assert capsys.readouterr().out == "key=***\n"


async def test_certificates(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The sample's session trusts the authority of its file, and has a certificate that the server asks for."""
    authorities, certificate = tmp_path / "authorities.pem", tmp_path / "certificate.pem"
    authority.cert_pem.write_to_path(authorities)
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(certificate)
    with CertificateServer(authority, ssl.TLSVersion.TLSv1_3) as server:
        monkeypatch.setenv("AGENTJOBS_BASE_URL", server.base_url)
        monkeypatch.setenv("AGENTJOBS_API_KEY", "a-key-of-a-test")
        async with run_page("security")["session_of"](str(authorities), str(certificate)) as session:
            assert (await session.create_job("Fix it", project_id="docs")).id == "job_1"
