//! Public keys and certificates as sshd exposes them: what identifies them.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use git_claim_api::words;
use sha2::{Digest as _, Sha256};

/// Why a key is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("a fingerprint is `SHA256:` and 43 characters of base64, as `ssh-keygen -l` prints it")]
    NoFingerprint,
    #[error("a key is not base64")]
    NotBase64,
    #[error("a key is cut short or malformed")]
    Malformed,
}

/// `SHA256:` and the unpadded base64 of the SHA-256 of a key's blob, as
/// `ssh-keygen -l` prints it. Behind a certificate it is the CA's, a `:` and
/// the percent-encoded key id: what outlives the certificate's renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

const PREFIX: &str = "SHA256:";
/// 32 bytes in unpadded base64.
const DIGITS: usize = 43;

impl Fingerprint {
    /// The fingerprint of a public key or certificate, from its blob in base64.
    ///
    /// # Errors
    /// It is not base64, or no key.
    pub fn of_key(base64: &str) -> Result<Fingerprint, BadKey> {
        let blob = STANDARD.decode(base64).map_err(|_| BadKey::NotBase64)?;
        let kind = Reader(&blob).text()?;
        match certified_fields(kind)? {
            None => Ok(Fingerprint::of_blob(&blob)),
            Some(fields) => certificate(&blob, fields),
        }
    }

    fn of_blob(blob: &[u8]) -> Fingerprint {
        let digest = STANDARD_NO_PAD.encode(Sha256::digest(blob));
        Fingerprint(format!("{PREFIX}{digest}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fingerprint {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
        let digits = text.strip_prefix(PREFIX).ok_or(BadKey::NoFingerprint)?;
        let (digits, key_id) = match digits.split_once(':') {
            None => (digits, None),
            Some((digits, key_id)) => (digits, Some(key_id)),
        };
        let key_id_is_ours = |encoded: &str| {
            words::decode(encoded).is_ok_and(|key_id| words::encode(&key_id) == encoded)
        };
        if digits.len() == DIGITS
            && digits.bytes().all(is_base64)
            && key_id.is_none_or(key_id_is_ours)
        {
            Ok(Fingerprint(text.to_owned()))
        } else {
            Err(BadKey::NoFingerprint)
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many strings of the public key stand between nonce and serial in a
/// certificate of this type; `None` for a plain key. OpenSSH's PROTOCOL.certkeys.
fn certified_fields(kind: &str) -> Result<Option<usize>, BadKey> {
    let Some((kind, _)) = kind.split_once("-cert-v") else {
        return Ok(None);
    };
    match kind {
        "ssh-ed25519" => Ok(Some(1)),
        "ssh-rsa" | "rsa-sha2-256" | "rsa-sha2-512" | "sk-ssh-ed25519" => Ok(Some(2)),
        "sk-ecdsa-sha2-nistp256" => Ok(Some(3)),
        "ssh-dss" => Ok(Some(4)),
        kind if kind.starts_with("ecdsa-sha2-") => Ok(Some(2)),
        // An unknown layout would put the CA somewhere else.
        _ => Err(BadKey::Malformed),
    }
}

/// What stands for a certificate. sshd has verified it already; this reads on
/// to the CA alone.
fn certificate(blob: &[u8], fields: usize) -> Result<Fingerprint, BadKey> {
    let mut reader = Reader(blob);
    // Type, nonce, public key.
    for _ in 0..2 + fields {
        reader.string()?;
    }
    reader.skip(8 + 4)?; // serial, kind of certificate
    let key_id = reader.text()?;
    reader.string()?; // principals
    reader.skip(8 + 8)?; // valid after, valid before
    for _ in 0..3 {
        reader.string()?; // critical options, extensions, reserved
    }
    let ca = Fingerprint::of_blob(reader.string()?);
    Ok(Fingerprint(format!("{ca}:{}", words::encode(key_id))))
}

/// Reads the wire format of RFC 4251.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn skip(&mut self, bytes: usize) -> Result<&'a [u8], BadKey> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(BadKey::Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// A length of four bytes, and that many bytes.
    fn string(&mut self) -> Result<&'a [u8], BadKey> {
        let (length, rest) = self.0.split_first_chunk().ok_or(BadKey::Malformed)?;
        self.0 = rest;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadKey::Malformed)?;
        self.skip(length)
    }

    fn text(&mut self) -> Result<&'a str, BadKey> {
        std::str::from_utf8(self.string()?).map_err(|_| BadKey::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with ssh-keygen, which also printed the fingerprints.
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAg8P3kqeqFf3LK7URUyGX5pozP0wSUETFE5Hkm9BKbZ";
    const KEY_PRINT: &str = "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg";
    /// `ssh-keygen -s ca -I "ann b"` of KEY.
    const CERTIFICATE: &str = "AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAIEqW2R6HVyZq/mMKuHU/aWwfQzcKv+rhZM1UWTbUszgwAAAAIAg8P3kqeqFf3LK7URUyGX5pozP0wSUETFE5Hkm9BKbZAAAAAAAAAAAAAAABAAAABWFubiBiAAAABwAAAANnaXQAAAAAAAAAAP//////////AAAAAAAAAIIAAAAVcGVybWl0LVgxMS1mb3J3YXJkaW5nAAAAAAAAABdwZXJtaXQtYWdlbnQtZm9yd2FyZGluZwAAAAAAAAAWcGVybWl0LXBvcnQtZm9yd2FyZGluZwAAAAAAAAAKcGVybWl0LXB0eQAAAAAAAAAOcGVybWl0LXVzZXItcmMAAAAAAAAAAAAAADMAAAALc3NoLWVkMjU1MTkAAAAgn4aZd7CrRcthyHRPE7m9MbbAsJuhg2dsv8VXFB2CkC4AAABTAAAAC3NzaC1lZDI1NTE5AAAAQDfax90E4iYo9tMzTtOlLjUrPO97POiccXOrEpn3FJcd5KNjOv3wxcmqNTSMX267u75WYGNln1xujXLzqQ3BAQ4=";
    const ECDSA_CERTIFICATE: &str = "AAAAKGVjZHNhLXNoYTItbmlzdHAyNTYtY2VydC12MDFAb3BlbnNzaC5jb20AAAAgJWYR+OKvoE/4YCQ4DO6u/4g/4pWmYWVZo6mcWmvUKgIAAAAIbmlzdHAyNTYAAABBBIYLu1wdHMGLddfucOWR6BazdF6yZuO4bKeQJTYLeYgX03f65LOPIqi63qnFkYCE/+XsPNtRjkDyoj3kq3dT+HcAAAAAAAAAAAAAAAEAAAAFYW5uIGIAAAAHAAAAA2dpdAAAAAAAAAAA//////////8AAAAAAAAAggAAABVwZXJtaXQtWDExLWZvcndhcmRpbmcAAAAAAAAAF3Blcm1pdC1hZ2VudC1mb3J3YXJkaW5nAAAAAAAAABZwZXJtaXQtcG9ydC1mb3J3YXJkaW5nAAAAAAAAAApwZXJtaXQtcHR5AAAAAAAAAA5wZXJtaXQtdXNlci1yYwAAAAAAAAAAAAAAMwAAAAtzc2gtZWQyNTUxOQAAACCfhpl3sKtFy2HIdE8Tub0xtsCwm6GDZ2y/xVcUHYKQLgAAAFMAAAALc3NoLWVkMjU1MTkAAABAf0UrKS2vrW4C1yD4Kf6Sn2i+R3gR2F0r58MV0p91fmi8LhGsKVuswhgwabCSYio+t86/wH7zR00tTrWCJ1icAw==";
    const CA_PRINT: &str = "SHA256:kf4Qj5ZE3im32KeszW+SJJV2Y6bEnH96EA9MSmAJcZ4";

    #[test]
    fn a_key_is_its_fingerprint_and_a_certificate_its_ca_and_key_id() {
        assert_eq!(Fingerprint::of_key(KEY).unwrap().as_str(), KEY_PRINT);
        for certificate in [CERTIFICATE, ECDSA_CERTIFICATE] {
            let print = Fingerprint::of_key(certificate).unwrap();
            assert_eq!(print.as_str(), format!("{CA_PRINT}:ann%20b"));
            assert_eq!(print.as_str().parse(), Ok(print));
        }
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_no_key() {
        let blob = STANDARD.decode(CERTIFICATE).unwrap();
        // All that stands before the CA's end; the signature is sshd's to check.
        for length in 0..blob.len() - 87 {
            let cut = STANDARD.encode(&blob[..length]);
            assert!(Fingerprint::of_key(&cut).is_err(), "{length} bytes");
        }
        let unknown = [b"\0\0\0\x0fx-cert-v01@o.org".as_slice(), &[0; 64]].concat();
        assert!(Fingerprint::of_key(&STANDARD.encode(unknown)).is_err());
        assert_eq!(Fingerprint::of_key("no base64"), Err(BadKey::NotBase64));
    }

    #[test]
    fn fingerprints_that_are_refused() {
        for text in [
            "",
            "SHA256:",
            "g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg",
            "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugT",
            "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg=",
            "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXug g",
            "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg:a b",
            "MD5:16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48",
        ] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text:?}");
        }
        assert!(KEY_PRINT.parse::<Fingerprint>().is_ok());
    }
}
