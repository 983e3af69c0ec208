//! Who is who: a private CA and one certificate a role.
//!
//! A role is the DNS name in a certificate (`brick.portcullis`), so the ordinary name check of TLS
//! proves a server's role, and [`Role::of`] a client's. An identity directory holds `ca.pem`,
//! `ca.key`, for each role `ROLE.pem` and `ROLE.key`, and `handle.key`, the secret from which
//! bricks authenticate handles. A host needs only `ca.pem` and the files of its own role (a brick
//! also `handle.key`).

use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::error::TransportError;

/// Days a certificate is valid.
const VALIDITY_DAYS: i64 = 3650;
const HANDLE_KEY_FILE: &str = "handle.key";

/// What a peer is, proven by its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Exports a directory.
    Brick,
    /// Caches between clients and bricks.
    Gateway,
    /// Reads through a gateway.
    Client,
    /// Reads through a gateway and steers it.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Brick, Role::Gateway, Role::Client, Role::Admin];

    /// The name, as in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Brick => "brick",
            Role::Gateway => "gateway",
            Role::Client => "client",
            Role::Admin => "admin",
        }
    }

    /// The DNS name that a certificate of this role carries.
    pub const fn dns_name(self) -> &'static str {
        match self {
            Role::Brick => "brick.portcullis",
            Role::Gateway => "gateway.portcullis",
            Role::Client => "client.portcullis",
            Role::Admin => "admin.portcullis",
        }
    }

    /// The role that a verified certificate names, `None` where it names none of ours.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        Self::ALL.into_iter().find(|role| {
            ServerName::try_from(role.dns_name())
                .is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One party's certificate and key, with the CA it trusts.
#[derive(Debug)]
pub struct Identity {
    /// What it proves.
    pub role: Role,
    pub(crate) ca: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    handle_key: Option<[u8; 32]>,
}

impl Identity {
    /// Reads the identity of `role` from a directory that `identity init` made.
    ///
    /// # Errors
    /// Names the file that is missing or unusable.
    pub fn load(dir: &Path, role: Role) -> Result<Self, TransportError> {
        let certificate = |file: &str| {
            let path = dir.join(file);
            CertificateDer::from_pem_slice(&read(&path)?).map_err(|error| {
                TransportError::IdentityContent {
                    path,
                    reason: format!("not a certificate: {error}"),
                }
            })
        };
        let key_path = dir.join(format!("{role}.key"));
        let key = PrivateKeyDer::from_pem_slice(&read(&key_path)?).map_err(|error| {
            TransportError::IdentityContent {
                path: key_path,
                reason: format!("not a private key: {error}"),
            }
        })?;
        Ok(Self {
            role,
            ca: certificate("ca.pem")?,
            certificate: certificate(&format!("{role}.pem"))?,
            key,
            handle_key: if role == Role::Brick { Some(load_handle_key(dir)?) } else { None },
        })
    }

    /// The secret from which a brick authenticates handles; only a brick's identity has one.
    pub fn handle_key(&self) -> Option<&[u8; 32]> {
        self.handle_key.as_ref()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            role: self.role,
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            handle_key: self.handle_key,
        }
    }
}

/// A private CA with one identity a role.
pub struct IdentitySet {
    ca_pem: String,
    ca_key_pem: String,
    /// Role, certificate and key, in PEM.
    parties: Vec<(Role, String, String)>,
    handle_key: [u8; 32],
}

impl IdentitySet {
    /// Makes a CA and one identity for each role, all with fresh keys (ECDSA P-256).
    ///
    /// # Errors
    /// Only where the system gives no randomness.
    pub fn generate() -> Result<Self, TransportError> {
        let ca_key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "Portcullis private CA");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params);
        let ca_pem = params.self_signed(&ca_key)?.pem();
        let ca_key_pem = ca_key.serialize_pem();
        let issuer = Issuer::new(params, ca_key);
        let parties = Role::ALL
            .into_iter()
            .map(|role| {
                let key = KeyPair::generate()?;
                let mut params = CertificateParams::new(vec![role.dns_name().to_owned()])?;
                params.distinguished_name.push(DnType::CommonName, format!("Portcullis {role}"));
                params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
                params.extended_key_usages =
                    vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                params.use_authority_key_identifier_extension = true;
                set_validity(&mut params);
                let certificate = params.signed_by(&key, &issuer)?;
                Ok((role, certificate.pem(), key.serialize_pem()))
            })
            .collect::<Result<_, rcgen::Error>>()?;
        Ok(Self { ca_pem, ca_key_pem, parties, handle_key: fresh_handle_key()? })
    }

    /// The identity of one role, without a directory: for a server and client in one process.
    ///
    /// # Errors
    /// None that a set from [`IdentitySet::generate`] can cause.
    pub fn identity(&self, role: Role) -> Result<Identity, TransportError> {
        let content = |what: &str, error: rustls_pki_types::pem::Error| {
            TransportError::IdentityContent { path: what.into(), reason: error.to_string() }
        };
        let (_, certificate, key) =
            self.parties.iter().find(|(party, ..)| *party == role).ok_or_else(|| {
                TransportError::IdentityContent {
                    path: role.name().into(),
                    reason: "no such role in this set".into(),
                }
            })?;
        Ok(Identity {
            role,
            ca: CertificateDer::from_pem_slice(self.ca_pem.as_bytes())
                .map_err(|error| content("ca", error))?,
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes())
                .map_err(|error| content("certificate", error))?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|error| content("key", error))?,
            handle_key: (role == Role::Brick).then_some(self.handle_key),
        })
    }

    /// Writes the set into `dir`, made with mode 0700 where it is missing; files have mode 0600.
    ///
    /// # Errors
    /// An identity is never overwritten; other errors name the file.
    pub fn write(&self, dir: &Path) -> Result<(), TransportError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| TransportError::IdentityFile { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at(dir))?;
        let mut files = vec![
            ("ca.pem".to_owned(), self.ca_pem.as_bytes()),
            ("ca.key".to_owned(), self.ca_key_pem.as_bytes()),
            (HANDLE_KEY_FILE.to_owned(), &self.handle_key[..]),
        ];
        for (role, certificate, key) in &self.parties {
            files.push((format!("{role}.pem"), certificate.as_bytes()));
            files.push((format!("{role}.key"), key.as_bytes()));
        }
        if let Some((name, _)) = files.iter().find(|(name, _)| dir.join(name).exists()) {
            return Err(TransportError::IdentityExists { path: dir.join(name) });
        }
        for (name, content) in files {
            let path = dir.join(name);
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(at(&path))?;
            file.write_all(content).map_err(at(&path))?;
        }
        Ok(())
    }
}

fn set_validity(params: &mut CertificateParams) {
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(1);
    params.not_after = now + time::Duration::days(VALIDITY_DAYS);
}

/// 32 random bytes from the TLS provider's generator.
fn fresh_handle_key() -> Result<[u8; 32], TransportError> {
    let mut key = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut key)
        .map_err(|error| TransportError::Tls(rustls::Error::from(error)))?;
    Ok(key)
}

fn load_handle_key(dir: &Path) -> Result<[u8; 32], TransportError> {
    let path = dir.join(HANDLE_KEY_FILE);
    let bytes = read(&path)?;
    let len = bytes.len();
    bytes.try_into().map_err(|_| TransportError::IdentityContent {
        path,
        reason: format!("{len} bytes, where a handle key has 32"),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TransportError> {
    fs::read(path).map_err(|source| TransportError::IdentityFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_identity_loads_with_its_role_and_is_never_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let set = IdentitySet::generate().expect("a set");
        set.write(dir.path()).expect("it is written");
        for role in Role::ALL {
            let identity = Identity::load(dir.path(), role).expect("it loads");
            assert_eq!(Role::of(&identity.certificate), Some(role));
            assert_eq!(identity.handle_key().is_some(), role == Role::Brick);
        }
        assert_eq!(Role::of(&Identity::load(dir.path(), Role::Brick).expect("loads").ca), None);
        let again = IdentitySet::generate().expect("a set").write(dir.path());
        assert!(matches!(again, Err(TransportError::IdentityExists { .. })), "{again:?}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = Identity::load(dir.path(), Role::Client).expect_err("nothing there");
        assert!(error.to_string().contains("client.key"), "{error}");
        assert!(error.to_string().contains("identity init"), "{error}");
    }
}
