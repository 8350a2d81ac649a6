//! Bytes in hex, and names made of random ones.

use std::io;

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `COUNT` random bytes in hex.
///
/// # Errors
/// The system gives none.
pub fn random<const COUNT: usize>() -> io::Result<String> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("no random bytes can be had: {error}")))?;
    Ok(hex(&bytes))
}
