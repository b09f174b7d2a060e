//! TLS for the control plane: version 1.3 only, both sides prove an Ed25519 identity key as a raw
//! public key (RFC 7250), key agreement by X25519MLKEM768 and nothing else, no name on the wire,
//! no resumption (each connection proves its key anew). Whether a key belongs to the realm is
//! decided above, from credentials; here it is only proven.

use std::fmt;
use std::sync::{Arc, OnceLock};

use conflux_proto::id::AnchorKey;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, PeerIncompatible,
    SignatureAlgorithm, SignatureScheme,
};
use thiserror::Error;

/// The protocol of the control plane, in the handshake.
pub(super) const ALPN: &[u8] = b"conflux/1";

/// What the dialer calls every anchor; never sent, rustls merely wants one.
pub(super) const NAME: &str = "conflux";

/// Everything of an Ed25519 SubjectPublicKeyInfo (RFC 8410) before the 32 bytes of the key.
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

type SignFn = dyn Fn(&[u8]) -> [u8; 64] + Send + Sync;

/// The identity this anchor proves in handshakes; the secret stays with whoever made it.
#[derive(Clone)]
pub struct TlsIdentity {
    key: AnchorKey,
    sign: Arc<SignFn>,
}

/// The far end proved another key than the one dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("another anchor answers there: {} instead of {}", found.id().short(), expected.id().short())]
pub struct WrongAnchor {
    /// The key that was dialled.
    pub expected: AnchorKey,
    /// The key that was shown.
    pub found: AnchorKey,
}

/// Both halves of the configuration, made once.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    certified: Arc<CertifiedKey>,
}

/// Where a dial's verifier leaves what it saw, for an error better than a TLS alert.
pub(super) type Mismatch = Arc<OnceLock<WrongAnchor>>;

impl TlsIdentity {
    /// Returns the identity of `key`, whose Ed25519 signatures `sign` makes.
    pub fn new(key: AnchorKey, sign: impl Fn(&[u8]) -> [u8; 64] + Send + Sync + 'static) -> Self {
        Self {
            key,
            sign: Arc::new(sign),
        }
    }

    /// Returns the public key.
    pub fn key(&self) -> AnchorKey {
        self.key
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        (self.sign)(message)
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsIdentity").field(&self.key).finish()
    }
}

impl Tls {
    pub(super) fn new(identity: TlsIdentity) -> Self {
        let shown = CertificateDer::from(spki(&identity.key));
        let certified = CertifiedKey::new(vec![shown], Arc::new(RawSigningKey(identity)));
        let provider = CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            kx_groups: vec![kx_group::X25519MLKEM768],
            ..default_provider()
        };
        Self {
            provider: Arc::new(provider),
            certified: Arc::new(certified),
        }
    }

    /// Returns the same with another provider of cryptography.
    #[cfg(test)]
    pub(super) fn with_provider(&self, provider: CryptoProvider) -> Self {
        Self {
            provider: Arc::new(provider),
            certified: self.certified.clone(),
        }
    }

    /// Returns the configuration of a dial to `expected`, or to whoever answers.
    pub(super) fn client(
        &self,
        expected: Option<AnchorKey>,
        mismatch: Mismatch,
    ) -> QuicClientConfig {
        QuicClientConfig::with_initial(
            Arc::new(self.client_tls(expected, mismatch)),
            initial_suite(),
        )
        .expect("the initial suite is the one QUIC demands")
    }

    pub(super) fn server(&self) -> QuicServerConfig {
        QuicServerConfig::with_initial(Arc::new(self.server_tls()), initial_suite())
            .expect("the initial suite is the one QUIC demands")
    }

    pub(super) fn client_tls(
        &self,
        expected: Option<AnchorKey>,
        mismatch: Mismatch,
    ) -> rustls::ClientConfig {
        let verifier = ServerVerifier {
            algorithms: self.algorithms(),
            expected,
            mismatch,
        };
        let mut config = rustls::ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        config
    }

    pub(super) fn server_tls(&self) -> rustls::ServerConfig {
        let verifier = ClientVerifier {
            algorithms: self.algorithms(),
        };
        let mut config = rustls::ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config
    }

    fn algorithms(&self) -> WebPkiSupportedAlgorithms {
        self.provider.signature_verification_algorithms
    }
}

/// Returns the key the far end of an established connection has proven.
pub(super) fn proven_key(connection: &quinn::Connection) -> Option<AnchorKey> {
    let shown = connection
        .peer_identity()?
        .downcast::<Vec<CertificateDer<'static>>>()
        .ok()?;
    match shown.as_slice() {
        [one] => key_of(one),
        [] | [_, ..] => None,
    }
}

fn initial_suite() -> rustls::quic::Suite {
    cipher_suite::TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .expect("the suite is of TLS 1.3 and serves QUIC")
}

fn spki(key: &AnchorKey) -> Vec<u8> {
    [SPKI_PREFIX.as_slice(), &key.0].concat()
}

fn key_of(shown: &CertificateDer<'_>) -> Option<AnchorKey> {
    let key = shown.as_ref().strip_prefix(&SPKI_PREFIX)?;
    Some(AnchorKey(key.try_into().ok()?))
}

fn single_key(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<AnchorKey, rustls::Error> {
    match (key_of(end_entity), intermediates) {
        (Some(key), []) => Ok(key),
        (None, []) | (_, [_, ..]) => Err(CertificateError::BadEncoding.into()),
    }
}

#[derive(Debug)]
struct RawSigningKey(TlsIdentity);

impl SigningKey for RawSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered
            .contains(&SignatureScheme::ED25519)
            .then(|| Box::new(Self(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(spki(&self.0.key)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for RawSigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.0.sign(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

#[derive(Debug)]
struct ServerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    expected: Option<AnchorKey>,
    mismatch: Mismatch,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = single_key(end_entity, intermediates)?;
        match self.expected {
            Some(expected) if expected != found => {
                let wrong = WrongAnchor { expected, found };
                // One dial has one handshake: nothing can have been written before.
                let _ = self.mismatch.set(wrong);
                Err(CertificateError::Other(OtherError(Arc::new(wrong))).into())
            }
            Some(_) | None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct ClientVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        single_key(end_entity, intermediates).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn verify_signature(
    message: &[u8],
    cert: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
}
