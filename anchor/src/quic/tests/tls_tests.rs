//! The handshake alone, in memory, where all that was negotiated can be seen.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, ServerConnection, Version};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, NamedGroup, ProtocolVersion, ServerConfig, SignatureScheme};

use super::lab::{AMBER, BLUE, CORAL, identity, key, signer};
use crate::quic::TlsIdentity;
use crate::quic::tls::{ALPN, NAME, Tls};

#[test]
fn hybrid_key_agreement_is_negotiated_and_nothing_less_is_taken() {
    let server = Tls::new(identity(BLUE));
    let client = Tls::new(identity(AMBER));
    let config = client.client_tls(Some(key(BLUE)), Arc::default());

    let (client_side, server_side) = handshake(config, server.server_tls()).unwrap();

    let group = NamedGroup::X25519MLKEM768;
    assert_eq!(
        client_side.negotiated_key_exchange_group().unwrap().name(),
        group
    );
    assert_eq!(
        server_side.negotiated_key_exchange_group().unwrap().name(),
        group
    );
    assert_eq!(client_side.alpn_protocol(), Some(ALPN));
    assert_eq!(server_side.server_name(), None, "no name on the wire");
    assert_eq!(
        server_side.protocol_version(),
        Some(ProtocolVersion::TLSv1_3)
    );

    let classical = CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let config = client
        .with_provider(classical)
        .client_tls(Some(key(BLUE)), Arc::default());
    assert!(handshake(config, server.server_tls()).is_err());
}

#[test]
fn client_without_a_key_or_with_a_forged_one_is_refused() {
    let server = Tls::new(identity(BLUE));
    let mut config = Tls::new(identity(AMBER)).client_tls(Some(key(BLUE)), Arc::default());
    config.client_auth_cert_resolver = Arc::new(NoKey);
    assert!(handshake(config, server.server_tls()).is_err());

    let liar = Tls::new(TlsIdentity::new(key(CORAL), signer(AMBER)));
    let config = liar.client_tls(Some(key(BLUE)), Arc::default());
    assert!(handshake(config, server.server_tls()).is_err());
}

#[derive(Debug)]
struct NoKey;

impl ResolvesClientCert for NoKey {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _sigschemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn handshake(
    client: ClientConfig,
    server: ServerConfig,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = name();
    let mut client = ClientConnection::new(Arc::new(client), Version::V1, name, Vec::new())?;
    let mut server = ServerConnection::new(Arc::new(server), Version::V1, Vec::new())?;
    // Each write is of one level of encryption and is read on its own, as in QUIC.
    while client.is_handshaking() || server.is_handshaking() {
        for _ in 0..3 {
            let mut wire = Vec::new();
            client.write_hs(&mut wire);
            server.read_hs(&wire)?;
        }
        for _ in 0..3 {
            let mut wire = Vec::new();
            server.write_hs(&mut wire);
            client.read_hs(&wire)?;
        }
    }
    Ok((client, server))
}

fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}
